"""Images of two sizes go through one compiled function, texts of every length through another, both with dynamic=True.

Best: one policy per function. The index arithmetic of shifted windows takes twice as long with unknown sizes, of which
there are only two; texts have too many lengths to compile each.
"""

import torch
from torch import Tensor
from torch.nn.functional import gelu

WINDOW, CHANNELS, WIDTH, NUM_PAIRS = 8, 32, 64, 2000
SIDES = (64, 96)


def see(image_HWC: Tensor) -> Tensor:
    """Shifted windows, one after the other, each pixel normalized."""
    height, width, channels = image_HWC.shape
    shifted = image_HWC.roll((-WINDOW // 2, -WINDOW // 2), (0, 1))
    pixels = (
        shifted.view(height // WINDOW, WINDOW, width // WINDOW, WINDOW, channels).transpose(1, 2).reshape(-1, channels)
    )
    return gelu((pixels - pixels.mean(1, keepdim=True)) * torch.rsqrt(pixels.var(1, keepdim=True) + 1e-5))


def read(text_TD: Tensor) -> Tensor:
    """What the words say beyond their mean."""
    return torch.tanh(text_TD - text_TD.mean(0)).sum()


torch.set_num_threads(1)
seeing = torch.compile(see, dynamic=True)
reading = torch.compile(read, dynamic=True)
generator = torch.Generator().manual_seed(0)
images = [torch.rand(side, side, CHANNELS, generator=generator) for side in SIDES]
total = 0.0
for number in range(NUM_PAIRS):
    length = int(torch.randint(4, 200, (), generator=generator))
    total += seeing(images[number % len(images)])[0, 0].item()
    total += reading(torch.randn(length, WIDTH, generator=generator)).item()
print(f"total {total:.3f}")
