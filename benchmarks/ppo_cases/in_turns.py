"""PPO whose policy and critic are trained in turns, with one environment and log-probabilities by hand."""
import sys

import gymnasium
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SEED, epochs = int(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(SEED)
np.random.seed(SEED)


def mlp(sizes):
    layers = []
    for i in range(len(sizes) - 1):
        layers.append(nn.Linear(sizes[i], sizes[i + 1]))
        if i < len(sizes) - 2:
            layers.append(nn.Tanh())
    return nn.Sequential(*layers)


def discount_cumsum(x, discount):
    out = np.zeros(len(x), dtype=np.float32)
    running = 0.0
    for i in range(len(x) - 1, -1, -1):
        running = x[i] + discount * running
        out[i] = running
    return out


class Buffer:
    def __init__(self, size, gamma=0.99, lam=0.97):
        self.obs = np.zeros((size, 4), np.float32)
        self.act = np.zeros(size, np.int64)
        self.rew = np.zeros(size, np.float32)
        self.val = np.zeros(size, np.float32)
        self.logp = np.zeros(size, np.float32)
        self.adv = np.zeros(size, np.float32)
        self.ret = np.zeros(size, np.float32)
        self.gamma, self.lam = gamma, lam
        self.ptr, self.start = 0, 0

    def store(self, obs, act, rew, val, logp):
        i = self.ptr
        self.obs[i], self.act[i], self.rew[i], self.val[i], self.logp[i] = obs, act, rew, val, logp
        self.ptr += 1

    def finish_path(self, last_val):
        s = slice(self.start, self.ptr)
        rews = np.append(self.rew[s], last_val)
        vals = np.append(self.val[s], last_val)
        deltas = rews[:-1] + self.gamma * vals[1:] - vals[:-1]
        self.adv[s] = discount_cumsum(deltas, self.gamma * self.lam)
        self.ret[s] = discount_cumsum(rews, self.gamma)[:-1]
        self.start = self.ptr

    def get(self):
        self.ptr = self.start = 0
        adv = (self.adv - self.adv.mean()) / (self.adv.std() + 1e-8)
        data = dict(obs=self.obs, act=self.act, ret=self.ret, adv=adv, logp=self.logp)
        return {k: torch.as_tensor(v.copy()) for k, v in data.items()}


pi, vf = mlp([4, 64, 64, 2]), mlp([4, 64, 64, 1])
pi_opt = torch.optim.Adam(pi.parameters(), lr=1e-3)
vf_opt = torch.optim.Adam(vf.parameters(), lr=1e-3)
clip_ratio, train_pi_iters, train_v_iters, target_kl, epoch_steps = 0.2, 20, 20, 0.015, 500


def logp_of(obs, act):
    logp_all = F.log_softmax(pi(obs), dim=-1)
    return logp_all.gather(-1, act[:, None]).squeeze(-1), logp_all


def loss_pi(data):
    logp, logp_all = logp_of(data["obs"], data["act"])
    ratio = torch.exp(logp - data["logp"])
    clip_adv = torch.clamp(ratio, 1 - clip_ratio, 1 + clip_ratio) * data["adv"]
    loss = -(torch.min(ratio * data["adv"], clip_adv)).mean()
    ent = -(logp_all.exp() * logp_all).sum(-1).mean()
    kl = (data["logp"] - logp).mean().item()
    return loss - 0.001 * ent, kl


def loss_v(data):
    return ((vf(data["obs"]).squeeze(-1) - data["ret"]) ** 2).mean()


env = gymnasium.make("CartPole-v1")
buf = Buffer(epoch_steps)
o, _ = env.reset(seed=SEED)
for epoch in range(epochs):
    for t in range(epoch_steps):
        with torch.no_grad():
            obs = torch.as_tensor(o, dtype=torch.float32)
            logp_all = F.log_softmax(pi(obs), dim=-1)
            a = torch.multinomial(logp_all.exp(), 1).item()
            v = vf(obs).item()
            logp = logp_all[a].item()
        o2, r, term, trunc, _ = env.step(a)
        buf.store(o, a, r, v, logp)
        o = o2
        if term or trunc or t == epoch_steps - 1:
            if term:
                last = 0.0
            else:
                with torch.no_grad():
                    last = vf(torch.as_tensor(o, dtype=torch.float32)).item()
            buf.finish_path(last)
            o, _ = env.reset()
    data = buf.get()
    for i in range(train_pi_iters):
        pi_opt.zero_grad()
        loss, kl = loss_pi(data)
        if kl > 1.5 * target_kl:
            break
        loss.backward()
        pi_opt.step()
    for i in range(train_v_iters):
        vf_opt.zero_grad()
        lv = loss_v(data)
        lv.backward()
        vf_opt.step()
