"""Libraries that call torch.compile for the program: what to write in the program, by library or call.

Each remedy was applied with the real package; those that need no process group are in
`tests/integration/test_frameworks.py`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from torchtriage.recording.events import StackEntry

_SITE = r"/(?:site|dist)-packages"
_CARRIED_OUT = re.compile(r"/torch/|/lib/python3\.\d+/[^/]+\.py$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A library whose own code cannot be compiled with the user's module, by the files of that code."""

    subject: str
    path: re.Pattern[str]
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMaker:
    """A library that makes the batches and calls the compiled function with them, by the function that trains."""

    path: re.Pattern[str]
    function: str           # evaluation may have other sizes, which are set elsewhere
    batch: str = ""         # how its user leaves out a smaller last batch
    length: str = ""        # how its user keeps the other sizes the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """A library that calls torch.compile for its user."""

    path: re.Pattern[str]
    dynamic: str            # how its user sets dynamic=True


_FRAMEWORKS = (
    Framework(
        subject="the forward of DistributedDataParallel", path=re.compile(r"/torch/nn/parallel/distributed\.py$"),
        remedy="compile the module inside: DDP(torch.compile(module)) instead of torch.compile(DDP(module))",
    ),
    Framework(
        subject="code of LightningModule", path=re.compile(rf"{_SITE}/(?:lightning/pytorch|pytorch_lightning)/"),
        remedy=(
            "compile the network inside the LightningModule instead of the LightningModule, which has its hooks and "
            "self.log compiled too: in its __init__, self.net = torch.compile(self.net), where net is the attribute "
            "that holds the network"
        ),
    ),
)
_BATCH_MAKERS = (
    BatchMaker(
        path=re.compile(rf"{_SITE}/transformers/trainer\.py$"), function="training_step",
        batch="TrainingArguments(..., dataloader_drop_last=True)",
        length="pad every batch to one length where the data collator is made, for text "
               "DataCollatorWithPadding(tokenizer, padding='max_length', max_length=...)",
    ),
    BatchMaker(
        path=re.compile(rf"{_SITE}/stable_baselines3/ppo/ppo\.py$"), function="train",
        batch="make n_steps times the number of environments a multiple of batch_size where the algorithm is made",
    ),
)
_COMPILERS = (
    Compiler(
        path=re.compile(rf"{_SITE}/accelerate/"),
        dynamic="set ACCELERATE_DYNAMO_USE_DYNAMIC=true in the environment, or TorchDynamoPlugin(dynamic=True)",
    ),
)


def framework_of(stack: Sequence[StackEntry]) -> Framework | None:
    """The library whose own code cannot be compiled.

    The innermost of its lines has only torch and the standard library below it.
    """
    for entry in reversed(stack):
        path = entry.path.replace("\\", "/")
        for framework in _FRAMEWORKS:
            if framework.path.search(path):
                return framework
        if not _CARRIED_OUT.search(path):
            return None
    return None


def batch_maker(callers: Sequence[StackEntry]) -> BatchMaker | None:
    """The library that makes the batches, if it is among the callers of the compiled function."""
    for entry in reversed(callers):
        for maker in _BATCH_MAKERS:
            if entry.function == maker.function and maker.path.search(entry.path.replace("\\", "/")):
                return maker
    return None


def compiler_at(path: str) -> Compiler | None:
    """The library that calls torch.compile in this file."""
    return next((compiler for compiler in _COMPILERS if compiler.path.search(path.replace("\\", "/"))), None)
