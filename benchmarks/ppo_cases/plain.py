"""PPO in one file without gymnasium: continuous actions, an environment of tensors, two optimizers."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal

seed, num_updates = int(sys.argv[1]), int(sys.argv[2])
num_envs, horizon, num_epochs, size_of_minibatch = 16, 32, 4, 128
gamma, lam, clip, ent_coef = 0.95, 0.95, 0.2, 0.001
torch.manual_seed(seed)


class Point:
    """A point with inertia that should come to the origin; an episode ends when it leaves the field, or in time."""

    def __init__(self, count):
        self.count = count
        self.place, self.speed, self.age = torch.zeros(count, 2), torch.zeros(count, 2), torch.zeros(count)
        self.restart(torch.ones(count, dtype=torch.bool))

    def restart(self, which):
        self.place[which] = torch.rand(int(which.sum()), 2) * 2 - 1
        self.speed[which] = 0.0
        self.age[which] = 0.0

    def look(self):
        return torch.cat([self.place, self.speed], dim=1)

    def step(self, action):
        self.speed = 0.9 * self.speed + 0.1 * action.clamp(-1, 1)
        self.place = self.place + 0.2 * self.speed
        self.age += 1
        reward = 1.0 - self.place.norm(dim=1)
        done = (self.place.abs().max(dim=1).values > 1.5) | (self.age >= 50)
        self.restart(done)
        return self.look(), reward, done.float()


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.mean = nn.Linear(32, 2)
        self.log_std = nn.Parameter(torch.full((2,), -0.5))

    def forward(self, x):
        return Normal(self.mean(self.body(x)), self.log_std.exp().expand(len(x), 2))


env = Point(num_envs)
policy, critic = Policy(), nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
policy_optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=3e-3)
x = env.look()

for update in range(num_updates):
    seen, done_actions, old, gained, ended, predicted = [], [], [], [], [], []
    for t in range(horizon):
        with torch.no_grad():
            dist = policy(x)
            action = dist.sample()
            logp = dist.log_prob(action).sum(1)
            value = critic(x).squeeze(1)
        next_x, reward, done = env.step(action)
        seen.append(x)
        done_actions.append(action)
        old.append(logp)
        gained.append(reward)
        ended.append(done)
        predicted.append(value)
        x = next_x

    with torch.no_grad():
        after = critic(x).squeeze(1)
    advantage, carried = [], torch.zeros(num_envs)
    for t in reversed(range(horizon)):
        mask = 1.0 - ended[t]
        delta = gained[t] + gamma * after * mask - predicted[t]
        carried = delta + gamma * lam * mask * carried
        advantage.insert(0, carried)
        after = predicted[t]
    X, U, O = torch.cat(seen), torch.cat(done_actions), torch.cat(old)
    V, A = torch.cat(predicted), torch.cat(advantage)
    R = A + V
    A = (A - A.mean()) / (A.std() + 1e-8)

    for epoch in range(num_epochs):
        for mb in torch.randperm(len(X)).split(size_of_minibatch):
            dist = policy(X[mb])
            logp = dist.log_prob(U[mb]).sum(1)
            ratio = torch.exp(logp - O[mb])
            objective = torch.min(ratio * A[mb], ratio.clamp(1 - clip, 1 + clip) * A[mb])
            policy_loss = -objective.mean() - ent_coef * dist.entropy().sum(1).mean()
            policy_optimizer.zero_grad()
            policy_loss.backward()
            policy_optimizer.step()
            value_loss = F.mse_loss(critic(X[mb]).squeeze(1), R[mb])
            critic_optimizer.zero_grad()
            value_loss.backward()
            critic_optimizer.step()
