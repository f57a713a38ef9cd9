"""Norms of all parameters are read one by one in each step."""

import torch
from torch import nn


def grad_report(model):
    report = {}
    for name, param in model.named_parameters():
        if param.grad is None:
            continue
        report[name] = param.grad.norm().cpu().item()  # hazard: TT701
    return report


def fit(model, data):
    optimizer = torch.optim.Adam(model.parameters())
    reports = []
    for x, y in data:
        optimizer.zero_grad(set_to_none=True)
        loss = (model(x) - y).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        reports.append(grad_report(model))  # hazard: TT707
        optimizer.step()
    return reports


fit(nn.Linear(3, 1), [(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(2)])
