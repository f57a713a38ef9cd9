"""Each kind of graph break gets its rule and a remedy that names the line."""

import ast
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchtriage.diagnosis.graph_breaks.cause import classify, code_of_type
from torchtriage.diagnosis.graph_breaks.remedies import specific_hint
from torchtriage.diagnosis.graph_breaks.remedies_by_id import BY_ID
from torchtriage.diagnosis.graph_breaks.text import branch_test
from torchtriage.diagnosis.statement import Statement, statement_at
from torchtriage.recording.events import GraphBreak, StackEntry
from torchtriage.recording.recording import Process, Source

BUILTIN = "Failed to trace builtin operator"
SKIPPED = "Attempted to call function marked as skipped"
METHOD = "Unsupported method call"
SCALAR = "Data dependent operator"


def a_break(
    kind: str, gb_id: str | None = None, explanation: str = "", context: str = "", path: str = "/app/model.py",
    **fields,
) -> GraphBreak:
    texts = {"type": kind, "gb_id": gb_id, "explanation": explanation, "context": context}
    return GraphBreak(path=path, line=14, function="forward", **texts, **fields)


def builtin(name: str, types: str = "['str']") -> GraphBreak:
    return a_break(BUILTIN, "GB0059", f"builtin operator `{name}` with argument types {types}")


def a_skip(module: str, name: str, path: str = "/app/model.py") -> GraphBreak:
    return a_break(
        SKIPPED, "GB0007", context=f"module: {module}, qualname: {name}, skip reason: likely a C extension", path=path,
    )


def method(cls: str, name: str, context: str = "") -> GraphBreak:
    return a_break(METHOD, "GB0156", f"method `{name}` of class `{cls}`", context)


def operator(kind: str, gb_id: str, name: str) -> GraphBreak:
    return a_break(kind, gb_id, f"Operator `{name}` has an output that depends on data.", name)


def special_method(cls: str, name: str) -> GraphBreak:
    """As torch 2.15 words it."""
    return a_break(
        "C-implemented special method without VariableTracker model", "GB9493",
        explanation=f"'{cls}' implements '{name}' in C and Dynamo has no model for it.",
        context=f"name={name}, type={cls}, attr=<slot wrapper '{name}' of '{cls}' objects>",
    )


def delayed(reason: str) -> GraphBreak:
    return a_break(
        "Unsupported function call (delayed)", "GB0148", context="source: GlobalSource(global_name='lstm')",
        explanation=f"Dynamo determined that a graph break should occur when calling `G['lstm']`. Reason: {reason}",
    )


POSITIVE = [
    ("TT101", builtin("print"), "print('loss', loss)"),
    ("TT101", method("TextIOWrapper", "write"), "sys.stdout.write('x')"),
    ("TT101", builtin("str", "['Tensor']"), "print(str(y))"),
    ("TT101", a_break("attempted to reorder a debugging function that can't actually be reordered", "GB0296",
                      context="fn: <built-in function print>, args: [], kwargs: {}"), "print(x.shape)"),
    ("TT102", a_break("logging.Logger method not supported for non-export cases", "GB0291",
                      context="method: <Logger x (WARNING)>.warning, args: []"), "log.warning('x')"),
    ("TT102", a_skip("_warnings", "warn"), "warnings.warn('slow')"),
    ("TT102", a_break("Unsupported python_type() call", "GB4841", path="/usr/lib/python3.11/logging/__init__.py"),
     "logging.info('a')"),
    ("TT103", a_break("Data-dependent branching", "GB0170", context="attempted to jump with TensorVariable()"),
     "if y.sum() > 0:"),
    ("TT103", a_break("list_richcompare_nonconst", "GB6622"), "if [x] == [y]:"),
    ("TT104", a_break("Unsupported Tensor.item() call with capture_scalar_outputs=False", "GB0124"), "v = loss.item()"),
    ("TT104", a_break("Tensor.tolist() with non-integer tensor", "GB0109"), "v = x.tolist()"),
    ("TT104", operator(SCALAR, "GB0033", "aten._local_scalar_dense.default"), "n = int(t)"),
    ("TT104", operator(SCALAR, "GB0033", "aten.equal.default"), "same = torch.equal(a, b)"),
    ("TT104", builtin("range", "['Tensor']"), "for i in range(n):"),
    ("TT105", operator("Dynamic shape operator", "GB0036", "aten.nonzero.default"), "y = x[x > 0]"),
    ("TT105", a_break("Dynamic slicing with Tensor arguments", "GB0038"), "y = x[:n]"),
    ("TT105", a_break("Unsupported Tensor.item() call with capture_scalar_outputs=False", "GB0124"), "y = x[:n]"),
    ("TT106", a_skip("_pickle", "dumps"), "key = pickle.dumps(kwargs)"),
    ("TT106", a_skip("torch.random", "manual_seed"), "torch.manual_seed(0)"),
    ("TT107", a_break("copy.deepcopy()", "GB0179", context="copy.deepcopy(x)"), "z = copy.deepcopy(y)"),
    ("TT107", a_break("Attempted to copy.deepcopy a tensor", "GB4198", path="/usr/lib/python3.11/copy.py"),
     "z = copy.deepcopy(y)"),
    ("TT108", delayed("Optimized `nn.Module` is wrapped with `torch.compiler.disable` (reason: None)"),
     "y = self.head(x)"),
    ("TT108", a_break("Skip calling `torch.compiler.disable()`d function", "GB0098", context="<function log at 0x7f>"),
     "log(x)"),
    ("TT109", a_break("Unsupported Tensor.backward() call", "GB0123"), "loss.backward()"),
    ("TT109", a_break("autograd.grad with external grad_fn", "GB0372"), "g = torch.autograd.grad(y, x)"),
    ("TT110", a_break("setattr() on Tensor.requires_grad", "GB0206"), "h.requires_grad = True"),
    ("TT111", a_break("Attempted to wrap sparse Tensor", "GB0015"), "y = s @ x"),
    ("TT111", a_break("Unexpected type in sourceless builder", "GB0116", context="lib.mod.Wrapper"),
     "sample = fn(shape)"),
    ("TT111", method("type", "__new__", "call_method UserDefinedClassVariable(<class '_json.Encoder'>) __new__ []"),
     "json.dumps(d)"),
    ("TT112", builtin("str", "['Tensor']"), "s = str(y)"),
    ("TT112", method("ContextVar", "get"), "return self.context_var.get()"),
    ("TT113", a_break("Missing tp_iternext", "GB4347", context="next(dict_keyiterator)"), "keys = {k for k in d}"),
    ("TT113", builtin("next", "['X']"), "v = next(it)"),
    ("TT113", a_break(
        "Unsupported method call", "GB0156",
        context="call_method UserDefinedObjectVariable(list_iterator) __next__ [] {}",
        explanation="Dynamo does not know how to trace method `__next__` of class `list_iterator`",
    ), "v = next(it)"),
    ("TT113", special_method("list_iterator", "__next__"), "y = y * next(batches)"),
    ("TT113", special_method("zip", "__iter__"), "for a, b in pairs:"),
    ("TT114", a_break("attempted to trace numpy function unsupported by PyTorch", "GB0294"),
     "r = np.random.default_rng(0)"),
    ("TT114", operator(SCALAR, "GB0033", "aten._local_scalar_dense.default"), "eps = np.random.rand(1).item()"),
    ("TT114", method("Generator", "normal"), "n = rng.normal(size=4)"),
    ("TT115", a_break("Unsupported context manager", "GB0142", "enter a `lock` context manager."),
     "with lock:"),
    ("TT115", a_break("torch.* op returned non-Tensor", "GB0208"), "with torch.backends.cudnn.flags(enabled=False):"),
    ("TT116", a_break("setattr() on unsupported type", "GB0467", path="/x/site-packages/torch/utils/hooks.py"),
     "m.register_forward_hook(f)"),
    ("TT116", a_break("register_hook with stride-dependent code", "GB7444"), "y.register_hook(f)"),
    ("TT117", a_break("Attempted to wrap RNN, GRU, or LSTM", "GB0014", context="LSTM(4, 8)"), "out, _ = self.lstm(x)"),
    ("TT117", delayed("Dynamo does not support RNN, GRU, or LSTM. Set torch._dynamo.config.allow_rnn=True to enable "
                      "experimental support for RNN, GRU, and LSTM in Dynamo"), "out, _ = self.lstm(x)"),
    ("TT118", a_break(
        "Call to `torch._dynamo.graph_break()`", "GB0025", path="/x/site-packages/torch/optim/optimizer.py",
    ), "opt.step()"),
    ("TT119", a_break("graph break in loop", "GB7000"), "for i in range(3):"),
    ("TT120", a_break("Call to `torch._dynamo.graph_break()`", "GB0025"), "torch._dynamo.graph_break()"),
    ("TT121", a_break("Custom __getattribute__ in nn.Module attribute access", "GB0031"), "v = self.x"),
    ("TT121", builtin("setattr", "['X', 'str', 'int']"), "setattr(obj, name, 1)"),
    ("TT122", a_break("Observed exception", "GB0088", context="raised exception ValueError('a')"),
     "raise ValueError('a')"),
    ("TT122", a_break("assert with non-string message", "GB0171"), "assert ok, f'{x}'"),
    ("TT123", a_break("Fake tensor propagation exception", "GB0064"), "y = my_op(x)"),
    ("TT123", a_break("RuntimeError when making fake tensor call", "GB4315"), "y = a @ b"),
    ("TT124", a_break("torch.cond: differing branch outputs", "GB0313"), "torch.cond(p, f, g, (x,))"),
    ("TT124", a_break("HOP: Unsafe side effect", "GB0067"), "checkpoint(f, x)"),
    ("TT125", a_skip("time", "perf_counter"), "t = time.perf_counter()"),
    ("TT125", a_break("Call to a time function", "GB9193", context="Called `time.time()` inside a compiled region",
                      explanation="Dynamo graph breaks on `time.time()` so that the clock read occurs at the correct "
                                  "point relative to compiled operations."), "t = time.time()"),
    ("TT125", a_skip("<unknown module>", "Random.random"), "p = random.random()"),
    ("TT125", method("type", "now", "call_method UserDefinedClassVariable(<class 'datetime.datetime'>) now [] {}"),
     "t = datetime.now()"),
    ("TT199", a_break("Excessive RestartAnalysis() calls", "GB0052"), "y = x + 1"),
    ("TT199", a_break("a kind of some later torch", "GB9999"), "y = x + 1"),
]

NEGATIVE = [
    ("TT101", builtin("str", "['Tensor']"), "s = str(y)"),
    ("TT101", a_break("Data-dependent branching", "GB0170"), "if print_it > 0: print(x)"),
    ("TT102", a_skip("_pickle", "dumps"), "key = pickle.dumps(kwargs)"),
    ("TT103", operator(SCALAR, "GB0033", "aten._local_scalar_dense.default"), "n = int(t)"),
    ("TT104", builtin("range", "['X']"), "for i in range(n):"),
    ("TT104", operator(SCALAR, "GB0033", "aten._local_scalar_dense.default"), "eps = np.random.rand(1).item()"),
    ("TT105", a_break("Unsupported Tensor.item() call with capture_scalar_outputs=False", "GB0124"), "y = x[:int(n)]"),
    ("TT106", a_skip("_warnings", "warn"), "warnings.warn('slow')"),
    ("TT107", a_skip("copy", "copy"), "z = copy.copy(y)"),
    ("TT107", a_break("Data-dependent branching", "GB0170", path="/app/copy.py"), "if y > 0:"),
    ("TT108", a_break("Call to `torch._dynamo.graph_break()`", "GB0025"), "torch._dynamo.graph_break()"),
    ("TT109", a_break("setattr() on Tensor.requires_grad", "GB0206"), "h.requires_grad = True"),
    ("TT110", a_break("Unsupported Tensor.backward() call", "GB0123"), "loss.backward()"),
    ("TT111", a_break("Missing tp_iternext", "GB4347"), "keys = {k for k in d}"),
    ("TT112", builtin("print"), "print(1)"),
    ("TT113", a_break("torch.Generator method", "GB7650", context="torch.Generator.manual_seed"), "g.manual_seed(0)"),
    ("TT113", special_method("Box", "__len__"), "n = len(next(boxes))"),
    ("TT114", a_skip("torch.random", "manual_seed"), "torch.manual_seed(0)"),
    ("TT115", a_break("Data-dependent branching", "GB0170"), "with_mask = x if y > 0 else z"),
    ("TT116", a_break("setattr() on unsupported type", "GB0467", path="/app/hooks.py"), "Counter.n = 3"),
    ("TT117", a_break("Attempted to wrap sparse Tensor", "GB0015"), "y = self.lstm(s)"),
    ("TT117", delayed("Getting an inplace view on a graph input is not supported"), "y = lstm.transpose_(0, 1)"),
    ("TT118", a_break("Call to `torch._dynamo.graph_break()`", "GB0025", path="/app/optim/optimizer.py"),
     "graph_break()"),
    ("TT119", a_break("Data-dependent branching", "GB0170"), "for i in range(3):"),
    ("TT120", a_break("Call to `torch._dynamo.graph_break()`", "GB0025", path="/x/site-packages/torch/optim/adam.py"),
     "opt.step()"),
    ("TT121", builtin("print"), "print(getattr(x, 'y'))"),
    ("TT122", a_break("Fake tensor propagation exception", "GB0064"), "y = my_op(x)"),
    ("TT122", a_break("Backend compiler exception", "GB0219"), "y = x + 1"),
    ("TT199", a_break("Backend compiler exception", "GB0219"), "y = x + 1"),
    ("TT123", a_break("Observed exception", "GB0088"), "raise ValueError('a')"),
    ("TT124", a_break("Higher Order Operator: autograd.Function",
     "GB0007", context="module: torch.random, qualname: manual_seed"),
     "f(x)"),
    ("TT125", a_skip("app.time_utils", "now"), "t = now()"),
    ("TT199", a_break("", "GB0170"), ""),
    ("TT199", a_break("Higher Order Operator: autograd.Function", "GB0033"), "torch.equal(a, b)"),
]


def case_ids(cases: list[tuple[str, GraphBreak, str]]) -> list[str]:
    return [f"{code}-{event.type[:30]}-{line[:20]}" for code, event, line in cases]


@pytest.mark.parametrize(("code", "event", "line"), POSITIVE, ids=case_ids(POSITIVE))
def test_cause_has_its_code(code: str, event: GraphBreak, line: str) -> None:
    assert classify(event, line).code == code


@pytest.mark.parametrize(("code", "event", "line"), NEGATIVE, ids=case_ids(NEGATIVE))
def test_look_alike_does_not_get_the_code(code: str, event: GraphBreak, line: str) -> None:
    assert classify(event, line).code != code


def test_every_code_has_a_positive_and_a_negative_case() -> None:
    codes = {f"TT{n}" for n in range(101, 126)} | {"TT199"}
    assert codes == {code for code, _, _ in POSITIVE}
    assert codes == {code for code, _, _ in NEGATIVE}


@pytest.mark.parametrize(("code", "event", "line"), POSITIVE)
def test_remedy_names_the_line_or_its_place(code: str, event: GraphBreak, line: str) -> None:
    text = classify(event, line).remedy.full
    assert "model.py:14" in text or line in text or event.path.rsplit("/", 1)[-1] in text or code in ("TT117", "TT199")


def test_print_remedy_names_the_setting_that_works_and_the_one_that_does_not() -> None:
    cause = classify(builtin("print"), "print('loss', loss)")
    assert cause.subject == "print()"
    assert "move `print('loss', loss)` at model.py:14" in cause.remedy.full
    assert "reorderable_logging_functions.add(print)" in cause.remedy.full
    assert "suppress_errors does not fix" in cause.remedy.full


@pytest.mark.parametrize(("line", "types", "is_offered"), [
    ("print('rows', 3, y)", "['str', 'int', 'Tensor']", True),
    ("print('rows', y.numel())", "['str', 'int']", False),      # a dynamic size cannot be printed after the graph
    ("print('scale', self.scale, flush=True)", "['str', 'float']", False),
    ("print(*parts)", "['int', 'str']", False),
])
def test_a_print_of_a_number_is_moved_behind_the_graph_only_if_it_is_written_out(
    line: str, types: str, is_offered: bool,
) -> None:
    statement = Statement(node=ast.parse(line).body[0])
    remedy = classify(builtin("print", types), line, statement).remedy
    assert bool(remedy.setting) == is_offered
    assert ("reorderable" in remedy.full) == is_offered


def test_logger_methods_get_the_setting_that_ignores_them() -> None:
    event = a_break("logging.Logger method not supported for non-export cases", "GB0291")
    remedy = classify(event, "logger.warning_once(").remedy
    assert "ignore_logging_functions.add(logging.Logger.warning_once)" in remedy.full


def test_a_test_of_the_log_level_is_named_and_ignored_by_its_own_name() -> None:
    event = a_break("logging.Logger method not supported for non-export cases", "GB0291",
                    context="method: <Logger __main__ (INFO)>.isEnabledFor, args: []")
    cause = classify(event, "if self.training and log.isEnabledFor(logging.INFO):")
    assert cause.subject == "log.isEnabledFor()"
    assert "ignore_logging_functions.add(logging.Logger.isEnabledFor)" in cause.remedy.full


def test_functions_that_log_get_the_setting_that_moves_them() -> None:
    remedy = classify(a_skip("_warnings", "warn"), "warnings.warn('a')").remedy
    assert remedy.setting == "torch._dynamo.config.reorderable_logging_functions.add(warnings.warn)"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("if y.sum() > 0:", "torch.where(y.sum() > 0, a, b)"),
        ("elif y.max() > 3:  # clip", "torch.where(y.max() > 3, a, b)"),
        ("while err > tol:", "torch.while_loop"),
        ("assert y.min() > 0", "torch._assert_async(y.min() > 0)"),
        ("if self.initted:", "keep `self.initted` (tested at model.py:14) as a Python bool"),
        ("if x[0] in ids:", "torch.isin"),
        ("ok = a.any() and b.any()", "asks a tensor for a Python bool"),
    ],
)
def test_branch_remedy_fits_the_statement(line: str, expected: str) -> None:
    assert expected in classify(a_break("Data-dependent branching", "GB0170"), line).remedy.full


def test_branch_on_a_numpy_value_is_distinguished() -> None:
    event = a_break("Data-dependent branching", "GB0170", context="attempted to jump with NumpyNdarrayVariable()")
    assert "NumPy value" in classify(event, "if n % k != 0:").remedy.full


def test_branch_names_the_line_that_made_its_tensor() -> None:
    explanation = (
        'The branch condition involves:\n'
        ' # File "/app/model.py", line 9, in forward, code: p = torch.rand([])\n rand = ...'
    )
    cause = classify(a_break("Data-dependent branching", "GB0170", explanation), "if p < 0.1:")
    assert cause.note == "the tested value is made at line 9: `p = torch.rand([])`"


def test_item_remedy_says_that_branching_still_breaks() -> None:
    remedy = classify(a_break("Unsupported Tensor.item() call", "GB0124"), "v = loss.item()").remedy
    assert remedy.setting == "torch._dynamo.config.capture_scalar_outputs = True"
    assert "branching on it still breaks" in remedy.full


def test_equal_is_not_offered_a_setting_that_does_not_help() -> None:
    assert classify(operator(SCALAR, "GB0033", "aten.equal.default"), "if torch.equal(a, b):").remedy.setting == ""


def test_shape_remedy_is_about_the_operator() -> None:
    event = operator("Dynamic shape operator", "GB0036", "aten.repeat_interleave.Tensor")
    cause = classify(event, "ids = torch.repeat_interleave(x, n)")
    assert cause.subject == "repeat_interleave (data-dependent size)"
    assert "output_size=" in cause.remedy.full
    mask = operator("Dynamic shape operator", "GB0036", "aten.nonzero.default")
    assert classify(mask, "y = x[mask]").subject == "boolean-mask indexing"


def test_line_of_a_caller_is_quoted_with_its_place() -> None:
    stack = (
        StackEntry(path="/app/train.py", line=3, function="f", code="z = copy.deepcopy(y)"),
        StackEntry(path="/usr/lib/python3.11/copy.py", line=153, function="deepcopy", code="y = copier(memo)"),
    )
    event = GraphBreak(
        path=stack[1].path, line=153, function="deepcopy", type="Attempted to copy.deepcopy a tensor", stack=stack,
    )
    assert "`z = copy.deepcopy(y)` at train.py:3" in classify(event, "z = copy.deepcopy(y)").remedy.full


def test_pytorch_hint_is_used_if_there_is_no_remedy() -> None:
    hints = ("Please report an issue to PyTorch.", "Move the frobnicator out of the graph.")
    assert classify(a_break("a kind of some later torch", hints=hints), "f(x)").remedy.full == \
        "Move the frobnicator out of the graph (`f(x)` at model.py:14)"


@pytest.mark.parametrize("hint", [
    "Please report an issue to PyTorch.", "This graph break is fundamental.", "Caused by an earlier graph break.",
    "   ",
])
def test_hints_without_advice_are_dropped(hint: str) -> None:
    assert specific_hint((hint,)) == ""


def test_templates_of_the_id_table_can_be_filled() -> None:
    for gb_id in BY_ID:
        remedy = classify(a_break("a kind of some later torch", gb_id), "y = f(x, {1: '{'})").remedy
        assert remedy.full
        assert "{line}" not in remedy.full


@pytest.mark.parametrize(
    ("line", "test"),
    [
        ("if a > 0: return b", "a > 0"), ("elif a:", "a"), ("while not done:  # wait", "not done"),
        ("y = a if c > 1 else b", "c > 1"),
        ("assert x, 'm'", "x"), ("if (a and", "(a and"), ("y = x + 1", ""), ("", ""), ("if \\d:", "\\d"),
    ],
)
def test_branch_condition_is_read_from_the_line(line: str, test: str) -> None:
    assert branch_test(line) == test


ids = st.none() | st.text() | st.sampled_from(sorted(BY_ID))
events = st.builds(GraphBreak, type=st.text(), gb_id=ids, explanation=st.text(), context=st.text(), path=st.text())


@given(event=events, line=st.text() | st.sampled_from(["if x:", "while x", "with a", "f(x", "x[:n]"]))
def test_no_text_makes_the_classifier_raise(event: GraphBreak, line: str) -> None:
    cause = classify(event, line)
    assert cause.code.startswith("TT1")
    assert cause.subject
    assert cause.remedy.full


# Kinds that torch 2.14 and 2.15 added, as their graph_break_registry.json names them.
NEWER = {
    "TT105": ["Data-dependent uint64 torch.Size element in torch._C._infer_size"],
    "TT106": ["call to a callable object with no traceable __call__"],
    "TT108": ["Call to `torch._dynamo.disable()`", "Call to `torch.compiler.disable()`"],
    "TT111": ["non-constant key in SimpleNamespace()", "str subclass key in SimpleNamespace()",
              "__replace__ on a namespace whose type returned a non-namespace"],
    "TT112": ["length_hint with a non-constant default", "COW tensor check after mutation",
              "MAKE_CELL on a free variable name", "bytearray constructor", "bytes() with non-constant arguments",
              "untraceable user-defined __str__", "Constant fold with a rank-relative device",
              "min/max with non-constant key", "STORE_GLOBAL in non-module globals", "Data pointer truth value",
              "ContextVar mutation not supported", "ContextVar.get() with non-constant default"],
    "TT115": ["torch.cuda.use_mem_pool graph break", "torch.cuda.use_mem_pool with non-constant device"],
    "TT121": ["Attribute mutation on an untracked user-defined object", "Unsupported attribute",
              "unsupported attribute of tracked type", "Write to unmodeled getset/member attribute",
              "unsupported torch.cuda.MemPool attribute"],
    "TT124": ["torch.switch: improper index", "flex_gemm: unexpected kwargs",
              "checkpoint context_fn bound to a non-constant receiver"],
    "TT125": ["Call to a time function"],
}


@pytest.mark.parametrize(("code", "kind"), [(code, kind) for code, kinds in NEWER.items() for kind in kinds])
def test_a_kind_that_a_newer_torch_added_has_a_rule(code: str, kind: str) -> None:
    assert code_of_type(kind, None) == code


@pytest.mark.parametrize(("event", "source", "marked", "expected"), [
    (GraphBreak(type="Failed to convert args/kwargs to proxy", gb_id="GB0055"),
     "def f(x, gen):\n    n = torch.rand(3, generator=gen) < 0.5", "n =",
     "call `torch.rand(3, generator=gen)` (f.py:2) before the compiled call and pass its result in"),
    (GraphBreak(type="unimplemented builtin op on tensor arguments"),
     "def f(x):\n    top = random.randint(0, 5)\n    return x[top:top + 3]", "return",
     "draw `top = random.randint(0, 5)` before the compiled call"),
    (GraphBreak(type=BUILTIN, explanation="trace builtin operator `str` with argument types ['int']"),
     "def f(x, user):\n    return x[str(user)]", "return", "on a number that is dynamic"),
    (GraphBreak(type="using `torch.autograd.grad`", gb_id="GB9186"),
     "def f(x):\n    g = torch.autograd.grad(x, y, create_graph=True)", "g =", "on a model that is not compiled"),
    (GraphBreak(type="using `torch.autograd.grad`", gb_id="GB9186"),
     "def f(x):\n    g = torch.autograd.grad(x, y)", "g =", "compile only the model"),
])
def test_the_remedy_reads_the_statement(event: GraphBreak, source: str, marked: str, expected: str) -> None:
    lines = source.split("\n")
    line = next(number for number, text in enumerate(lines, 1) if marked in text)
    window = Source(first_line=1, lines=tuple(lines))
    statement = statement_at(Process(events=(), sources={("f.py", line): window}), "f.py", line)
    event = replace(event, path="f.py", line=line, stack=(StackEntry(path="f.py", line=line, function="f"),))
    assert expected in classify(event, lines[line - 1].strip(), statement).remedy.full


def test_next_on_an_iterator_is_moved_before_the_call_however_torch_words_it() -> None:
    old = classify(a_break("Missing tp_iternext", "GB4347", context="next(list_iterator)"), "y = y * next(batches)")
    new = classify(special_method("list_iterator", "__next__"), "y = y * next(batches)")
    assert new.remedy.text == old.remedy.text
    assert new.remedy.text.startswith("call `next(batches)` (model.py:14) before the compiled call")
    loop = classify(special_method("zip", "__iter__"), "for a, b in pairs:")
    assert loop.remedy.text.startswith("turn the object into a list before looping over it in `for a, b in pairs:`")


def test_a_clock_is_named_in_the_title_of_its_break() -> None:
    event = a_break("Call to a time function", "GB9193", explanation="Dynamo graph breaks on `time.time()` so that")
    cause = classify(event, "t = time.time()")
    assert cause.subject == "time.time()"
    assert cause.remedy.text.startswith("read time.time before and after the compiled call")


def test_a_kind_without_text_is_recognized_by_its_id() -> None:
    assert code_of_type("", "GB0170") == "TT103"
    assert code_of_type("Higher Order Operator: autograd.Function", "GB0033") == "TT104"
    assert code_of_type("", None) == "TT199"


def test_a_failed_backend_is_reported_with_the_failed_operator_and_line() -> None:
    explanation = (
        "Backend compiler `aot_eager` failed with aten._local_scalar_dense.default\n\nOriginal traceback:\n"
        '  File "/lib/utils.py", line 396, in coords\n    out[idx] += p\n'
    )
    cause = classify(a_break("Backend compiler exception", "GB0219", explanation=explanation), "coords(x)")
    assert (cause.code, cause.subject) == ("TT123", "operator local_scalar_dense, which fails on fake tensors,")
    assert cause.remedy.text.startswith("the compiler fails on `out[idx] += p` at utils.py:396")


def test_an_assert_with_a_multiline_message_is_named_by_its_condition() -> None:
    cause = classify(a_break("Data-dependent branching", "GB0170"), "assert not torch.isnan(loss), (")
    assert cause.subject == "the branch on `not torch.isnan(loss)`"
    assert cause.remedy.text.startswith("torch._assert_async(~(torch.isnan(loss))) instead of the assert")


def test_a_filter_of_warnings_is_not_a_call_that_logs() -> None:
    event = a_break(SKIPPED, "GB0007", context="module: warnings, qualname: simplefilter, skip reason: x")
    fix = classify(event, 'warnings.simplefilter("ignore")').remedy.full
    assert fix.startswith("set the filter of warnings before the compiled call")
    assert "reorderable" not in fix
