"""The edits of a break: made from the statement of its fix text, labelled by what they can change."""

import textwrap

import pytest

from torchtriage.diagnosis.graph_breaks.edits import BreakSite, break_edits
from torchtriage.diagnosis.graph_breaks.hoisting import entered_outside, hoisted, listed_outside, moved
from torchtriage.diagnosis.graph_breaks.remedies import Remedy, remedy_for
from torchtriage.diagnosis.graph_breaks.text import read_break
from torchtriage.diagnosis.statement import statement_at
from torchtriage.findings.model import ChangeKind, Edit, EditLabel
from torchtriage.recording.events import CompileCall, GraphBreak, StackEntry
from torchtriage.recording.recording import Process, Source

APP = "/app/model.py"


def program(source: str, function: str, marked: str, called: str, *calls: CompileCall) -> tuple[Process, GraphBreak]:
    """A process with the source, and the break at the marked line of `function`, called at the line `called`."""
    lines = textwrap.dedent(source).strip("\n").split("\n")
    at = {text: next(n for n, line in enumerate(lines, 1) if text in line) for text in (marked, called)}
    stack = (
        StackEntry(path=APP, line=at[called], function="<module>"),
        StackEntry(path=APP, line=at[marked], function=function),
    )
    gb_id = "GB0123" if ".backward" in marked else None
    event = GraphBreak(path=APP, line=at[marked], function=function, stack=stack, compile_id="0/0", gb_id=gb_id)
    made = [n for n, line in enumerate(lines, 1) if "torch.compile" in line]
    compiled = [CompileCall(path=APP, line=n, function="<module>", target=function) for n in made]
    window = Source(first_line=1, lines=tuple(lines))
    sources = {(APP, line): window for line in {*at.values(), *made}}
    return Process(events=(*compiled, event), sources=sources), event


def edits_of(code: str, body: str, marked: str, *, torch: str = "2.13.0") -> tuple[Edit, ...]:
    """The edits for a break in the body of a function, and a check that the text of the fix names their code."""
    source = "def f(self, x, done, loss):\n" + textwrap.indent(body, "    ") + "\n\nf(model, x, done, loss)\n"
    process, event = program(source, "f", marked, "f(model")
    process = Process(events=process.events, sources=process.sources, facts={"torch": torch})
    statement = statement_at(process, APP, event.line or 0)
    assert statement is not None
    remedy = remedy_for(code, read_break(event, marked, statement))
    site = BreakSite(
        process=process, event=event, line=event.stack[-1], statement=statement, remedy=remedy)
    edits = break_edits(code, site)
    for edit in edits:
        for change in edit.changes:
            if change.kind in (ChangeKind.REWRITE, ChangeKind.REPLACE) and len(edit.changes) == 1:
                assert all(line in remedy.full for line in change.new.split("\n")), (change.new, remedy.full)
            if change.kind is ChangeKind.SET:
                assert change.new in remedy.full
    return edits


@pytest.mark.parametrize(("code", "body", "marked", "labels"), [
    ("TT101", "print('x', x.max())", "print", ["safe", "setting"]),
    ("TT101", "print(torch.randn(3))", "print", ["review", "setting"]),
    ("TT102", "logger.info('x %s', x)", "logger", ["safe", "setting"]),
    ("TT103", "assert (x > 0).all(), 'no'", "assert", ["safe"]),
    ("TT103", "if x.sum() > 0:\n    raise ValueError('no')", "if", ["review"]),
    ("TT103", "if x.isnan().any(): raise ValueError('no')", "if", ["review"]),
    ("TT103", "if x.sum() > 0:\n    x = x * 2", "if", ["review"]),
    ("TT103", "y = x if x.sum() > 0 else -x", "y =", ["review"]),
    ("TT103", "if x.sum() > 0:\n    self.count = 1", "if", []),
    ("TT103", "while x.sum() > 0:\n    x = x - 1", "while", []),
    ("TT103", "for row in x:\n    if row.sum() > 0:\n        continue\n    loss += row.sum()", "if", ["review"]),
    ("TT103", "for row in x:\n    if row.sum() > 0:\n        continue\n    done = row\n    loss += 1", "if", []),
    ("TT103", "for row in x:\n    if row.sum() > 0:\n        continue\n    loss = row", "if", []),
    ("TT104", "y = x * loss.item()", "y =", ["review", "setting"]),
    ("TT104", "return x[done.argmax().item()]", "return", ["review"]),
    ("TT104", "limit = np.percentile(x.numpy(), 90)\nreturn x.clamp(max=float(limit))", "return", []),
    ("TT104", "for value in x.tolist():\n    loss = loss + value", "for", ["review"]),
    ("TT104", "size = int(x.max()) + 1\nreturn gathered(x, size)", "size =", ["setting"]),
    ("TT104", "size = int(x.max())\nfor i in range(size):\n    x = x + i", "size =", []),
    ("TT104", "print(f'{loss.item():.3f}')", "print", ["safe"]),
    ("TT104", "self.log('loss', loss.item())", "self.log", ["review"]),
    ("TT104", "wandb_logger.log({'loss': loss.item()})", "wandb_logger.log", ["review"]),
    ("TT104", "logger.log(logging.INFO, loss.item())", "logger.log", ["safe"]),
    ("TT104", "catalog.write(loss.item())", "catalog.write", ["review"]),
    ("TT104", "self._log.info('%s', loss.item())", "self._log", ["safe"]),
    ("TT104", "assert loss.item() > 0", "assert", ["safe"]),
    ("TT104", "y = x if loss.item() > 0 else -x", "y =", ["review"]),
    ("TT101", "print(f'{loss.item():.3f}')", "print", ["safe"]),
    ("TT105", "return x[done].mean()", "return", ["review", "setting"]),
    ("TT105", "x[done] = loss[done]", "x[done]", ["review", "setting"]),
    ("TT109", "loss.backward()\nreturn loss.detach()", "loss.backward", ["setting"]),
    ("TT109", "loss.backward()\nreturn loss", "loss.backward", []),
    ("TT109", "loss.backward()\nself.optimizer.step()\nreturn loss.detach()", "loss.backward", []),
    ("TT109", "loss.backward()", "loss.backward", []),
    ("TT117", "y = self.lstm(x)", "y =", ["setting"]),
    ("TT120", "torch._dynamo.graph_break()", "graph_break", ["safe"]),
])
def test_the_label_says_what_an_edit_can_change(code: str, body: str, marked: str, labels: list[str]) -> None:
    assert [str(edit.label) for edit in edits_of(code, body, marked)] == labels


def test_a_setting_that_this_torch_does_not_have_is_no_edit() -> None:
    assert edits_of("TT109", "loss.backward()\nreturn loss.detach()", "loss.backward", torch="2.9.0") == ()
    assert [e.label for e in edits_of("TT102", "logger.info('x')", "logger", torch="2.9.0")] == [EditLabel.SAFE]


def test_no_source_no_edit() -> None:
    assert break_edits("TT101", None) == ()


MODULE = """
class Net(nn.Module):
    def forward(self, x, mask):
        x.requires_grad_()
        noise = random.normal(0.0, self.sigma)
        for pair in mask:
            x = x + pair
        with self.lock:
            x = x + 1
        local = x * 2
        return helper(local, x)


net = torch.compile(Net())
out = net(torch.ones(3), masks)
"""

PLAIN = MODULE.replace("(local, x)", "(x)").replace("x = x +", "y = x +")      # what helper() gets is the argument


def new_code(edit: Edit | None) -> dict[str, str]:
    assert edit is not None
    assert edit.label is EditLabel.REVIEW
    return {str(change.kind): change.new for change in edit.changes}


def test_a_value_is_computed_by_the_caller_with_what_self_is_there() -> None:
    process, event = program(MODULE, "forward", "noise =", "out =")
    statement = statement_at(process, APP, event.line or 0)
    assert statement is not None
    value = statement.node.value  # type: ignore[attr-defined]
    assert new_code(hoisted(process, event, value, "torch.tensor")) == {
        "add-parameter": "noise", "remove": "",
        "add-argument": "noise=torch.tensor(random.normal(0.0, net.sigma))",
    }


def test_a_statement_at_the_head_is_made_before_the_call() -> None:
    process, event = program(MODULE.replace("torch.ones(3)", "image"), "forward", "x.requires", "out =")
    assert new_code(moved(process, event)) == {"remove": "", "insert": "image.requires_grad_()"}


@pytest.mark.parametrize(("old", "new"), [
    ("net(torch.ones(3), masks)", "[net(image, masks) for _ in range(3)]"),
    ("net(torch.ones(3), masks)", "ready and net(image, masks)"),
    ("        noise =", "        self.optimizer.step()\n        noise ="),      # breaks as well, and stays
    ("out = net(torch.ones(3), masks)", "out = net(image, masks)\nlast = net(other, masks)"),      # would lack it
])
def test_a_statement_stays_where_the_move_would_change_or_cure_nothing(old: str, new: str) -> None:
    plain = MODULE.replace("torch.ones(3)", "image")
    for source, is_moved in ((plain, True), (plain.replace(old.replace("torch.ones(3)", "image"), new), False)):
        process, event = program(source, "forward", "x.requires", "out =")
        assert (moved(process, event) is not None) == is_moved


def test_a_statement_in_the_middle_stays() -> None:
    process, event = program(MODULE, "forward", "noise =", "out =")
    assert moved(process, event) is None


def test_an_iterator_is_passed_as_a_list() -> None:
    process, event = program(MODULE, "forward", "for pair", "out =")
    statement = statement_at(process, APP, event.line or 0)
    assert statement is not None
    assert new_code(listed_outside(process, event, statement.node.iter)) == {  # type: ignore[attr-defined]
        "replace": "list(masks)"}


def test_a_context_is_entered_around_the_call() -> None:
    process, event = program(MODULE, "forward", "with self", "out =")
    assert new_code(entered_outside(process, event)) == {"unwrap": "", "wrap": "with net.lock"}


def test_an_argument_that_is_made_in_the_call_gets_a_name_there() -> None:
    process, event = program(PLAIN, "forward", "return helper", "out =")
    statement = statement_at(process, APP, event.line or 0)
    assert statement is not None
    edit = hoisted(process, event, statement.node.value)  # type: ignore[attr-defined]
    assert new_code(edit)["replace"] == "(x := torch.ones(3))"


@pytest.mark.parametrize("around", ["x = torch.ones(4)", "import numpy as x", "def x():\n    pass\n", "class x: pass"])
def test_that_name_is_not_one_that_the_caller_uses(around: str) -> None:
    source = PLAIN.replace("class Net", f"{around}\nclass Net")
    process, event = program(source, "forward", "return helper", "out =")
    statement = statement_at(process, APP, event.line or 0)
    assert statement is not None
    new = new_code(hoisted(process, event, statement.node.value))  # type: ignore[attr-defined]
    assert new["replace"] == "(x_passed := torch.ones(3))"
    assert new["add-argument"] == "helper_value=helper(x_passed)"


def test_a_name_in_another_function_of_the_file_is_free() -> None:
    source = PLAIN.replace("class Net", "def other(x):\n    return x\nclass Net")
    process, event = program(source, "forward", "return helper", "out =")
    statement = statement_at(process, APP, event.line or 0)
    assert statement is not None
    new = new_code(hoisted(process, event, statement.node.value))  # type: ignore[attr-defined]
    assert new["replace"] == "(x := torch.ones(3))"


def test_a_local_variable_keeps_a_value_inside() -> None:
    process, event = program(MODULE, "forward", "return helper", "out =")
    statement = statement_at(process, APP, event.line or 0)
    assert statement is not None
    assert hoisted(process, event, statement.node.value) is None  # type: ignore[attr-defined]


@pytest.mark.parametrize(("old", "new"), [
    ("        x.requires_grad_()\n", "        self.sigma = self.sigma * 2\n"),       # the caller has the old one
    ("        noise =", "        if self.training:\n            noise ="),              # not drawn in each call
    ("random.normal(0.0, self.sigma)", "self.training and random.normal(0.0, self.sigma)"),
    ("random.normal(0.0, self.sigma)", "random.normal(0.0, self.sigma) if self.training else 0.0"),
])
def test_a_value_stays_where_the_caller_would_make_another_one(old: str, new: str) -> None:
    process, event = program(MODULE.replace(old, new), "forward", "noise =", "out =")
    statement = statement_at(process, APP, event.line or 0)
    assert statement is not None
    [drawn] = statement.calls("normal")
    assert hoisted(process, event, drawn) is None


def test_a_name_with_several_values_is_not_the_parameter() -> None:
    source = MODULE.replace("x.requires_grad_()", "noise = 0")
    process, event = program(source, "forward", "noise = random", "out =")
    statement = statement_at(process, APP, event.line or 0)
    assert statement is not None
    new = new_code(hoisted(process, event, statement.calls("normal")[0]))
    assert new == {
        "add-parameter": "normal_value", "replace": "normal_value",
        "add-argument": "normal_value=random.normal(0.0, net.sigma)"}


def test_a_default_that_the_function_fills_in_is_passed() -> None:
    source = MODULE.replace("x, mask):", "x, mask, teacher=None):").replace(
        "noise = random.normal(0.0, self.sigma)",
        "if teacher is None:\n            teacher = copy.deepcopy(self.net)")
    process, event = program(source, "forward", "teacher = copy", "out =")
    statement = statement_at(process, APP, event.line or 0)
    assert statement is not None
    new = new_code(hoisted(process, event, statement.calls("deepcopy")[0]))
    assert new == {"add-argument": "teacher=copy.deepcopy(net.net)"}


def test_the_remedy_of_a_setting_is_the_line_itself() -> None:
    setting = "torch._dynamo.config.allow_rnn = True"
    process, event = program(MODULE, "forward", "local =", "out =")
    statement = statement_at(process, APP, event.line or 0)
    assert statement is not None
    (edit,) = break_edits("TT117", BreakSite(
        process=process, event=event, line=event.stack[-1], statement=statement,
        remedy=Remedy(text=setting, setting=setting)))
    assert (edit.label, edit.changes[0].kind, edit.changes[0].new) == (EditLabel.SETTING, ChangeKind.SET, setting)
