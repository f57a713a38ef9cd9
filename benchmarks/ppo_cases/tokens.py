"""Policy gradients on generated tokens: advantages relative to a group, a mask of padding, a reference model."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

seed, num_updates = int(sys.argv[1]), int(sys.argv[2])
vocabulary, end, length, group, num_prompts = 12, 11, 10, 8, 8
clip, beta, num_epochs, lr = 0.2, 0.04, 3, 2e-3
torch.manual_seed(seed)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 32)
        self.rnn = nn.GRU(32, 64, batch_first=True)
        self.head = nn.Linear(64, vocabulary)

    def forward(self, ids):
        return self.head(self.rnn(self.embedding(ids))[0])


def logprobs(model, ids):
    logits = model(ids[:, :-1])
    return F.log_softmax(logits, -1).gather(-1, ids[:, 1:, None]).squeeze(-1)


@torch.no_grad()
def generate(model, prompts):
    ids = prompts
    for _ in range(length):
        ids = torch.cat([ids, torch.multinomial(F.softmax(model(ids)[:, -1], -1), 1)], 1)
    has_ended = (ids[:, 1:] == end).long()
    return ids, (has_ended.cumsum(1) - has_ended == 0).float()


def reward(ids, mask):
    rises = (ids[:, 2:] >= ids[:, 1:-1]).float() * mask[:, 1:]
    return rises.sum(1) / 5.0 - 0.1 * (mask.sum(1) - 6).abs()


policy, reference = Model(), Model()
reference.load_state_dict(policy.state_dict())
reference.requires_grad_(False)
optimizer = torch.optim.AdamW(policy.parameters(), lr=lr)

for update in range(num_updates):
    prompts = torch.randint(0, 10, (num_prompts, 1)).repeat_interleave(group, 0)
    ids, mask = generate(policy, prompts)
    rewards = reward(ids, mask).view(num_prompts, group)
    advantages = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
    advantages = advantages.view(-1)
    with torch.no_grad():
        old, expected = logprobs(policy, ids), logprobs(reference, ids)
    for epoch in range(num_epochs):
        for mb in torch.randperm(len(ids)).split(32):
            new = logprobs(policy, ids[mb])
            ratio = torch.exp(new - old[mb])
            a = advantages[mb].unsqueeze(1)
            per_token = -torch.min(ratio * a, torch.clamp(ratio, 1 - clip, 1 + clip) * a)
            away = expected[mb] - new
            per_token = per_token + beta * (torch.exp(away) - away - 1)
            loss = (per_token * mask[mb]).sum() / mask[mb].sum()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
