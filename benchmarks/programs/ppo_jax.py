"""PPO in JAX with CartPole inside the graph: a training is one compiled function, and no Python runs in its loop.

This is the design of PureJaxRL, which is not a package; the code is written for this comparison. The parameters are
those of ppo_peers.py. Prints the number of steps and the mean length of the last episodes.

Shape suffixes: T steps of a rollout, N environments, B samples of a minibatch, O observation size, A actions.
"""

import argparse
import functools
import json
import math
from typing import Any

import jax
import jax.numpy as jnp

ENVS, STEPS, BATCH, EPOCHS, WIDTH = 8, 32, 256, 20, 64
GAMMA, LAMBDA, RATE, CLIP, VALUE, MAX_NORM = 0.98, 0.8, 1e-3, 0.2, 0.5, 0.5
MASS, POLE_MASS, HALF_POLE, GRAVITY, FORCE, TICK = 1.1, 0.1, 0.5, 9.8, 10.0, 0.02  # of CartPole-v1 in gymnasium
MAX_POSITION, MAX_ANGLE, MAX_LENGTH = 2.4, math.radians(12), 500
SHARE_OF_LAST = 10  # the episodes of the last tenth of the training count


def moved(state_NO: jax.Array, action_N: jax.Array) -> jax.Array:
    """CartPole after one step: position, speed, angle, angular speed."""
    position, speed, angle, turning = state_NO.T
    sine, cosine, lever = jnp.sin(angle), jnp.cos(angle), POLE_MASS * HALF_POLE
    push = (jnp.where(action_N == 1, FORCE, -FORCE) + lever * turning**2 * sine) / MASS
    spin = (GRAVITY * sine - cosine * push) / (HALF_POLE * (4 / 3 - POLE_MASS * cosine**2 / MASS))
    pull = push - lever * spin * cosine / MASS
    parts = (position + TICK * speed, speed + TICK * pull, angle + TICK * turning, turning + TICK * spin)
    return jnp.stack(parts, axis=-1)


def new_net(key: jax.Array, num_outputs: int, gain: float) -> list[tuple[jax.Array, jax.Array]]:
    sizes = ((4, WIDTH, math.sqrt(2)), (WIDTH, WIDTH, math.sqrt(2)), (WIDTH, num_outputs, gain))
    layers = []
    for key_of_layer, (inputs, width, scale) in zip(jax.random.split(key, len(sizes)), sizes, strict=True):
        layers.append((jax.nn.initializers.orthogonal(scale)(key_of_layer, (inputs, width)), jnp.zeros(width)))
    return layers


def outputs(net: list[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
    for weight, bias in net[:-1]:
        x = jnp.tanh(x @ weight + bias)
    weight, bias = net[-1]
    return x @ weight + bias


def log_probs(nets: dict[str, Any], x: jax.Array) -> jax.Array:
    return jax.nn.log_softmax(outputs(nets["actor"], x))


def values(nets: dict[str, Any], x: jax.Array) -> jax.Array:
    return outputs(nets["critic"], x)[..., 0]


def collect(nets: dict[str, Any], world: dict[str, jax.Array], key: jax.Array) -> tuple[Any, dict[str, jax.Array]]:
    """T steps of all environments; an episode that ends is followed by the next one in the same step."""

    def step(world: dict[str, jax.Array], key: jax.Array) -> tuple[Any, dict[str, jax.Array]]:
        to_act, to_reset = jax.random.split(key)
        before_NO = world["state"]
        log_prob_NA = log_probs(nets, before_NO)
        action_N = jax.random.categorical(to_act, log_prob_NA)
        after_NO, length_N = moved(before_NO, action_N), world["length"] + 1
        fell_N = (jnp.abs(after_NO[:, 0]) > MAX_POSITION) | (jnp.abs(after_NO[:, 2]) > MAX_ANGLE)
        ended_N = fell_N | (length_N >= MAX_LENGTH)
        fresh_NO = jax.random.uniform(to_reset, (ENVS, 4), minval=-0.05, maxval=0.05)
        seen = {
            "x": before_NO,
            "after": after_NO,
            "action": action_N,
            "log_prob": jnp.take_along_axis(log_prob_NA, action_N[:, None], 1)[:, 0],
            "fell": fell_N,
            "ended": ended_N,
            "length": length_N,
        }
        state_NO = jnp.where(ended_N[:, None], fresh_NO, after_NO)
        return {"state": state_NO, "length": jnp.where(ended_N, 0, length_N)}, seen

    return jax.lax.scan(step, world, jax.random.split(key, STEPS))


def with_advantages(nets: dict[str, Any], seen_TN: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """The rollout with advantages and returns; an episode that was cut at its limit is valued beyond it."""
    value_TN = values(nets, seen_TN["x"])
    following_TN = jnp.where(seen_TN["fell"], 0.0, values(nets, seen_TN["after"]))
    error_TN = 1.0 + GAMMA * following_TN - value_TN

    def earlier(later_N: jax.Array, at: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        error_N, ended_N = at
        advantage_N = error_N + jnp.where(ended_N, 0.0, GAMMA * LAMBDA * later_N)
        return advantage_N, advantage_N

    _, advantage_TN = jax.lax.scan(earlier, jnp.zeros(ENVS), (error_TN, seen_TN["ended"]), reverse=True)
    kept = {name: seen_TN[name] for name in ("x", "action", "log_prob")}
    return {**kept, "advantage": advantage_TN, "return": advantage_TN + value_TN}


def loss_of(nets: dict[str, Any], data_B: dict[str, jax.Array], clip: jax.Array) -> tuple[jax.Array, jax.Array]:
    log_prob_B = jnp.take_along_axis(log_probs(nets, data_B["x"]), data_B["action"][:, None], 1)[:, 0]
    change_B = log_prob_B - data_B["log_prob"]
    ratio_B, gain_B = jnp.exp(change_B), data_B["advantage"]
    gain_B = (gain_B - gain_B.mean()) / (gain_B.std() + 1e-8)
    surrogate = jnp.minimum(gain_B * ratio_B, gain_B * jnp.clip(ratio_B, 1 - clip, 1 + clip)).mean()
    error = jnp.square(values(nets, data_B["x"]) - data_B["return"]).mean()
    divergence, clipped = (ratio_B - 1 - change_B).mean(), (jnp.abs(ratio_B - 1) > clip).mean()
    return VALUE * error - surrogate, jnp.stack([surrogate, error, divergence, clipped])


def descended(nets: Any, moments: Any, gradients: Any, rate: jax.Array) -> tuple[Any, Any]:
    """Adam on gradients that are clipped to a norm."""
    norm = jnp.sqrt(sum(jnp.square(g).sum() for g in jax.tree.leaves(gradients)))
    gradients = jax.tree.map(lambda g: g * jnp.minimum(1.0, MAX_NORM / (norm + 1e-6)), gradients)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments["first"], gradients)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments["second"], gradients)
    number = moments["number"] + 1
    scale, root = rate / (1 - 0.9**number), jnp.sqrt(1 - 0.999**number)
    nets = jax.tree.map(lambda p, m, v: p - scale * m / (jnp.sqrt(v) / root + 1e-5), nets, first, second)
    return nets, {"first": first, "second": second, "number": number}


@functools.partial(jax.jit, static_argnames="num_updates")
def train(key: jax.Array, num_updates: int) -> tuple[dict[str, Any], jax.Array, jax.Array]:
    """(networks, metrics of each update, number and total length of the episodes that ended in each update)"""
    to_actor, to_critic, to_reset, key = jax.random.split(key, 4)
    nets = {"actor": new_net(to_actor, 2, 0.01), "critic": new_net(to_critic, 1, 1.0)}
    zeros = jax.tree.map(jnp.zeros_like, nets)
    moments = {"first": zeros, "second": zeros, "number": jnp.zeros(())}
    world = {
        "state": jax.random.uniform(to_reset, (ENVS, 4), minval=-0.05, maxval=0.05),
        "length": jnp.zeros(ENVS, int),
    }

    def update(carry: Any, at: tuple[jax.Array, jax.Array]) -> tuple[Any, tuple[jax.Array, jax.Array]]:
        nets, moments, world = carry
        key, number = at
        left = 1 - number / num_updates
        to_collect, to_shuffle = jax.random.split(key)
        world, seen_TN = collect(nets, world, to_collect)
        rollout_TN = with_advantages(nets, seen_TN)
        samples = jax.tree.map(lambda x: x.reshape(STEPS * ENVS, *x.shape[2:]), rollout_TN)

        def minibatch(carry: Any, rows_B: jax.Array) -> tuple[Any, jax.Array]:
            nets, moments = carry
            data_B = jax.tree.map(lambda x: x[rows_B], samples)
            gradients, metrics = jax.grad(loss_of, has_aux=True)(nets, data_B, CLIP * left)
            return descended(nets, moments, gradients, RATE * left), metrics

        def epoch(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            return jax.lax.scan(minibatch, carry, jax.random.permutation(key, STEPS * ENVS).reshape(-1, BATCH))

        (nets, moments), metrics = jax.lax.scan(epoch, (nets, moments), jax.random.split(to_shuffle, EPOCHS))
        episodes = jnp.stack([seen_TN["ended"].sum(), jnp.where(seen_TN["ended"], seen_TN["length"], 0).sum()])
        return (nets, moments, world), (metrics.mean((0, 1)), episodes)

    keys = jax.random.split(key, num_updates)
    (nets, _, _), (metrics, episodes) = jax.lax.scan(update, (nets, moments, world), (keys, jnp.arange(num_updates)))
    return nets, metrics, episodes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total", type=int, default=20_480)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    num_updates = options.total // (STEPS * ENVS)
    _, _, episodes = train(jax.random.key(options.seed), num_updates)
    number, length = episodes[-max(1, num_updates // SHARE_OF_LAST) :].sum(0)
    print(json.dumps({"num_steps": num_updates * STEPS * ENVS, "mean_length": float(length / jnp.maximum(1, number))}))


if __name__ == "__main__":
    main()
