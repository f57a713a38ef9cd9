"""PPO with a rollout storage, a generator of minibatches, a shared base and a schedule."""
import sys

import gymnasium as gym
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data.sampler import BatchSampler, SubsetRandomSampler

seed, num_updates = int(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(seed)
P, T, U = 8, 64, num_updates


def init(m, gain=1.0):
    nn.init.orthogonal_(m.weight, gain)
    nn.init.zeros_(m.bias)
    return m


class Policy(nn.Module):
    def __init__(self, n_obs, n_act):
        super().__init__()
        self.base = nn.Sequential(
            init(nn.Linear(n_obs, 64), 2**0.5), nn.Tanh(), init(nn.Linear(64, 64), 2**0.5), nn.Tanh())
        self.critic_linear = init(nn.Linear(64, 1))
        self.dist = init(nn.Linear(64, n_act), 0.01)

    def act(self, x):
        feats = self.base(x)
        logits = self.dist(feats)
        action = torch.distributions.Categorical(logits=logits).sample().unsqueeze(-1)
        return self.critic_linear(feats), action, F.log_softmax(logits, -1).gather(-1, action)

    def value(self, x):
        return self.critic_linear(self.base(x))

    def evaluate(self, x, action):
        feats = self.base(x)
        logp = F.log_softmax(self.dist(feats), -1)
        entropy = -(logp.exp() * logp).sum(-1).mean()
        return self.critic_linear(feats), logp.gather(-1, action), entropy


class Storage:
    def __init__(self, n_obs):
        self.obs = torch.zeros(T + 1, P, n_obs)
        self.rewards = torch.zeros(T, P, 1)
        self.values = torch.zeros(T + 1, P, 1)
        self.returns = torch.zeros(T + 1, P, 1)
        self.logps = torch.zeros(T, P, 1)
        self.actions = torch.zeros(T, P, 1, dtype=torch.long)
        self.masks = torch.ones(T + 1, P, 1)
        self.step = 0

    def insert(self, obs, actions, logps, values, rewards, masks):
        self.obs[self.step + 1].copy_(obs)
        self.actions[self.step].copy_(actions)
        self.logps[self.step].copy_(logps)
        self.values[self.step].copy_(values)
        self.rewards[self.step].copy_(rewards)
        self.masks[self.step + 1].copy_(masks)
        self.step = (self.step + 1) % T

    def after_update(self):
        self.obs[0].copy_(self.obs[-1])
        self.masks[0].copy_(self.masks[-1])

    def compute_returns(self, next_value, gamma, tau):
        self.values[-1] = next_value
        gae = 0
        for s in reversed(range(T)):
            delta = self.rewards[s] + gamma * self.values[s + 1] * self.masks[s + 1] - self.values[s]
            gae = delta + gamma * tau * self.masks[s + 1] * gae
            self.returns[s] = gae + self.values[s]

    def batches(self, advantages, num):
        sampler = BatchSampler(SubsetRandomSampler(range(T * P)), T * P // num, drop_last=True)
        for indices in sampler:
            yield (
                self.obs[:-1].view(T * P, -1)[indices], self.actions.view(-1, 1)[indices],
                self.values[:-1].view(-1, 1)[indices], self.returns[:-1].view(-1, 1)[indices],
                self.logps.view(-1, 1)[indices], advantages.view(-1, 1)[indices],
            )


envs = gym.make_vec("CartPole-v1", num_envs=P, vectorization_mode="sync")
policy = Policy(4, 2)
optimizer = torch.optim.Adam(policy.parameters(), lr=2e-3, eps=1e-5)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda u: 1 - u / U)
store = Storage(4)
store.obs[0].copy_(torch.from_numpy(envs.reset(seed=seed)[0]))
for u in range(U):
    for s in range(T):
        with torch.no_grad():
            value, action, logp = policy.act(store.obs[s])
        obs, reward, term, trunc, _ = envs.step(action.squeeze(-1).numpy())
        masks = 1.0 - torch.from_numpy(term | trunc).float().unsqueeze(-1)
        store.insert(torch.from_numpy(obs), action, logp, value, torch.from_numpy(reward).float().unsqueeze(-1), masks)
    with torch.no_grad():
        next_value = policy.value(store.obs[-1])
    store.compute_returns(next_value, 0.99, 0.95)
    advantages = store.returns[:-1] - store.values[:-1]
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-5)
    for e in range(4):
        for o, a, v_old, ret, logp_old, adv in store.batches(advantages, 4):
            values, logp, entropy = policy.evaluate(o, a)
            ratio = torch.exp(logp - logp_old)
            action_loss = -torch.min(ratio * adv, torch.clamp(ratio, 0.8, 1.2) * adv).mean()
            v_clip = v_old + (values - v_old).clamp(-0.2, 0.2)
            value_loss = 0.5 * torch.max((values - ret).pow(2), (v_clip - ret).pow(2)).mean()
            optimizer.zero_grad()
            (value_loss * 0.5 + action_loss - entropy * 0.01).backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()
    schedule.step()
    store.after_update()
