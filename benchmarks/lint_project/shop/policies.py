"""Actors and critics of reinforcement learning."""

import time

import torch
from common.norms import timed_call
from torch import nn
from torch.distributions import Normal

GLOBAL_STEP = 0
HISTORY = []


class Policy(nn.Module):
    def __init__(self, num_inputs=4, num_actions=2, deterministic=False):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(num_inputs, 16), nn.Tanh(), nn.Linear(16, 16))
        self.mean = nn.Linear(16, num_actions)
        self.log_std = nn.Parameter(torch.zeros(num_actions))
        self.deterministic = deterministic
        self.num_calls = 0
        self.num_actions = num_actions

    def forward(self, obs):
        self.num_calls += 1  # hazard: TT206
        hidden = self.trunk(obs)
        mean, std = self.mean(hidden), self.log_std.exp()
        if self.deterministic:  # harmless
            return mean
        return mean + std * torch.randn_like(mean)

    def act(self, obs):
        action = self.forward(obs)
        return action.argmax(-1).item()  # harmless

    def evaluate(self, obs, actions):
        mean = self.mean(self.trunk(obs))
        dist = Normal(mean, self.log_std.exp())
        return dist.log_prob(actions).sum(-1), dist.entropy().sum(-1)  # harmless


class Recurrent(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.encoder = nn.Linear(dim, 8)
        self.rnn = nn.GRU(8, 8)
        self.cell = nn.GRUCell(8, 8)

    def forward(self, obs):
        hidden, _ = self.rnn(self.encoder(obs))  # hazard: TT117
        return hidden

    def step(self, obs, hidden):
        return self.cell(self.encoder(obs), hidden)  # harmless


class Memory:
    """Not a module: a buffer that grows outside of compiled code."""

    def __init__(self):
        self.items = []
        self.count = 0

    def add(self, item):
        self.items.append(item)  # harmless
        self.count += 1  # harmless

    def mean(self):
        return torch.stack(self.items).mean().item()  # harmless


@torch.compile(backend="eager")
def advantage(rewards, values, gamma: float):
    steps = []
    running = torch.zeros_like(rewards[0])
    for t in reversed(range(rewards.shape[0])):  # harmless
        running = rewards[t] + gamma * running
        steps.append(running)  # harmless
    return torch.stack(steps[::-1]) - values


@torch.compile(backend="eager")
def decayed(loss):
    return loss * 0.99 ** GLOBAL_STEP  # hazard: TT220


@torch.compile(backend="eager")
def update(policy, optimizer, obs, returns):
    loss = (policy.evaluate(obs, returns)[0] - returns.mean()).pow(2).mean()
    loss.backward()  # hazard: TT109
    return loss.detach()


@torch.compile(backend="eager")
def finish(optimizer, loss):
    optimizer.step()  # hazard: TT118
    return loss * 2


def advance():
    global GLOBAL_STEP
    GLOBAL_STEP += 1  # harmless


def main():
    torch.manual_seed(0)
    policy = Policy()
    compiled = torch.compile(policy, backend="eager")
    critic = torch.compile(Recurrent(), backend="eager")
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.01)
    memory = Memory()
    began = time.time()  # harmless
    for step in range(12):
        obs = torch.randn(5, 4)
        action = compiled(obs)
        memory.add(action.detach().mean())
        advantage(torch.randn(6, 5), torch.zeros(6, 5), 0.99)
        loss, _ = timed_call(decayed, action.mean())
        loss.backward()  # harmless
        critic(torch.randn(3, 2, 4))
        finish(optimizer, loss.detach())
        update(policy, optimizer, obs, torch.randn(5, 2))
        optimizer.zero_grad()  # harmless
        advance()
        if step % 5 == 0:  # harmless
            print(f"{step} {memory.mean():.3f} {time.time() - began:.1f}")  # harmless
    print(policy.act(torch.randn(4)), Recurrent().step(torch.randn(1, 4), torch.zeros(1, 8)).shape)  # harmless


if __name__ == "__main__":
    main()
