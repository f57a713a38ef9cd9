"""A LightningModule compiled as a whole: its training_step logs."""

import sys

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

CURED, EAGER = "--cured" in sys.argv, "--eager" in sys.argv


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
        if CURED:
            self.net = torch.compile(self.net, backend="eager")

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = torch.nn.functional.cross_entropy(self.net(images), labels)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


lightning.seed_everything(0, verbose=False)
data = DataLoader(TensorDataset(torch.randn(32, 16), torch.randint(0, 2, (32,))), batch_size=8)
classifier = Classifier()
model = classifier if CURED or EAGER else torch.compile(classifier, backend="eager")
trainer = lightning.Trainer(
    max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, data)
print(f"result {trainer.callback_metrics['train_loss'].item():.5f}")
