"""A small training with a Monitor in it: two calls in the loop. Run it as it is, or under `torchtriage run`."""

import sys

import torch

from torchtriage.telemetry import Monitor


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    target = torch.randn(8, 1)
    sinks = sys.argv[1:] or ["stdout"]      # or recording, jsonl:run.jsonl, tensorboard:runs
    with Monitor(model, optimizer, groups={"first": model[0], "last": model[2]}, sinks=sinks) as monitor:
        for _ in range(100):
            x = torch.randn(64, 8)
            loss = (model(x) - x @ target).pow(2).mean()
            loss.backward()
            monitor.after_backward(loss)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            monitor.step({"lr": optimizer.param_groups[0]["lr"]})
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
