"""Message passing over small graphs: the numbers of nodes and of edges differ from graph to graph.

Best: dynamic=True, or both sizes marked. Two dimensions vary independently; automatic shapes make them symbolic one
after the other.
"""

import torch
from torch import Tensor, nn

WIDTH = 32


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.message, self.update = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x_NW: Tensor, source_E: Tensor, target_E: Tensor) -> Tensor:
        messages_EW = torch.relu(self.message(torch.cat((x_NW[source_E], x_NW[target_E]), 1)))
        degrees_N = x_NW.new_ones(x_NW.shape[0]).index_add(0, target_E, x_NW.new_ones(target_E.shape[0]))
        received_NW = torch.zeros_like(x_NW).index_add(0, target_E, messages_EW) / degrees_N[:, None]
        return x_NW + torch.tanh(self.update(torch.cat((x_NW, received_NW), 1)))


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, x_NW: Tensor, source_E: Tensor, target_E: Tensor) -> Tensor:
        for layer in self.layers:
            x_NW = layer(x_NW, source_E, target_E)
        return x_NW.mean(0)


torch.set_num_threads(1)
torch.manual_seed(0)
network = torch.compile(Network().eval())
generator = torch.Generator().manual_seed(0)
total = 0.0
with torch.no_grad():
    for _ in range(1200):
        num_nodes, num_edges = (int(torch.randint(low, 4 * low, (), generator=generator)) for low in (20, 60))
        source_E, target_E = torch.randint(0, num_nodes, (2, num_edges), generator=generator)
        total += network(torch.randn(num_nodes, WIDTH, generator=generator), source_E, target_E).square().mean().item()
print(f"total {total:.4f}")
