"""A variational autoencoder and a GAN: several losses, several optimizers."""

from fault_cases.variant import COMPILED, Program

VAE = Program(
    "vae",
    """\
import torch
from torch import nn

torch.manual_seed(SEED)
shapes = (torch.randn(6, 20) > 0).float()

def batch(n=32):
    x = shapes[torch.randint(0, 6, (n,))]
    return (x - (torch.rand(n, 20) < 0.05).float()).abs()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 32), nn.Tanh())
        self.mean, self.logvar = nn.Linear(32, 4), nn.Linear(32, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 20))

    def forward(self, x):
        hidden = self.encoder(x)
        mean, logvar = self.mean(hidden), self.logvar(hidden)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        return self.decoder(z), mean, logvar

model = Net()
forward = model
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(1, 301):
    x = batch()
    logits, mean, logvar = forward(x)
    reconstruction = nn.functional.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
    kl = -0.5 * (1 + logvar - mean.square() - logvar.exp()).sum(-1).mean()
    loss = reconstruction + min(1.0, step / 100) * kl
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
)

VAE.healthy("no annealing", ("min(1.0, step / 100) * kl", "kl"))
VAE.healthy("compiled", COMPILED)
VAE.fault("the posterior collapses", "none", ("min(1.0, step / 100) * kl", "100.0 * kl"))
VAE.fault(
    "a variance that overflows",
    "TT401",
    (
        "mean, logvar = self.mean(hidden), self.logvar(hidden)",
        "mean, logvar = self.mean(hidden), 90 + self.logvar(hidden)",
    ),
    contract=True,
)
VAE.fault(
    "a sigmoid before the loss with logits",
    "TT431",
    ("nn.Tanh(), nn.Linear(32, 20))", "nn.Tanh(), nn.Linear(32, 20), nn.Sigmoid())"),
    contract=True,
)
VAE.fault(
    "the encoder is not in the graph",
    "TT421",
    ("        hidden = self.encoder(x)\n", "        with torch.no_grad():\n            hidden = self.encoder(x)\n"),
    contract=True,
)
VAE.fault("pixels from 0 to 255", "none", ("(x - (torch", "255 * (x - (torch"))
VAE.fault(
    "one step with a learning rate of 10",
    "TT408 TT404 TT414",
    (
        "    optimizer.step()\n",
        "    optimizer.param_groups[0]['lr'] = 10.0 if step == 211 else 2e-3\n    optimizer.step()\n",
    ),
    step=211,
)
VAE.fault(
    "the logarithm of a saturated probability",
    "TT401 TT402",
    (
        'nn.functional.binary_cross_entropy_with_logits(logits, x, reduction="sum")',
        "-((1 + 30 * (step > 90)) * logits).sigmoid().pow(1 + 9 * (step > 90)).mul(x).add(1 - x).log().sum()",
    ),
    step=91,
)
VAE.fault(
    "the KL term has the wrong sign",
    "TT434 TT401",
    ("loss = reconstruction + min(1.0, step / 100) * kl", "loss = reconstruction - 3 * kl"),
)

GAN = Program(
    "gan",
    """\
import torch
from torch import nn

torch.manual_seed(SEED)

def real(n=32):
    angle = torch.rand(n) * 6.283
    return torch.stack([angle.cos(), angle.sin()], -1) + 0.05 * torch.randn(n, 2)

generator = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2))
critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.999))
bce = nn.functional.binary_cross_entropy_with_logits
ones, zeros = torch.ones(32, 1), torch.zeros(32, 1)
for step in range(1, 251):
    fake = generator(torch.randn(32, 8))
    of_critic.zero_grad()
    critic_loss = bce(critic(real()), ones) + bce(critic(fake.detach()), zeros)
    critic_loss.backward()
    of_critic.step()
    of_generator.zero_grad()
    generator_loss = bce(critic(fake), ones)
    generator_loss.backward()
    of_generator.step()
""",
)

GAN.healthy(
    "Wasserstein",
    (
        "bce(critic(real()), ones) + bce(critic(fake.detach()), zeros)",
        "critic(fake.detach()).mean() - critic(real()).mean()",
    ),
    ("bce(critic(fake), ones)", "-critic(fake).mean()"),
    (
        "    of_critic.step()\n",
        "    of_critic.step()\n    for p in critic.parameters():\n        p.data.clamp_(-0.1, 0.1)\n",
    ),
)
GAN.healthy(
    "BatchNorm in both",
    ("nn.Linear(8, 32), nn.LeakyReLU(0.2)", "nn.Linear(8, 32), nn.BatchNorm1d(32), nn.LeakyReLU(0.2)"),
    ("nn.Linear(2, 32), nn.LeakyReLU(0.2)", "nn.Linear(2, 32), nn.BatchNorm1d(32), nn.LeakyReLU(0.2)"),
)
GAN.fault(
    "the generator's loss is detached",
    "TT421",
    ("bce(critic(fake), ones)", "bce(critic(fake.detach()), ones)"),
    contract=True,
)
GAN.fault(
    "both optimizers have the critic",
    "TT420",
    ("Adam(generator.parameters()", "Adam(critic.parameters()"),
    contract=True,
)
GAN.fault("the critic's gradients are not cleared", "TT422", ("    of_critic.zero_grad()\n", ""), contract=True)
GAN.fault(
    "the critic learns a hundred times faster",
    "TT408",
    ("Adam(critic.parameters(), lr=1e-3", "Adam(critic.parameters(), lr=0.1"),
)
GAN.fault(
    "the critic ends with a sigmoid", "TT431", ("nn.Linear(32, 1))", "nn.Linear(32, 1), nn.Sigmoid())"), contract=True
)
GAN.fault(
    "the labels of the critic are swapped",
    "none",
    (
        "bce(critic(real()), ones) + bce(critic(fake.detach()), zeros)",
        "bce(critic(real()), zeros) + bce(critic(fake.detach()), zeros)",
    ),
)
GAN.fault(
    "the generator steps before its backward pass",
    "TT427",
    (
        "    generator_loss.backward()\n    of_generator.step()\n",
        "    of_generator.step()\n    generator_loss.backward()\n",
    ),
    contract=True,
)
