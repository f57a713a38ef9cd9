"""A compiled UNet of diffusers that gets its timestep as a Python int."""

import sys

import torch
from diffusers import DDPMScheduler, UNet2DModel

CURED = "--cured" in sys.argv

torch.manual_seed(0)
unet = UNet2DModel(
    sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8,), norm_num_groups=4,
    down_block_types=("DownBlock2D",), up_block_types=("UpBlock2D",), add_attention=False,
)
unet = torch.compile(unet, backend="eager")
scheduler = DDPMScheduler(num_train_timesteps=100)
scheduler.set_timesteps(4)
image = torch.randn(1, 1, 8, 8)
with torch.no_grad():
    for time in scheduler.timesteps:
        step = torch.tensor(int(time)) if CURED else int(time)
        noise = unet(image, step).sample
        image = scheduler.step(noise, time, image).prev_sample
print(f"result {image.sum().item():.5f}")
