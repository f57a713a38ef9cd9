"""flex_attention at a number of keys that is 8 above a multiple of 16: `flex_rows.py LENGTH`."""

import os
import sys

os.environ["ATEN_CPU_CAPABILITY"] = "avx2"      # with AVX-512 the rows are right, with AVX2 in some runs only

import torch
from torch.nn.attention.flex_attention import flex_attention

torch.manual_seed(0)
length = int(sys.argv[1]) if len(sys.argv) > 1 else 24
attend = torch.compile(flex_attention)
q, k, v = (torch.randn(1, 2, length, 16) for _ in range(3))
with torch.no_grad():
    print(attend(q, k, v).sum().item())
