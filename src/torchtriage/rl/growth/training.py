"""Training of all hosts with their seeds on one minibatch each, by vmapped gradients; SGD with momentum."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from torchtriage.rl.growth import hosts
from torchtriage.rl.growth.hosts import HostShape

# N environments, S slots, P host parameters, Q parameters of a seed, B rows of a minibatch, I inputs.


class TrainedTensors(NamedTuple):
    """The tensors that training changes."""

    host_NP: Tensor
    host_velocity_NP: Tensor
    seed_NSQ: Tensor
    seed_velocity_NSQ: Tensor


def minibatch_step(shape: HostShape, lr: float, momentum: float) -> Callable[..., tuple[Tensor, ...]]:
    """A function that trains on one minibatch.

    It takes the TrainedTensors, masks and data. It returns the new TrainedTensors, the summed loss and the correct
    answers of each host, and the squared norms of the gradients of hosts and seeds. It is a nested compile region, so
    that a program with several minibatches compiles it once. The parameters of a seed that does not learn stay
    bitwise unchanged.
    """

    loss = partial(hosts.training_loss, shape=shape)

    def step(
        host_NP: Tensor,
        host_velocity_NP: Tensor,
        seed_NSQ: Tensor,
        seed_velocity_NSQ: Tensor,
        alpha_NS: Tensor,
        learns_NS: Tensor,
        training_NS: Tensor,
        x_NIB: Tensor,
        y_NB: Tensor,
    ) -> tuple[Tensor, ...]:
        gradients = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1), has_aux=True))
        (host_grad_NP, seed_grad_NSQ), (loss_N, correct_N) = gradients(
            host_NP, seed_NSQ, alpha_NS, training_NS, x_NIB, y_NB
        )
        learns_NS1 = learns_NS.unsqueeze(2)
        seed_grad_NSQ = torch.where(learns_NS1, seed_grad_NSQ, 0.0)
        host_velocity_NP = momentum * host_velocity_NP + host_grad_NP
        seed_velocity_NSQ = momentum * seed_velocity_NSQ + seed_grad_NSQ
        host_NP = host_NP - lr * host_velocity_NP
        seed_NSQ = torch.where(learns_NS1, seed_NSQ - lr * seed_velocity_NSQ, seed_NSQ)
        return (
            host_NP,
            host_velocity_NP,
            seed_NSQ,
            seed_velocity_NSQ,
            loss_N,
            correct_N,
            host_grad_NP.square().sum(1),
            seed_grad_NSQ.square().sum(2),
        )

    region: Callable[..., tuple[Tensor, ...]] = torch.compiler.nested_compile_region(step)
    return region
