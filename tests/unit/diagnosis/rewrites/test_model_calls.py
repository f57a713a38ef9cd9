"""The edit that compiles the model instead of the function that calls it."""

import pytest

from torchtriage.diagnosis.rewrites.model_calls import compiled_function, inner_compiled
from torchtriage.diagnosis.statement import statement_at
from torchtriage.findings.model import Change, ChangeKind
from torchtriage.recording.events import CompileCall, StackEntry
from torchtriage.recording.recording import Process, Source

APP = "/app/train.py"
STEP = """
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()

@torch.compile(backend="eager", fullgraph=True)
def step(x, y):
    loss = criterion(model(x), y)
    loss.backward()
    return loss.detach()

step(a, b)
"""
FACTORY = """
def make_step(model, criterion):
    @torch.compile
    def step(x, y):
        loss = criterion(model(x), y)
        loss.backward()
        return loss.detach()
    return step

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = make_step(model, nn.MSELoss())
step(a, b)
"""
TRAINER = """
class Trainer:
    def __init__(self, lr):
        self.net = Net()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=lr)
        self.fast = torch.compile(self.step, dynamic=True)

    def step(self, x):
        loss = self.net(x).mean()
        loss.backward()
        return loss.detach()

Trainer(0.1).fast(a)
"""
PASSED = """
def penalty(critic, x):
    loss = critic(x).mean()
    loss.backward()
    return loss.detach()

critic = Critic()
compute = torch.compile(penalty)
compute(critic, a)
"""


def changes_of(source: str, target: str = "") -> list[Change]:
    """The changes for the function whose line calls backward(), which is called on the last line."""
    lines = tuple(source.strip("\n").split("\n"))
    window = Source(first_line=1, lines=lines)
    place = next(n for n, line in enumerate(lines, 1) if "backward" in line)
    made = [n for n, line in enumerate(lines, 1) if "torch.compile" in line]
    defined = next(n for n in range(place, 0, -1) if lines[n - 1].lstrip().startswith("def "))
    calls = tuple(
        CompileCall(path=APP, line=n, function="<module>", target=target, target_path=APP, target_line=defined)
        for n in made)
    process = Process(events=calls, sources={(APP, n): window for n in (place, len(lines), *made)})
    last = statement_at(process, APP, len(lines))
    assert last is not None
    [call] = last.calls("step", "fast", "compute")
    entry = StackEntry(path=APP, line=place, function="step")
    function = compiled_function(process, entry, call, StackEntry(path=APP, line=len(lines), function="<module>"))
    return [change for edit in inner_compiled(function) for change in edit.changes]


@pytest.mark.parametrize(("source", "dropped", "kind", "line", "new"), [
    (STEP, 'torch.compile(backend="eager", fullgraph=True)', ChangeKind.REPLACE, 1,
     'torch.compile(Net(), backend="eager")'),
    (FACTORY, "torch.compile", ChangeKind.INSERT, 2, "model = torch.compile(model)"),
    (TRAINER, "torch.compile(self.step, dynamic=True)", ChangeKind.REPLACE, 3, "torch.compile(Net(), dynamic=True)"),
    (PASSED, "torch.compile(penalty)", ChangeKind.REPLACE, 6, "torch.compile(Critic())"),
])
def test_the_model_is_compiled_where_it_is_made(
    source: str, dropped: str, kind: ChangeKind, line: int, new: str,
) -> None:
    drop, made = changes_of(source)
    assert drop.old.replace("'", '"') == dropped
    assert (made.kind, made.line, made.new.replace("'", '"')) == (kind, line, new)


@pytest.mark.parametrize(("old", "new"), [
    ("model = Net()", "model = Net()\nmodel = Other()"),                # which of the two is not known
    ("model = Net()", "model = torch.compile(Net())"),
    ("model = Net()", "def build():\n    model = Net()"),                # another variable
    ("model(x), y)", "model(x), teacher(x))"),
    ("    loss = criterion", "    model = fresh()\n    loss = criterion"),
])
def test_without_one_known_model_there_is_no_edit(old: str, new: str) -> None:
    source = STEP.replace(old, new)
    if "teacher" in new:
        source = f"teacher = Net()\nother = teacher.parameters()\n{source.lstrip()}"
    assert source != STEP
    assert not changes_of(source)


def test_a_model_that_is_moved_is_compiled_where_it_is_moved() -> None:
    _, made = changes_of(STEP.replace("model = Net()", "model = Net()\nmodel = model.to(device)"))
    assert (made.line, made.new) == (2, "torch.compile(model.to(device), backend='eager')")
