"""PPO in one file on a vector of gymnasium environments, in the form that most single-file PPO have."""

import sys

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

seed, num_updates = int(sys.argv[1]), int(sys.argv[2])
num_envs, num_steps, num_epochs, num_minibatches = 8, 64, 4, 4
gamma, gae_lambda, clip, ent_coef, vf_coef, max_norm, lr = 0.99, 0.95, 0.2, 0.01, 0.5, 0.5, 2.5e-3
np.random.seed(seed)
torch.manual_seed(seed)


class Pole(gym.Env):
    """A pole on a cart."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,))
    action_space = gym.spaces.Discrete(2)
    limit = 200

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.uniform(-0.05, 0.05, 4)
        self.count = 0
        return self.state.astype(np.float32), {}

    def step(self, action):
        x, v, angle, spin = self.state
        force = 10.0 if action == 1 else -10.0
        cos, sin = np.cos(angle), np.sin(angle)
        pull = (force + 0.05 * spin**2 * sin) / 1.1
        turn = (9.8 * sin - cos * pull) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        push = pull - 0.05 * turn * cos / 1.1
        self.state = np.array([x + 0.02 * v, v + 0.02 * push, angle + 0.02 * spin, spin + 0.02 * turn])
        self.count += 1
        fell = bool(abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.2095)
        reward = 1.0
        return self.state.astype(np.float32), reward, fell, self.count >= self.limit, {}


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


envs = gym.vector.SyncVectorEnv([Pole for _ in range(num_envs)])
agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=lr, eps=1e-5)
obs = torch.zeros(num_steps, num_envs, 4)
actions = torch.zeros(num_steps, num_envs)
logprobs = torch.zeros(num_steps, num_envs)
rewards = torch.zeros(num_steps, num_envs)
dones = torch.zeros(num_steps, num_envs)
values = torch.zeros(num_steps, num_envs)
next_obs = torch.tensor(envs.reset(seed=seed)[0])
next_done = torch.zeros(num_envs)

for update in range(num_updates):
    for t in range(num_steps):
        obs[t] = next_obs
        dones[t] = next_done
        with torch.no_grad():
            action, logprob, _, value = agent.get_action_and_value(next_obs)
        values[t] = value.flatten()
        actions[t] = action
        logprobs[t] = logprob
        step_obs, reward, terminations, truncations, _ = envs.step(action.numpy())
        rewards[t] = torch.tensor(reward)
        next_obs = torch.tensor(step_obs)
        next_done = torch.tensor(np.logical_or(terminations, truncations), dtype=torch.float32)

    with torch.no_grad():
        next_value = agent.get_value(next_obs).reshape(1, -1)
        advantages = torch.zeros_like(rewards)
        last = 0
        for t in reversed(range(num_steps)):
            nonterminal = 1.0 - (next_done if t == num_steps - 1 else dones[t + 1])
            following = next_value if t == num_steps - 1 else values[t + 1]
            delta = rewards[t] + gamma * following * nonterminal - values[t]
            advantages[t] = last = delta + gamma * gae_lambda * nonterminal * last
        returns = advantages + values

    b_obs, b_actions, b_logprobs = obs.reshape(-1, 4), actions.reshape(-1), logprobs.reshape(-1)
    b_advantages, b_returns, b_values = advantages.reshape(-1), returns.reshape(-1), values.reshape(-1)
    size = num_envs * num_steps
    for epoch in range(num_epochs):
        order = np.random.permutation(size)
        for start in range(0, size, size // num_minibatches):
            mb = order[start : start + size // num_minibatches]
            _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb], b_actions[mb])
            logratio = newlogprob - b_logprobs[mb]
            ratio = logratio.exp()
            with torch.no_grad():
                approx_kl = ((ratio - 1) - logratio).mean()
            mb_advantages = b_advantages[mb]
            mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)
            pg_loss1 = -mb_advantages * ratio
            pg_loss2 = -mb_advantages * torch.clamp(ratio, 1 - clip, 1 + clip)
            pg_loss = torch.max(pg_loss1, pg_loss2).mean()
            newvalue = newvalue.view(-1)
            v_loss = 0.5 * ((newvalue - b_returns[mb]) ** 2).mean()
            entropy_loss = entropy.mean()
            loss = pg_loss - ent_coef * entropy_loss + vf_coef * v_loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), max_norm)
            optimizer.step()
