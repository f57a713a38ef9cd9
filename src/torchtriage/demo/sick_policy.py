"""A small policy in its training loop, with torch.compile problems that are common in real programs."""

import torch
from torch import nn

torch.manual_seed(0)


class Policy(nn.Module):
    """Two layers, a step counter, and a value head that clips by looking at the data."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 32)
        self.actor = nn.Linear(32, 4)
        self.critic = nn.Linear(32, 1)
        self.num_calls = 0

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.num_calls += 1                         # an int on a module: a new constant at every call
        hidden = torch.tanh(self.body(obs))
        return self.actor(hidden), self.critic(hidden).squeeze(-1)


def advantage(value: torch.Tensor, reward: torch.Tensor) -> torch.Tensor:
    raw = reward - value
    if raw.abs().max() > 3:                         # a branch on data
        raw = raw.clamp(-3, 3)
    scale = raw.std().item()                        # a tensor becomes a Python number
    return raw / (scale + 1e-6)


def loss_of(logits: torch.Tensor, value: torch.Tensor, action: torch.Tensor, reward: torch.Tensor) -> torch.Tensor:
    adv = advantage(value, reward)
    log_prob = torch.log_softmax(logits, -1).gather(1, action[:, None]).squeeze(1)
    print(end="")                                   # a print, the classic
    return -(log_prob * adv.detach()).mean() + 0.5 * (reward - value).pow(2).mean()


def collate(rewards: list[torch.Tensor]) -> torch.Tensor:
    total = rewards[0]
    for reward in rewards[1:]:                      # unrolled: one compile for every length
        total = torch.cat([total, reward])
    return total


def train(num_steps: int = 60) -> None:
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    # The eager backend has the same breaks and recompiles as inductor, in a hundredth of the time.
    act = torch.compile(policy, backend="eager")
    compiled_loss = torch.compile(loss_of, backend="eager", dynamic=False)
    compiled_collate = torch.compile(collate, backend="eager")
    for step in range(num_steps):
        batch = 16 + step % 12                      # ragged batches under dynamic=False
        obs = torch.randn(batch, 8)
        logits, value = act(obs)
        action = torch.distributions.Categorical(logits=logits.detach()).sample()
        pieces = torch.randn(batch).split(batch // (2 + step % 3))
        loss = compiled_loss(logits, value, action, compiled_collate(list(pieces)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    train()
