"""PPO of other packages on CartPole with the same parameters: prints the number of steps.

`sb3`, `recurrent` and `sbx` are the real packages (stable-baselines3, sb3-contrib, sbx-rl); `loop` is a plain
single-file loop in the style of CleanRL, written here because the package with that name is years older than gymnasium.
"""

import argparse
import json

import gymnasium
import numpy as np
import torch
from torch import nn

ENVS, STEPS, BATCH, EPOCHS = 8, 32, 256, 20
GAMMA, LAMBDA, RATE, CLIP, VALUE, MAX_NORM = 0.98, 0.8, 1e-3, 0.2, 0.5, 0.5


class NoVelocity(gymnasium.ObservationWrapper):
    """CartPole that hides both velocities."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        space = env.observation_space
        self.observation_space = gymnasium.spaces.Box(space.low[[0, 2]], space.high[[0, 2]])

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation[[0, 2]]


def stable_baselines(who: str, total: int, seed: int) -> int:
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    settings = {
        "n_steps": STEPS,
        "batch_size": BATCH,
        "gamma": GAMMA,
        "gae_lambda": LAMBDA,
        "n_epochs": EPOCHS,
        "ent_coef": 0.0,
        "seed": seed,
        "learning_rate": lambda left: left * RATE,
        "clip_range": lambda left: left * CLIP,
        "device": "cpu",
    }
    if who == "recurrent":
        from sb3_contrib import RecurrentPPO

        env = VecNormalize(make_vec_env("CartPole-v1", ENVS, seed, wrapper_class=NoVelocity))
        kwargs = {
            "lstm_hidden_size": 64,
            "enable_critic_lstm": True,
            "net_arch": {"pi": [64], "vf": [64]},
            "ortho_init": False,
            "activation_fn": nn.ReLU,
        }
        return RecurrentPPO("MlpLstmPolicy", env, policy_kwargs=kwargs, **settings).learn(total).num_timesteps
    if who == "sbx":
        from sbx import PPO
    else:
        from stable_baselines3 import PPO
    return PPO("MlpPolicy", make_vec_env("CartPole-v1", ENVS, seed), **settings).learn(total).num_timesteps


def plain_loop(total: int, seed: int) -> int:
    """One file, one loop, eager, statistics read from every minibatch. T steps, N environments."""
    torch.manual_seed(seed)
    envs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * ENVS)

    def net(outputs: int) -> nn.Sequential:
        return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))

    actor, critic = net(2), net(1)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=RATE, eps=1e-5)
    seen = torch.zeros(STEPS, ENVS, 4)
    actions, log_probs, rewards, dones, values = (torch.zeros(STEPS, ENVS) for _ in range(5))
    observation = torch.tensor(envs.reset(seed=seed)[0])
    done = torch.zeros(ENVS)
    num_updates = total // (STEPS * ENVS)
    for update in range(num_updates):
        left = 1 - update / num_updates
        optimizer.param_groups[0]["lr"] = left * RATE
        for t in range(STEPS):
            seen[t], dones[t] = observation, done
            with torch.no_grad():
                choice = torch.distributions.Categorical(logits=actor(observation))
                action = choice.sample()
                actions[t], log_probs[t], values[t] = action, choice.log_prob(action), critic(observation).flatten()
            new, reward, ended, cut, _ = envs.step(action.numpy())
            rewards[t] = torch.tensor(reward)
            observation, done = torch.tensor(new), torch.tensor(ended | cut).float()
        with torch.no_grad():
            after, last = critic(observation).flatten(), torch.zeros(ENVS)
            advantages = torch.zeros_like(rewards)
            for t in reversed(range(STEPS)):
                alive = 1 - (done if t == STEPS - 1 else dones[t + 1])
                following = after if t == STEPS - 1 else values[t + 1]
                advantages[t] = last = (
                    rewards[t] + GAMMA * following * alive - values[t] + GAMMA * LAMBDA * alive * last
                )
            returns = advantages + values
        for _ in range(EPOCHS):
            for rows in torch.randperm(STEPS * ENVS).split(BATCH):
                choice = torch.distributions.Categorical(logits=actor(seen.reshape(-1, 4)[rows]))
                change = choice.log_prob(actions.reshape(-1)[rows]) - log_probs.reshape(-1)[rows]
                ratio = change.exp()
                with torch.no_grad():
                    ((ratio - 1) - change).mean().item()
                    ((ratio - 1).abs() > CLIP * left).float().mean().item()
                gain = advantages.reshape(-1)[rows]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                loss = -torch.min(gain * ratio, gain * ratio.clamp(1 - CLIP * left, 1 + CLIP * left)).mean()
                loss = (
                    loss
                    + VALUE * (critic(seen.reshape(-1, 4)[rows]).flatten() - returns.reshape(-1)[rows]).square().mean()
                )
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, MAX_NORM)
                optimizer.step()
    return num_updates * STEPS * ENVS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("who", choices=("sb3", "recurrent", "sbx", "loop"))
    parser.add_argument("--total", type=int, default=20_480)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.who == "loop":
        steps = plain_loop(options.total, options.seed)
    else:
        steps = stable_baselines(options.who, options.total, options.seed)
    print(json.dumps({"num_steps": steps}))


if __name__ == "__main__":
    main()
