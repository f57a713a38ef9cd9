"""Decodes greedily until every row has ended."""

import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self, vocab=11, width=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.head = nn.Linear(width, vocab)

    def next_token(self, tokens):
        return self.head(self.embed(tokens).mean(dim=1)).argmax(dim=-1)

    def generate(self, tokens, eos=3, limit=6):
        done = torch.zeros(tokens.shape[0], dtype=torch.bool)
        for _ in range(limit):
            token = self.next_token(tokens)
            done |= token == eos
            tokens = torch.cat([tokens, token[:, None]], dim=1)
            if done.all():  # hazard: TT119
                break
        return tokens


torch.manual_seed(0)
decoder = Decoder()
generate = torch.compile(decoder.generate, backend="eager")
with torch.no_grad():
    for _ in range(2):
        generate(torch.randint(0, 11, (2, 4)))
