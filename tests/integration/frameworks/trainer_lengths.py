"""A Trainer with torch_compile: each batch is padded to the length of its longest text."""

import sys

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import DataCollatorWithPadding, PreTrainedTokenizerFast, Trainer, TrainingArguments

CURED = "--cured" in sys.argv
WORDS = {"[PAD]": 0, "[UNK]": 1, **{f"w{n}": n + 2 for n in range(98)}}


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(100, 16)
        self.head = torch.nn.Linear(16, 2)

    def forward(self, input_ids, attention_mask, labels):
        mask = attention_mask.unsqueeze(-1)
        hidden = (self.embedding(input_ids) * mask).sum(1) / mask.sum(1)
        logits = self.head(hidden)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


torch.manual_seed(0)
words = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", model_input_names=["input_ids", "attention_mask"],
)
lengths = [length for length in (5, 9, 14, 22, 31) for _ in range(4)]
texts = [" ".join(f"w{(7 * n + k) % 98}" for k in range(length)) for n, length in enumerate(lengths)]
data = [{**tokenizer(text), "labels": n % 2} for n, text in enumerate(texts)]
padding = {"padding": "max_length", "max_length": 32} if CURED else {}
trainer = Trainer(
    model=Classifier(), train_dataset=data, data_collator=DataCollatorWithPadding(tokenizer, **padding),
    args=TrainingArguments(
        output_dir="out", per_device_train_batch_size=4, num_train_epochs=1, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True, torch_compile=True, torch_compile_backend="eager",
    ),
)
print(f"result {trainer.train().training_loss:.5f}")
