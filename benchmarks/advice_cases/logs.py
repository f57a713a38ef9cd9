"""Printing, logging and warning inside of compiled code."""

from advice_cases.case import Case, Edit, Option

CASES: tuple[Case, ...] = (
    Case(
        name="print_shape_tuple",
        family="logs",
        cause="print of several things, one a tensor",
        program="""
import torch
from torch import nn


class VAE(nn.Module):
    def __init__(self, pixels=16, latent=3):
        super().__init__()
        self.encode, self.decode = nn.Linear(pixels, 2 * latent), nn.Linear(latent, pixels)

    def forward(self, image, noise):
        mean, log_variance = self.encode(image).chunk(2, dim=-1)
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1).mean()
        print("kl", (divergence, mean.shape))
        latent = mean + noise * (0.5 * log_variance).exp()
        return (self.decode(latent) - image).square().sum(-1).mean() + divergence


torch.manual_seed(0)
vae = VAE()
elbo = torch.compile(vae, backend="aot_eager")
optimizer = torch.optim.Adam(vae.parameters(), lr=1e-2)
for _ in range(4):
    loss = elbo(torch.randn(5, 16), torch.randn(5, 3))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"result {loss.item():.4f}")
""",
        codes=("TT101",),
        line='print("kl", (divergence, mean.shape))',
        never=r"reorderable_logging_functions",
        options=(
            Option(
                says=r"(?i)remove|move .*(out|after)|return",
                edits=(
                    Edit(old='        print("kl", (divergence, mean.shape))\n', new=""),
                ),
            ),
        ),
    ),
    Case(
        name="logger_in_helper",
        family="logs",
        cause="logger.info in a helper",
        program="""
import logging

import torch
from torch import nn

logger = logging.getLogger("trainer.diffusion")


def report_range(name, tensor):
    logger.info("%s in use, %d values", name, tensor.numel())
    return tensor


class Denoiser(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.inner, self.outer = nn.Linear(width + 1, 16), nn.Linear(16, width)

    def forward(self, noisy, time):
        hidden = self.inner(torch.cat([noisy, time[:, None]], dim=-1)).relu()
        return self.outer(report_range("hidden", hidden))


torch.manual_seed(0)
denoise = torch.compile(Denoiser(), backend="eager")
with torch.no_grad():
    total = sum(denoise(torch.randn(4, 8), torch.rand(4)).sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT102",),
        line='logger.info("%s in use, %d values", name, tensor.numel())',
        options=(
            Option(
                says=r"(?i)move|remove|outside|is_compiling",
                edits=(
                    Edit(old='    logger.info("%s in use, %d values", name, tensor.numel())\n', new=""),
                ),
            ),
            Option(
                says=r"ignore_logging_functions|ignore_logger_methods",
                edits=(
                    Edit(
                        old="torch.manual_seed(0)",
                        new="torch._dynamo.config.ignore_logging_functions.add(logging.Logger.info)\ntorch.manual_seed(0)",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="warn_deprecated",
        family="logs",
        cause="warnings.warn in forward",
        program="""
import warnings

import torch
from torch import nn


class LegacyAttention(nn.Module):
    def __init__(self, width=8, heads=2, scale=None):
        super().__init__()
        self.qkv, self.heads, self.scale = nn.Linear(width, 3 * width), heads, scale

    def forward(self, x):
        if self.scale is not None:
            warnings.warn("scale is deprecated, use temperature", DeprecationWarning, stacklevel=2)
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        out = nn.functional.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), scale=self.scale
        )
        return out.transpose(1, 2).flatten(2)


torch.manual_seed(0)
attention = torch.compile(LegacyAttention(scale=0.25), backend="eager")
with torch.no_grad():
    total = sum(attention(torch.randn(2, 5, 8)).sum() for _ in range(4))
print(f"result {total.item():.5f}")
""",
        codes=("TT102",),
        line='warnings.warn("scale is deprecated, use temperature", DeprecationWarning, stacklevel=2)',
        never=r"reorderable_logging_functions",
        options=(
            Option(
                says=r"(?i)__init__|move|remove|outside|is_compiling",
                edits=(
                    Edit(
                        old="""        if self.scale is not None:
            warnings.warn("scale is deprecated, use temperature", DeprecationWarning, stacklevel=2)
        q, k, v""",
                        new="        q, k, v",
                    ),
                ),
            ),
        ),
    ),
    Case(
        name="progress_write",
        family="logs",
        cause="tqdm-like write of the project inside of the step",
        program="""
import sys

import torch
from torch import nn


class ProgressBar:
    def __init__(self, total):
        self.total, self.done = total, 0

    def write(self, text):
        sys.stderr.write(text + "\\n")

    def update(self):
        self.done += 1


class SuperResolution(nn.Module):
    def __init__(self, bar):
        super().__init__()
        self.bar, self.conv = bar, nn.Conv2d(1, 4, 3, padding=1)

    def forward(self, image):
        detail = nn.functional.pixel_shuffle(self.conv(image), 2)
        self.bar.write("upscaled")
        return detail.clamp(0, 1)


torch.manual_seed(0)
bar = ProgressBar(4)
upscale = torch.compile(SuperResolution(bar), backend="eager")
total = 0.0
with torch.no_grad():
    for _ in range(bar.total):
        total += upscale(torch.rand(1, 1, 4, 4)).sum().item()
        bar.update()
print(f"result {total:.5f}")
""",
        codes=("TT106", "TT112", "TT102", "TT101", "TT111"),
        line=('sys.stderr.write(text + "\\n")', 'self.bar.write("upscaled")'),
        never=r"reorderable_logging_functions",
        options=(
            Option(
                says=r"(?i)before or after|move|outside|after the (compiled )?call|before the (compiled )?call",
                edits=(
                    Edit(old='        self.bar.write("upscaled")\n', new=""),
                    Edit(old="        bar.update()\n", new='        bar.write("upscaled")\n        bar.update()\n'),
                ),
            ),
        ),
    ),
)
