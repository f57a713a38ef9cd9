"""A Trainer with torch_compile whose last batch is smaller."""

import sys

import torch
from transformers import Trainer, TrainingArguments

CURED = "--cured" in sys.argv


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 2)

    def forward(self, pixels, labels):
        logits = self.head(pixels)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


torch.manual_seed(0)
data = [{"pixels": torch.randn(8), "labels": n % 2} for n in range(42)]
trainer = Trainer(
    model=Classifier(), train_dataset=data,
    args=TrainingArguments(
        output_dir="out", per_device_train_batch_size=8, num_train_epochs=2, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True, torch_compile=True, torch_compile_backend="eager",
        dataloader_drop_last=CURED,
    ),
)
trainer.train()
