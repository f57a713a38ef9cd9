"""An edge filter over the levels of an image pyramid, compiled with dynamic=True because the sizes differ.

Best: the two sizes marked, which keeps the channels static. With so few images, three static compiles do not pay off.
"""

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, pad

NUM_LEVELS, NUM_IMAGES = 3, 400


def edges(image_CHW: Tensor) -> Tensor:
    """Blurred, then the size of the gradient, thinned where a neighbour is steeper."""
    p = pad(image_CHW, (1, 1, 1, 1), mode="replicate")
    blurred = (p[:, :-2] + 2 * p[:, 1:-1] + p[:, 2:]) / 4
    blurred = (blurred[..., :-2] + 2 * blurred[..., 1:-1] + blurred[..., 2:]) / 4
    p = pad(blurred, (1, 1, 1, 1), mode="replicate")
    steep = ((p[:, 1:-1, 2:] - p[:, 1:-1, :-2]).square() + (p[:, 2:, 1:-1] - p[:, :-2, 1:-1]).square()).sqrt()
    p = pad(steep, (1, 1, 1, 1))
    return torch.where((steep >= p[:, 1:-1, 2:]) & (steep >= p[:, 2:, 1:-1]), steep, 0.0)


torch.set_num_threads(1)
find_edges = torch.compile(edges, dynamic=True)
generator = torch.Generator().manual_seed(0)
total = 0.0
for _ in range(NUM_IMAGES):
    image_CHW = torch.rand(3, 128, 128, generator=generator)
    for _ in range(NUM_LEVELS):
        total += find_edges(image_CHW).mean().item()
        image_CHW = avg_pool2d(image_CHW, 2)
print(f"total {total:.3f}")
