"""transformers' generate with a static cache and prompts of one length; the forward compiled with dynamic=True.

Best: automatic. There are only two shapes, the prompt and a token, so symbolic sizes gain nothing.
"""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.set_num_threads(1)
torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=256, n_embd=64, n_layer=1, n_head=2)).eval()
model.forward = torch.compile(model.forward, dynamic=True)
total = 0
with torch.no_grad():
    for _ in range(8):
        prompt = torch.randint(3, 256, (2, 12))
        tokens = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=40,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            cache_implementation="static",
        )
        total += int(tokens.sum())
print(f"total {total}")
