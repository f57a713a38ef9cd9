"""PPO with an LSTM on a memory task of gymnasium: the sign shown at the start is to be named at the end."""

import sys

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

seed, num_updates = int(sys.argv[1]), int(sys.argv[2])
num_envs, num_steps, num_epochs, num_groups = 16, 32, 4, 4
gamma, lam, clip, ent_coef = 0.95, 0.95, 0.2, 0.01
np.random.seed(seed)
torch.manual_seed(seed)


class Memory(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.sign, self.count = int(self.np_random.integers(2)), 0
        self.length = int(self.np_random.integers(4, 8))
        return self.look(), {}

    def look(self):
        shown = 2.0 * self.sign - 1.0 if self.count == 0 else 0.0
        return np.array([shown, float(self.count == self.length - 1), 1.0], dtype=np.float32)

    def step(self, action):
        self.count += 1
        is_end = self.count == self.length
        reward = 0.1 * float(self.np_random.random())
        if is_end:
            reward += 1.0 if action == self.sign else -1.0
        return self.look(), reward, is_end, False, {}


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 32)
        self.actor, self.critic = nn.Linear(32, 2), nn.Linear(32, 1)

    def states(self, x, state, done):
        outputs = []
        for x_now, done_now in zip(x, done):
            keep = (1.0 - done_now).view(1, -1, 1)
            output, state = self.lstm(x_now.unsqueeze(0), (keep * state[0], keep * state[1]))
            outputs.append(output)
        return torch.cat(outputs).flatten(0, 1), state

    def forward(self, x, state, done, action=None):
        hidden, state = self.states(x, state, done)
        dist = Categorical(logits=self.actor(hidden))
        action = dist.sample() if action is None else action
        return action, dist.log_prob(action), dist.entropy(), self.critic(hidden).squeeze(-1), state


envs = gym.vector.SyncVectorEnv([Memory] * num_envs, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3)
next_obs, next_done = torch.tensor(envs.reset(seed=seed)[0]), torch.zeros(num_envs)
next_state = (torch.zeros(1, num_envs, 32), torch.zeros(1, num_envs, 32))

for update in range(num_updates):
    first_state = next_state
    obs, actions, old, rewards, dones, values = [], [], [], [], [], []
    for t in range(num_steps):
        with torch.no_grad():
            action, logp, _, value, next_state = agent(next_obs[None], next_state, next_done[None])
        obs.append(next_obs)
        dones.append(next_done)
        step_obs, reward, terminated, truncated, _ = envs.step(action.numpy())
        actions.append(action)
        old.append(logp)
        values.append(value)
        rewards.append(torch.tensor(reward, dtype=torch.float32))
        next_obs = torch.tensor(step_obs)
        next_done = torch.tensor(terminated | truncated, dtype=torch.float32)
    obs, actions, old, rewards, dones, values = map(torch.stack, (obs, actions, old, rewards, dones, values))
    with torch.no_grad():
        following = agent(next_obs[None], next_state, next_done[None])[3]
        advantages, carried = torch.zeros_like(rewards), torch.zeros(num_envs)
        for t in reversed(range(num_steps)):
            mask = 1.0 - (dones[t + 1] if t + 1 < num_steps else next_done)
            delta = rewards[t] + gamma * following * mask - values[t]
            carried = delta + gamma * lam * mask * carried
            advantages[t] = carried
            following = values[t]
        returns = advantages + values

    for epoch in range(num_epochs):
        for mb in torch.randperm(num_envs).chunk(num_groups):
            state = (first_state[0][:, mb], first_state[1][:, mb])
            flat = [one[:, mb].flatten() for one in (actions, old, advantages, returns)]
            mb_actions, mb_old, mb_advantages, mb_returns = flat
            _, logp, entropy, value, _ = agent(obs[:, mb], state, dones[:, mb], mb_actions)
            ratio = (logp - mb_old).exp()
            mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)
            policy_loss = -torch.min(ratio * mb_advantages, ratio.clamp(1 - clip, 1 + clip) * mb_advantages).mean()
            loss = policy_loss + 0.5 * nn.functional.mse_loss(value, mb_returns) - ent_coef * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
