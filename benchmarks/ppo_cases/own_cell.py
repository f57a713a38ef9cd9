"""PPO with a recurrent cell written by hand, on a vector of gymnasium environments; one rollout under no_grad()."""

import sys

import gymnasium as gym
import numpy as np
import torch
from torch import nn

seed, num_updates = int(sys.argv[1]), int(sys.argv[2])
num_envs, num_steps, width, lr = 8, 32, 24, 2e-3
torch.manual_seed(seed)


class Recall(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cue, self.count = int(self.np_random.integers(2)), 0
        self.length = int(self.np_random.integers(3, 7))
        return np.array([2.0 * self.cue - 1.0, 0.0, 1.0], dtype=np.float32), {}

    def step(self, action):
        self.count += 1
        is_end = self.count >= self.length
        look = np.array([0.0, float(self.count == self.length - 1), 0.0], dtype=np.float32)
        return look, float(action == self.cue) if is_end else 0.0, is_end, False, {}


class Cell(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gates = nn.Linear(size + width, 4 * width)

    def forward(self, x, state):
        h, c = state
        i, f, g, o = self.gates(torch.cat([x, h], -1)).chunk(4, -1)
        c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


def start_again(state, done):
    keep = (1.0 - done).unsqueeze(1)
    return state[0] * keep, state[1] * keep


envs = gym.vector.SyncVectorEnv([Recall] * num_envs, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
cell, actor, critic = Cell(3), nn.Linear(width, 2), nn.Linear(width, 1)
actor_optimizer = torch.optim.Adam([*cell.parameters(), *actor.parameters()], lr=lr)
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=5e-3)
x = torch.as_tensor(envs.reset(seed=seed)[0])
state = (torch.zeros(num_envs, width), torch.zeros(num_envs, width))

for update in range(num_updates):
    first, rows = state, []
    with torch.no_grad():
        for t in range(num_steps):
            state = cell(x, state)
            logp = actor(state[0]).log_softmax(-1)
            action = torch.multinomial(logp.exp(), 1)
            value = critic(state[0]).squeeze(1)
            step_x, reward, terminated, truncated, _ = envs.step(action.squeeze(1).numpy())
            done = torch.as_tensor(terminated | truncated).float()
            rows.append((x, action, logp.gather(1, action).squeeze(1), value, torch.as_tensor(reward).float(), done))
            x, state = torch.as_tensor(step_x), start_again(state, done)
        following = critic(cell(x, state)[0]).squeeze(1)
    X, U, old, V, R, D = map(torch.stack, zip(*rows))
    A, carried = torch.zeros_like(R), torch.zeros(num_envs)
    for t in reversed(range(num_steps)):
        mask = 1.0 - D[t]
        carried = R[t] + 0.95 * following * mask - V[t] + 0.95 * 0.9 * mask * carried
        A[t], following = carried, V[t]
    targets = A + V
    A = (A - A.mean()) / (A.std() + 1e-8)
    for epoch in range(4):
        for mb in torch.randperm(num_envs).chunk(2):
            s, news, values, entropies = (first[0][mb], first[1][mb]), [], [], []
            for t in range(num_steps):
                s = cell(X[t][mb], s)
                logp = actor(s[0]).log_softmax(-1)
                news.append(logp.gather(1, U[t][mb]).squeeze(1))
                entropies.append(-(logp.exp() * logp).sum(-1))
                values.append(critic(s[0].detach()).squeeze(1))
                s = start_again(s, D[t][mb])
            ratio = torch.exp(torch.stack(news) - old[:, mb])
            a = A[:, mb]
            actor_loss = -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
            actor_loss = actor_loss - 0.01 * torch.stack(entropies).mean()
            actor_optimizer.zero_grad()
            actor_loss.backward()
            actor_optimizer.step()
            critic_loss = ((torch.stack(values) - targets[:, mb]) ** 2).mean()
            critic_optimizer.zero_grad()
            critic_loss.backward()
            critic_optimizer.step()
