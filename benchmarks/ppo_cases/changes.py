"""Faults that are seeded into the programs of this folder, and healthy variants of them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Edits of a program. `causes`: the codes that name a fault; empty for a healthy variant."""

    program: str
    name: str
    edits: tuple[tuple[str, str], ...] = ()
    causes: frozenset[str] = frozenset()
    is_fault: bool = True

    def apply(self, source: str) -> str:
        for old, new in self.edits:
            if source.count(old) < 1:
                raise SystemExit(f"{self.program}.py does not contain {old!r}, which {self.name} replaces")
            source = source.replace(old, new)
        return source


def _faults(program: str, *rows: tuple[str, str, tuple[tuple[str, str], ...]]) -> list[Change]:
    return [
        Change(program=program, name=name, causes=frozenset(causes.split()), edits=edits)
        for name, causes, edits in rows
    ]


def _healthy(program: str, *rows: tuple[str, tuple[tuple[str, str], ...]]) -> list[Change]:
    return [Change(program=program, name=name, edits=edits, is_fault=False) for name, edits in rows]


FAULTS = [
    *_faults(
        "vectorised",
        ("minus of the policy loss missing", "TT621", (("= -mb_advantages", "= mb_advantages"),)),
        ("bootstrap with the wrong sign", "TT605",
         (("rewards[t] + gamma * following", "rewards[t] - gamma * following"),)),
        ("old log-probabilities computed again", "TT619",
         (("logratio = newlogprob - b_logprobs[mb]", "logratio = newlogprob - newlogprob.detach()"),)),
        ("ratio inverted", "TT616", (("newlogprob - b_logprobs[mb]", "b_logprobs[mb] - newlogprob"),)),
        ("clip missing", "TT618",
         (("pg_loss = torch.max(pg_loss1, pg_loss2).mean()", "pg_loss = pg_loss1.mean()"),)),
        ("larger objective", "TT618", (("torch.max(pg_loss1, pg_loss2)", "torch.min(pg_loss1, pg_loss2)"),)),
        ("entropy minimised", "TT616", (("- ent_coef *", "+ ent_coef *"),)),
        ("value loss maximised", "TT616", (("+ vf_coef *", "- vf_coef *"),)),
        ("value error broadcast", "TT617", (("newvalue = newvalue.view(-1)", "pass"),)),
        ("value target with a gradient", "TT615",
         (("(newvalue - b_returns[mb])", "(newvalue - (b_advantages[mb] + newvalue))"),)),
        ("same minibatch again", "TT623",
         (("mb = order[start : start + size // num_minibatches]", "mb = np.arange(128)"),)),
        ("next observation stored", "TT604",
         (("        obs[t] = next_obs\n", ""), ("        rewards[t] =",
           "        obs[t] = torch.tensor(step_obs)\n        rewards[t] ="))),
        ("done mask dropped", "TT624",
         (("(next_done if t == num_steps - 1 else dones[t + 1])", "0.0"),)),
        ("done mask one step late", "TT624",
         (("(next_done if t == num_steps - 1 else dones[t + 1])", "dones[t]"),)),
        ("learning rate x 100", "TT602 TT603 TT608 TT612", (("0.5, 2.5e-3", "0.5, 2.5e-1"),)),
        ("discount 0", "TT625", (("= 0.99, 0.95, 0.2", "= 0.0, 0.95, 0.2"),)),
        ("rewards x 1,000", "TT605", (("reward = 1.0\n", "reward = 1000.0\n"),)),
        ("other action executed", "TT604",
         (("        actions[t] = action\n", "        actions[t] = (action + t) % 2\n"),)),
        ("policy not in the optimizer", "TT420 TT620",
         (("Adam(agent.parameters()", "Adam(agent.critic.parameters()"),)),
        ("advantages of other samples", "TT622",
         (("mb_advantages = b_advantages[mb]", "mb_advantages = b_advantages[: len(mb)]"),)),
        ("advantages flattened in another order", "TT622",
         (("advantages.reshape(-1), returns", "advantages.t().reshape(-1), returns"),)),
        ("dropout in the policy", "TT604",
         (("nn.Tanh(), nn.Linear(64, 2)", "nn.Tanh(), nn.Dropout(0.2), nn.Linear(64, 2)"),)),
        ("zero_grad missing", "TT422", (("            optimizer.zero_grad()\n", ""),)),
        ("advantages of the first rollout", "TT622",
         (("        returns = advantages + values\n",
           "        returns = advantages + values\n"
           "    kept = advantages if update == 0 else kept\n    advantages = kept\n"),)),
        ("advantages centred per sample", "TT611",
         (("(mb_advantages - mb_advantages.mean())", "(mb_advantages - mb_advantages.unsqueeze(1).mean(1))"),)),
        ("rewards never stored", "TT626", (("        rewards[t] = torch.tensor(reward)\n", ""),)),
    ),
    *_faults(
        "plain",
        ("value target with a gradient, two optimizers", "TT615",
         (("F.mse_loss(critic(X[mb]).squeeze(1), R[mb])",
           "F.mse_loss(critic(X[mb]).squeeze(1), A[mb] + 0.9 * critic(X[mb]).squeeze(1))"),)),
        ("action clipped after its log-probability", "TT604",
         (("next_x, reward", "action = action.clamp(-0.3, 0.3)\n        next_x, reward"),)),
        ("policy step missing", "TT620", (("            policy_optimizer.step()\n", ""),)),
        ("minus of the policy loss missing, two optimizers", "TT621",
         (("policy_loss = -objective", "policy_loss = objective"),)),
        ("entropy minimised, continuous", "TT616", (("- ent_coef *", "+ ent_coef *"),)),
        ("one log-probability per dimension", "TT604 TT617",
         (("            logp = dist.log_prob(action).sum(1)\n", "            logp = dist.log_prob(action)[:, 0]\n"),)),
        ("learning rate of the policy x 100", "TT602 TT603 TT608 TT612", (("lr=1e-3", "lr=1e-1"),)),
        ("observation statistics change", "TT604",
         (("        return Normal", "        x = x * (1.0 + 0.3 * torch.is_grad_enabled())\n        return Normal"),)),
        ("critic from the wrong samples", "TT622", (("R[mb])", "R[torch.randperm(len(R))[: len(mb)]])"),)),
    ),
    *_faults(
        "recurrent",
        ("state never reset", "TT505", (("keep = (1.0 - done_now)", "keep = (1.0 - 0.0 * done_now)"),)),
        ("state reset in the rollout only", "TT604",
         (("keep = (1.0 - done_now)", "keep = (1.0 - done_now * (not torch.is_grad_enabled()))"),)),
        ("state after the rollout used", "TT604",
         (("state = (first_state[0][:, mb], first_state[1][:, mb])",
           "state = (next_state[0][:, mb], next_state[1][:, mb])"),)),
        ("environments mixed in the update", "TT604",
         (("obs[:, mb], state", "obs[:, torch.randperm(num_envs)[: len(mb)]], state"),)),
    ),
    *_faults(
        "tokens",
        ("tokens off by one", "TT604",
         (("ids[:, 1:, None]", "(ids[:, :-1, None] if torch.is_grad_enabled() else ids[:, 1:, None])"),)),
        ("old log-probabilities of the current policy", "TT619",
         (("torch.exp(new - old[mb])", "torch.exp(new - new.detach())"),)),
        ("groups of one", "TT611",
         (("length, group, num_prompts = 12, 11, 10, 8, 8", "length, group, num_prompts = 12, 11, 10, 1, 64"),
          (".std(1, keepdim=True)", ".std(1, keepdim=True, unbiased=False)"))),
        ("minus of the policy loss missing, tokens", "TT618 TT621",
         (("per_token = -torch.min", "per_token = torch.min"),)),
        ("learning rate x 50, tokens", "TT602 TT603 TT608 TT612",
         (("lr = 0.2, 0.04, 3, 2e-3", "lr = 0.2, 0.04, 3, 1e-1"),)),
        ("divergence rewarded", "TT616 TT608", (("+ beta * (torch", "- beta * (torch"),)),
    ),
    *_faults(
        "own_cell",
        ("own state never reset", "TT505", (("keep = (1.0 - done)", "keep = (1.0 - 0.0 * done)"),)),
        ("own state reset at every step", "TT506", (("keep = (1.0 - done)", "keep = (0.0 * done)"),)),
        ("own state not reset in the update", "TT604",
         (("                s = start_again(s, D[t][mb])\n", ""),)),
        ("cell not in the optimizer", "TT420 TT620",
         (("[*cell.parameters(), *actor.parameters()]", "actor.parameters()"),)),
        ("cell state grows", "TT502",
         (("torch.sigmoid(f + 1) * c", "1.6 * c"), ("integers(3, 7)", "integers(40, 60)"))),
        ("ratio without exp", "TT616",
         (("ratio = torch.exp(torch.stack(news) - old[:, mb])", "ratio = torch.stack(news) - old[:, mb]"),)),
    ),
    *_faults(
        "in_turns",
        ("ratio inverted, in turns", "TT616", (('torch.exp(logp - data["logp"])', 'torch.exp(data["logp"] - logp)'),)),
        ("ratio of itself, in turns", "TT619",
         (('torch.exp(logp - data["logp"])', "torch.exp(logp - logp.detach())"),)),
        ("nothing clipped, in turns", "TT618 TT602",
         (('torch.clamp(ratio, 1 - clip_ratio, 1 + clip_ratio) * data["adv"]', 'ratio * data["adv"]'),
          ("if kl > 1.5 * target_kl:", "if False:"))),
        ("critic's optimizer holds the policy", "TT420 TT427",
         (("vf_opt = torch.optim.Adam(vf.", "vf_opt = torch.optim.Adam(pi."),)),
        ("policy at a rate of 0, in turns", "TT425",
         (("(pi.parameters(), lr=1e-3)", "(pi.parameters(), lr=0.0)"),)),
    ),
    *_faults(
        "storage",
        ("masks left out, storage", "TT624",
         (("self.values[s + 1] * self.masks[s + 1]", "self.values[s + 1]"), ("tau * self.masks[s + 1]", "tau"))),
        ("rewards not stored", "TT626", (("        self.rewards[self.step].copy_(rewards)\n", ""),)),
        ("discount of 0", "TT625", (("next_value, 0.99, 0.95", "next_value, 0.0, 0.95"),)),
        ("same batch in each epoch", "TT623",
         (("for indices in sampler:", "for indices in [torch.randperm(T * P)[: T * P // num]] * num:"),)),
        ("advantages without a column", "TT617",
         (("advantages.view(-1, 1)[indices]", "advantages.view(-1)[indices]"),)),
        ("range of 10", "TT618", (("torch.clamp(ratio, 0.8, 1.2)", "torch.clamp(ratio, -9.0, 11.0)"),)),
        ("entropy times 3", "TT627", (("- entropy * 0.01", "- entropy * 3.0"),)),
        ("observation of the next step, storage", "TT604",
         (("self.obs[:-1].view(T * P, -1)[indices]", "self.obs[1:].reshape(T * P, -1)[indices]"),)),
    ),
]
HEALTHY = [
    *_healthy(
        "vectorised",
        ("as it is", ()),
        ("no entropy bonus",
         (("ent_coef, vf_coef, max_norm, lr = 0.99, 0.95, 0.2, 0.01",
           "ent_coef, vf_coef, max_norm, lr = 0.99, 0.95, 0.2, 0.0"),)),
        ("one epoch of one minibatch",
         (("num_epochs, num_minibatches = 8, 64, 4, 4", "num_epochs, num_minibatches = 8, 64, 1, 1"),)),
        ("advantages not normalised",
         (("            mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)\n",
           ""),)),
        ("smaller rewards, clipped values",
         (("reward = 1.0\n", "reward = 0.01\n"),
          ("            v_loss = 0.5 * ((newvalue - b_returns[mb]) ** 2).mean()\n",
           "            v_unclipped = (newvalue - b_returns[mb]) ** 2\n"
           "            v_clipped = b_values[mb] + torch.clamp(newvalue - b_values[mb], -clip, clip)\n"
           "            v_loss = 0.5 * torch.max(v_unclipped, (v_clipped - b_returns[mb]) ** 2).mean()\n"))),
        ("penalty on the KL divergence",
         (("pg_loss = torch.max(pg_loss1, pg_loss2).mean()",
           "pg_loss = pg_loss1.mean() + 0.5 * ((ratio - 1) - logratio).mean()"),)),
        ("discounted returns as targets",
         (("= 0.99, 0.95, 0.2", "= 0.99, 1.0, 0.2"),)),
        ("rewards normalised by the program",
         (("        rewards[t] = torch.tensor(reward)",
           "        spread = 1.0 + 0.02 * (update * num_steps + t) ** 0.5\n"
           "        rewards[t] = torch.tensor(reward) / spread"),)),
        ("stops at a target KL",
         (("                approx_kl =",
           "                if update and approx_kl > 0.015:\n"
           "                    continue\n                approx_kl ="),)),
        ("learning rate annealed",
         (("    with torch.no_grad():\n        next_value",
           "    optimizer.param_groups[0]['lr'] = lr * (1 - update / num_updates)\n"
           "    with torch.no_grad():\n        next_value"),)),
        ("compiled agent",
         (("agent = Agent()",
           "agent = Agent()\nagent.actor = torch.compile(agent.actor, backend='eager')"),)),
    ),
    *_healthy(
        "plain",
        ("as it is, continuous", ()),
        ("smooth L1", (("F.mse_loss", "F.smooth_l1_loss"),)),
        ("advantages from a separate estimate",
         (("    R = A + V\n", "    R = A + V\n    A = A + 0.3 * torch.randn_like(A)\n"),)),
    ),
    *_healthy("recurrent", ("as it is, recurrent", ()), ("larger episodes", (("integers(4, 8)", "integers(6, 12)"),))),
    *_healthy(
        "tokens",
        ("as it is, tokens", ()),
        ("no divergence term",
         (("beta, num_epochs, lr = 0.2, 0.04", "beta, num_epochs, lr = 0.2, 0.0"),)),
        ("not divided by the spread", ((" / (rewards.std(1, keepdim=True) + 1e-4)", ""),)),
    ),
    *_healthy(
        "own_cell",
        ("as it is, own cell", ()), ("longer episodes, own cell", (("integers(3, 7)", "integers(6, 12)"),)),
        ("slower, own cell", (("width, lr = 8, 32, 24, 2e-3", "width, lr = 8, 32, 24, 5e-4"),)),
    ),
    *_healthy(
        "in_turns",
        ("as it is, in turns", ()),
        ("slower, in turns",
         (("(pi.parameters(), lr=1e-3)", "(pi.parameters(), lr=3e-4)"),)),
    ),
    *_healthy(
        "storage",
        ("as it is, storage", ()), ("one epoch, storage", (("for e in range(4)", "for e in range(1)"),)),
        ("critic at half the weight, no entropy", (("value_loss * 0.5", "value_loss * 0.25"), ("0.01).b", "0.0).b"))),
    ),
]
