"""A fix uses a name only if the line at which it is to be written has that name."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.diagnosis.recompiles.test_finding import AUTOMATIC, PLACE, SOURCES, STATIC, events_of, findings_of, size
from torchtriage.findings.model import Finding
from torchtriage.recording.events import CompileCall, StackEntry
from torchtriage.recording.recording import Source

SITE = "/v/lib/python3.11/site-packages"
MODULE = StackEntry(path=f"{SITE}/torch/nn/modules/module.py", line=1, function="_call_impl")
FORWARD = StackEntry(path=PLACE["path"], line=PLACE["line"], function=PLACE["function"])
LINE = StackEntry(path="/p/train.py", line=140, function="main")
FACTS = {"your_roots": ["/p"]}


def finding_at(
    line: str, *reasons: str, library: str = "", function: str = "train", call: CompileCall = AUTOMATIC,
    trained_before: bool = True,
) -> Finding:
    """The finding of a function forward(self, x, k) that the user reaches from `line`, through a library or not."""
    between = (StackEntry(path=f"{SITE}/{library}", line=7, function=function),) if library else ()
    sources = {**SOURCES, ("/p/train.py", 140): Source(first_line=140, lines=(line,))}
    sources["/p/train.py", AUTOMATIC.line or 0] = Source(first_line=20, lines=("net = torch.compile(Net())",))
    stack = (LINE, *between, MODULE, FORWARD)
    start, *recompiles = events_of(*reasons, stack=stack)
    events = [call, replace(start, stack=stack if trained_before else stack[:1]), *recompiles]
    [finding] = findings_of(events, sources, **FACTS)
    return finding


@pytest.mark.parametrize(("line", "value"), [
    ("y = net(x, 3)", "x"),
    ("loss = criterion(net(batch, 3), target)", "batch"),
    ("loss = net(batch['ids'], 3).mean()", "batch['ids']"),
    ("loss = net(k=3, x=batch.images)", "batch.images"),
])
def test_the_fix_has_the_name_of_the_call(line: str, value: str) -> None:
    fix = finding_at(line, size(4, 5)).fix.text
    assert f"maybe_mark_dynamic({value}, 0) before the call at train.py:140" in fix


@pytest.mark.parametrize("line", [
    "y = net(**batch)", "y = net(*batch)", "y = net(data[:n], 3)", "y = net(x.to(device), 3)", "y = net(x.T, 3)",
    "trainer.train()", "y = net(data[i], 3)", "y = net(a, 3) + net(b, 3)", "y = one(a, 3) + other(b, 3)", "y = (",
])
def test_a_line_without_a_name_for_the_value_gets_a_fix_in_words(line: str) -> None:
    fix = finding_at(line, size(4, 5)).fix.text
    assert "maybe_mark_dynamic on the tensor that this size comes from" in fix


@pytest.mark.parametrize(("reason", "named", "in_words"), [
    ("tensor 'x' dtype mismatch. expected Float, actual Long", "b = b.to(torch.float32)",
     "cast the value that Net.forward calls x to torch.float32"),
    ("tensor 'x' stride mismatch at index 0. expected 4, actual 1", "b = b.contiguous()",
     "call .contiguous() on the value that Net.forward calls x"),
    ("tensor 'x' rank mismatch. expected 2, actual 1", "b.unsqueeze(0)",
     "unsqueeze(0) on the value that Net.forward calls x"),
    ("len(x) == 3", "torch.stack(b)", "pad the value that Net.forward calls x"),
    ("list(dict.keys(x))[0] == 'a'", "torch.stack(list(b.values()))", "torch.stack on the values of the dict"),
    (size(4, 1), "mark_unbacked(b, 0)", "pad to at least 2"),
    ("x == 3", "torch.tensor(b)", "make it a tensor;"),
])
def test_every_remedy_for_an_argument_has_both_forms(reason: str, named: str, in_words: str) -> None:
    assert named in finding_at("y = net(b, 3)", reason).fix.text
    fix = finding_at("y = net(**batch)", reason).fix.text
    assert in_words in fix
    assert named not in fix


def test_an_attribute_of_self_is_named_only_where_self_is_the_same() -> None:
    reason = size(4, 5, name="self.cache")
    assert "maybe_mark_dynamic(self.cache, 0)" in finding_at("y = self.forward(x, 3)", reason).fix.text
    assert "self.cache" not in finding_at("y = net(x, 3)", reason).fix.text


def test_a_line_that_reaches_the_call_through_a_library_has_no_name_for_it() -> None:
    fix = finding_at("engine.run(x, 3)", size(4, 5), library="ignite/engine.py").fix.text
    assert "on the tensor that this size comes from, before the call reached from train.py:140" in fix


def test_the_trainer_of_transformers_is_told_about_its_collator_and_arguments() -> None:
    trainer: Any = {"library": "transformers/trainer.py", "function": "training_step"}
    length = finding_at("trainer.train()", size(4, 5, dim=1), **trainer)
    assert "DataCollatorWithPadding(tokenizer, padding='max_length'" in length.fix.text
    last = finding_at("trainer.train()", size(8, 2), **trainer)
    assert last.fix.text.endswith("TrainingArguments(..., dataloader_drop_last=True)")
    assert "mark_dynamic" not in length.fix.text + last.fix.text


@pytest.mark.parametrize(("reason", "fields"), [
    (size(8, 16), {"function": "training_step"}),                           # a larger batch is not the last one
    (size(8, 2), {"function": "prediction_step"}),                          # the evaluation has another batch size
    (size(8, 2), {"function": "training_step", "trained_before": False}),   # the first call was not the trainer's
])
def test_a_size_that_is_not_of_the_last_batch_is_not_cured_by_dropping_it(reason: str, fields: Any) -> None:
    fix = finding_at("trainer.train()", reason, library="transformers/trainer.py", **fields).fix.text
    assert "dataloader_drop_last" not in fix


def test_a_minibatch_of_stable_baselines_is_cured_where_the_algorithm_is_made() -> None:
    fix = finding_at("model.learn(256)", size(32, 28), library="stable_baselines3/ppo/ppo.py").fix.text
    assert "a multiple of batch_size" in fix


def compiled_in(library: str, dynamic: bool | None) -> CompileCall:
    return CompileCall(
        path=f"{SITE}/{library}", line=2073, target="Net.forward", target_path=STATIC.target_path,
        target_line=STATIC.target_line, dynamic=dynamic,
    )


def test_a_static_compile_by_accelerate_is_ended_in_its_settings() -> None:
    reasons = [size(n, n + 1, dim=1) for n in (4, 5, 6)]
    call = compiled_in("accelerate/accelerator.py", dynamic=False)
    fix = finding_at("y = net(x, 3)", *reasons, call=call).fix.text
    assert fix.startswith("set ACCELERATE_DYNAMO_USE_DYNAMIC=true in the environment")
    assert "accelerator.py" not in fix


def test_a_static_compile_by_another_library_is_not_to_be_edited_there() -> None:
    reasons = [size(n, n + 1, dim=1) for n in (4, 5, 6)]
    fix = finding_at("y = net(x, 3)", *reasons, call=compiled_in("speedy/core.py", dynamic=False)).fix.text
    assert fix.startswith("have speedy compile without dynamic=False, or torch._dynamo.maybe_mark_dynamic(x, 1)")
