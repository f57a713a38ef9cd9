"""PPO of Stable-Baselines3 with a compiled evaluate_actions: the last minibatch of a rollout is smaller."""

import sys

import torch
from stable_baselines3 import PPO

CURED = "--cured" in sys.argv

model = PPO("MlpPolicy", "CartPole-v1", n_steps=64 if CURED else 60, batch_size=32, n_epochs=1, device="cpu", seed=0)
model.policy.evaluate_actions = torch.compile(model.policy.evaluate_actions, backend="eager")
model.learn(128)
