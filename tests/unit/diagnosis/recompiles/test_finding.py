import re
from dataclasses import replace
from typing import Any

import pytest

from torchtriage.diagnosis.recompiles.finding import recompiles
from torchtriage.findings.model import Check, CheckKind, CostKind, Finding, OwnerKind, Severity
from torchtriage.recording.events import (
    CompileCall,
    CompileEnd,
    CompileStart,
    Event,
    GraphBreak,
    GuardValue,
    LimitHit,
    Recompile,
    StackEntry,
)
from torchtriage.recording.recording import Process, Source

PLACE: dict[str, Any] = {"path": "/p/net.py", "line": 5, "function": "forward"}
LINES = ("", "    def forward(self, x, k):", "        return x * k")
SOURCES = {("/p/net.py", 5): Source(first_line=4, lines=LINES, qualname="Net.forward")}
INT_HINT = "  # y  # p.py:1 in f (HINT: torch.compile considers integer attributes of the nn.Module to be static.)"
STATIC = CompileCall(
    path="/p/train.py", line=31, target="Net.forward", target_path="/p/net.py", target_line=5, dynamic=False,
)


AUTOMATIC = replace(STATIC, dynamic=None, line=20)


def events_of(*reasons: str, **fields: Any) -> list[Event]:
    """A frame that is compiled once, and once more for each reason."""
    events: list[Event] = [CompileStart(**PLACE, compile_id="0/0")]
    for n, reason in enumerate(reasons, 1):
        at = {**PLACE, "compile_id": f"0/{n}", **fields}
        events.append(Recompile(reasons=(reason and f"0/{n - 1}: {reason}",), **at))
        events.append(CompileEnd(**PLACE, compile_id=f"0/{n}", seconds=0.5))
    return events


def with_steps(events: list[Event], every: int) -> list[Event]:
    """The recompiles `every` steps apart."""
    return [replace(e, step=every * int(str(e.compile_id)[2:])) if isinstance(e, Recompile) else e for e in events]


def findings_of(events: list[Event], sources: Any = SOURCES, **facts: Any) -> list[Finding]:
    return list(recompiles(Process(events=tuple(events), facts=facts, sources=sources)))


def codes(*reasons: str, **facts: Any) -> list[str]:
    return [finding.code for finding in findings_of(events_of(*reasons), **facts)]


def size(old: int, new: int, dim: int = 0, name: str = "x") -> str:
    return f"tensor '{name}' size mismatch at index {dim}. expected {old}, actual {new}"


def keys(device: str, *more: str) -> str:
    return f"DispatchKeySet({', '.join((device, 'BackendSelect', *more))})"


def dispatch(old: str, new: str) -> str:
    return f"tensor 'x' dispatch key set mismatch. expected {old}, actual {new}"


MANY_STEPS = {"num_steps": 50}


CASES: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = [
    ("TT201", (size(4, 5),), (size(4, 5), size(5, 6), size(6, 7))),
    ("TT201", (size(4, 5), size(7, 8, dim=1)), (size(4, 1),)),
    ("TT202", (size(4, 5), size(5, 6), size(6, 7)), (size(4, 5),)),
    ("TT203", (size(32, 17),), (size(32, 48),)),
    ("TT203", (size(32, 17),), (size(32, 17, dim=1),)),
    ("TT204", ("k == 2",), ("k == 0.5",)),
    ("TT204", ("k == 2", "k == 3", "k == 5"), ("k == 'a'",)),
    ("TT204", ("cfg.n == 2", "cfg.n == 3", "cfg.n == 4"), ("self.n == 2", "self.n == 3", "self.n == 4")),
    ("TT205", ("lr == 0.1",), ("lr == 1",)),
    ("TT205", ("self.param_groups[0]['lr'] == 0.1",), ("self.param_groups[0]['lr'] == None",)),
    ("TT206", ("self.n == 0", "self.n == 1", "self.n == 2"), ("self.n == 0", "self.n == 5", "self.n == 6")),
    ("TT206", ("self.n == 0  # self.n += 1  # p.py:4 in f",), ("self.n == 0  # y = self.n + 1  # p.py:4 in f",)),
    ("TT207", ("self.layer_idx == 0", "self.layer_idx == 1"), ("layer_idx == 0", "layer_idx == 1")),
    ("TT207", ("self.dim == 64" + INT_HINT, "self.dim == 16" + INT_HINT, "self.dim == 48" + INT_HINT),
     tuple(f"self._modules['a'].dim == {dim}{INT_HINT}" for dim in (64, 16, 48))),
    ("TT207", (size(3, 4, name="self._parameters['weight']"),), (size(3, 4, name="self._buffers['cache']"),)),
    ("TT208", ("self._modules['drop'].training == True",), ("self.is_training == True",)),
    ("TT209", ("GLOBAL_STATE changed: grad_mode ",), ("GLOBAL_STATE changed: num_threads ",)),
    ("TT209", (dispatch(keys("CPU", "ADInplaceOrView", "AutogradCPU"), keys("CPU")),),
     (dispatch(keys("CPU"), keys("Meta")),)),
    ("TT210", ("GLOBAL_STATE changed: autocast(cpu)_enabled ",), ("GLOBAL_STATE changed: grad_mode ",)),
    ("TT210", ("GLOBAL_STATE changed: default_dtype ",), ("GLOBAL_STATE changed: autocast grad_mode ",)),
    ("TT210", ("___check_torch_function_mode_stack()",), ("___check_obj_id(m, 123456)",)),
    ("TT211", ("tensor 'x' dtype mismatch. expected Float, actual Long",), ("d == torch.float32",)),
    ("TT212", (dispatch(keys("CPU", "AutogradCPU"), keys("Meta", "AutogradMeta")),), ("dev == device(type='cpu')",)),
    ("TT213", ("tensor 'x' stride mismatch at index 0. expected 4, actual 1",), (size(4, 2),)),
    ("TT214", ("tensor 'x' rank mismatch. expected 2, actual 1",), (size(2, 3),)),
    ("TT215", ("tensor 'x' requires_grad mismatch. expected requires_grad=0",), ("x.requires_grad == True",)),
    ("TT216", ("list(dict.keys(d))[0] == (0, 0)",), ("len(d) != 1",)),
    ("TT216", ("k[1] == 0  # return x + d[k]  # p.py:6 in f",), ("k[1] == 0  # return x + k[1]  # p.py:6 in f",)),
    ("TT217", ("len(model._modules) != 1",), ("model is None",)),
    ("TT217", ("not args",), ("args is None",)),
    ("TT218", ("mask is None",), ("expected type of 'mask' to be a tensor type, ' but found <class 'int'>",)),
    ("TT218", ("expected type of 'm' to be a tensor type, ' but found <class 'NoneType'>",), ("m == 4",)),
    ("TT219", ("___check_obj_id(fn, 139793586335984), type=<class 'code'>",),
     ("___check_type_id(fn, 139793586335984)",)),
    ("TT220", ("G['SCALE'] == 3",), ("SCALE == 3",)),
    ("TT221", (size(4, 1),), (size(4, 2),)),
    ("TT221", ("2 <= x.size()[0]",), ("3 <= x.size()[0]",)),
    ("TT222", ("___stack0 == 4.0",), ("stack0 == 4.0",)),
    ("TT222", ("t.item() == 3",), ("t.items == 3",)),
    ("TT223", ("___check_type_id(o, 94255702714736), type=<class '__main__.Obj'>",),
     ("___check_obj_id(o, 94255702714736)",)),
    ("TT224", ("mode == 'a'",), ("mode == 1",)),
    ("TT225", ("(x.size()[0] % 8) == 0",), ("2 <= x.size()[0]",)),
    ("TT298", ("",), ("k == 2",)),
    ("TT299", ("something that nobody has seen",), ("k == 2",)),
]


@pytest.mark.parametrize(("code", "reasons", "others"), CASES)
def test_a_reason_gets_its_code_and_a_similar_one_another(
    code: str, reasons: tuple[str, ...], others: tuple[str, ...],
) -> None:
    assert [code] == codes(*reasons)
    assert code not in codes(*others)


def test_every_code_of_the_family_has_a_case_above() -> None:
    assert {f"TT{n}" for n in (*range(201, 226), 298, 299)} == {code for code, _, _ in CASES}


def test_static_shapes_keep_recompiling_after_the_first_change() -> None:
    [finding] = findings_of([STATIC, *events_of(size(4, 5))])
    assert (finding.code, finding.fix.text.split(", or")[0]) == ("TT202", "drop dynamic=False at train.py:31")
    assert "compiled at train.py:31 with dynamic=False" in finding.cause
    assert findings_of([STATIC, *events_of(size(32, 17))])[0].code == "TT203"


def test_two_sizes_within_a_step_are_not_a_ragged_batch() -> None:
    assert codes(size(32, 17), **MANY_STEPS) == ["TT201"]
    late = events_of(size(32, 17), step=9)
    assert [finding.code for finding in findings_of(late, **MANY_STEPS)] == ["TT203"]


def test_attributes_of_one_step_belong_to_layers_and_of_many_to_a_counter() -> None:
    reasons = ("self.n == 0", "self.n == 1", "self.n == 2")
    assert codes(*reasons, **MANY_STEPS) == ["TT207"]
    over_many_steps = with_steps(events_of(*reasons), every=1)
    assert [finding.code for finding in findings_of(over_many_steps, **MANY_STEPS)] == ["TT206"]


def test_the_recorded_source_shows_a_counter() -> None:
    lines = ("    def forward(self, x):", "        self.calls += 1", "        return x")
    sources = {("/p/net.py", 5): Source(first_line=5, lines=lines, qualname="Net.forward")}
    assert findings_of(events_of("self.calls == 0"), sources=sources)[0].code == "TT206"
    assert findings_of(events_of("self.calls == 0"))[0].code == "TT204"


def test_an_enum_member_is_a_constant_not_an_object() -> None:
    value = GuardValue(compile_id="0/1", source="L['mode']", value="<Mode.B: 2>")
    assert findings_of([*events_of("___check_obj_id(mode, 139793586335984)"), value])[0].code == "TT224"


def test_a_dict_is_not_stacked_like_a_list() -> None:
    value = GuardValue(compile_id="0/1", source="L['batch']['k0'].size()[0]", value="5")
    [of_dict] = findings_of([*events_of("len(batch) == 2"), value])
    assert of_dict.fix.text.startswith("pass the values as one tensor: torch.stack(list(batch.values()))")
    [of_list] = findings_of(events_of("len(batch) == 2"))
    assert "torch.stack(batch)" in of_list.fix.text


def test_a_list_of_numbers_becomes_a_tensor_in_place_of_a_stack() -> None:
    value = GuardValue(compile_id="0/1", source="L['tokens'][0]", value="23")
    [finding] = findings_of([*events_of("len(tokens) == 2"), value])
    assert finding.fix.text.startswith("pass torch.tensor(tokens), whose size becomes dynamic")


def test_a_finding_gives_the_source_values_steps_and_guard() -> None:
    [finding] = findings_of(with_steps(events_of(*[size(31 + n, 32 + n) for n in range(1, 11)]), every=3))
    assert finding.title == "Net.forward recompiled 10 times: x.size(0) keeps changing"
    assert "x.size(0) took 32, 33, 34, 35, 36, 37, 38, 39 and 3 more" in finding.cause
    assert " at steps 3, 6, 9, 12, 15, 18, 21, 24 and 2 more;" in finding.cause
    assert "guard: tensor 'x' size mismatch at index 0;" in finding.cause
    assert tuple(str(n) for n in range(32, 43)) == tuple(map(str, finding.evidence.values))
    assert (10, tuple(range(3, 33, 3))) == (finding.evidence.num_events, finding.steps)
    assert 10 == len(finding.evidence.reasons) == len(finding.evidence.compile_ids)


def test_severity_rises_only_for_repeated_recompiles() -> None:
    flag = "tensor 'x' dtype mismatch. expected Float, actual Long"
    assert [finding.severity for finding in findings_of(events_of(flag))] == [Severity.P3]
    assert [finding.severity for finding in findings_of(events_of(flag, flag, flag))] == [Severity.P2]
    limit = LimitHit(**PLACE, compile_id="0/2", limit=1, reasons=(f"0/1: {flag}",))
    assert [finding.severity for finding in findings_of([*events_of(flag), limit])] == [Severity.P2]


def test_a_limit_is_named_in_title_cause_and_verification() -> None:
    limit = LimitHit(**PLACE, compile_id="0/4", limit=3, reasons=("0/3: " + size(7, 8),))
    [finding] = findings_of([*events_of(size(4, 5), size(5, 6), size(6, 7)), limit])
    assert finding.title.startswith("Net.forward recompiled 3 times, until its limit of 3 stopped it")
    assert "recompile_limit of 3 then stopped it" in finding.cause
    assert [value.number for value in finding.evidence.values] == [4.0, 5.0, 6.0, 7.0, 8.0]
    assert Check(CheckKind.BELOW_RECOMPILE_LIMIT, "Net.forward") in finding.verification


def test_compile_seconds_are_those_of_the_group() -> None:
    [first, second] = findings_of(events_of("k == 2", "mode == 'a'", "mode == 'b'"))
    assert (first.cost.seconds, first.cost.kind, second.cost.seconds) == (0.5, CostKind.OBSERVED, 1.0)
    assert first.cost.share is None


def test_untimed_recompiles_cost_an_unknown_time() -> None:
    [finding] = findings_of([Recompile(**PLACE, compile_id="0/1", reasons=("0/0: k == 2",))])
    assert (finding.cost.seconds, finding.cost.kind) == (None, CostKind.NOT_MEASURED)


def test_a_log_fragment_gives_a_finding_without_place() -> None:
    fragment = Recompile(
        function="flex_attention", reasons=("tensor 'key' size mismatch at index 2. expected 100, actual 101",),
    )
    [finding] = findings_of([fragment])
    assert (finding.code, finding.location.path, finding.location.function) == ("TT201", "unknown", "flex_attention")
    assert finding.title == "flex_attention recompiled once: key.size(2) changed"
    assert "compile call not seen" in finding.cause
    assert finding.fix.text.startswith("if the torch.compile call has dynamic=False, drop it; if not, ")
    assert OwnerKind.UNKNOWN is finding.owner.kind


def test_the_fix_names_tensor_dimensions_and_call() -> None:
    stack = (
        StackEntry(path="/p/train.py", line=140, function="main"),
        StackEntry(path="/v/site-packages/torch/nn/modules/module.py", line=1, function="_call_impl"),
        StackEntry(path="/p/net.py", line=5, function="forward"),
    )
    sources = {**SOURCES, ("/p/train.py", 140): Source(first_line=140, lines=("y = net(x, 3)",))}
    [finding] = findings_of([AUTOMATIC, *events_of(size(4, 5), size(7, 8, dim=1), stack=stack)], sources)
    assert "torch._dynamo.maybe_mark_dynamic(x, [0, 1]) before the call at train.py:140" in finding.fix.text
    assert finding.fix.safe
    [finding] = findings_of(events_of(size(4, 5), stack=stack[::2]))
    assert "before the call reached from train.py:140" in finding.fix.text


def test_texts_of_every_kind_of_reason_are_complete() -> None:
    reasons = (
        "___dict_contains('a', d)", "not hasattr(o, 'k')", "x is y",
        "Cache line invalidated because L['m'] got deallocated", "2 <= k",
        "BACKEND_MATCH failure: torch.compile detected different backend callables. Cached backend: a. New backend: b.",
        "len(d) != 3",
        "hasattr(x, '_dynamo_dynamic_indices') == False", "y.size()[0] == x.size()[0]  # duck sizing added this",
        "G['MODE'] == 'a'",
        "expected type of 'x' to be a tensor type, ' but found <class 'torch.nn.parameter.Parameter'>",
        "GLOBAL_STATE changed: allow_tf32 ",
        "TYPE_MISMATCH(d)", "self.n == 1" + INT_HINT, "self.p == 0.1", "IndexError on xs[2]",
        "utils_device.CURRENT_DEVICE == device(type='cpu')",
    )
    for finding in (f for reason in reasons for f in findings_of(events_of(reason))):
        for text in (finding.title, finding.cause, finding.fix.text):
            assert text
            assert not re.search(r"\{|\}|  |(?<!== )None\b(?! for)", text), text


def test_recompiles_of_a_resume_frame_are_folded_only_if_a_break_made_it() -> None:
    resume: dict[str, Any] = {"path": "/p/net.py", "line": 12, "function": "torch_dynamo_resume_in_forward_at_11"}
    event = Recompile(**resume, compile_id="1/1", reasons=("1/0: ___stack0 == 0.0",))
    graph_break = GraphBreak(path="/p/net.py", line=11, function="forward", type="Tensor.item")
    assert findings_of([graph_break, event]) == []
    [finding] = findings_of([event])
    assert (finding.code, finding.title) == ("TT222", "forward recompiled once: a value taken from a tensor changes")


def test_the_fingerprint_does_not_depend_on_line_values_or_root() -> None:
    def at(root: str, line: int, old: int) -> str:
        place: dict[str, Any] = {"path": f"{root}/net.py", "line": line, "function": "forward"}
        source = Source(first_line=line, lines=("    def forward(self, x):",), qualname="Net.forward")
        event = Recompile(**place, compile_id="0/1", reasons=("0/0: " + size(old, old + 1),))
        return findings_of([event], sources={(place["path"], line): source}, your_roots=[root])[0].fingerprint
    assert at("/home/a", 5, 4) == at("/home/b", 9, 70)
    [of_x], [of_y] = (findings_of(events_of(size(4, 5, name=name))) for name in ("x", "y"))
    assert of_x.fingerprint != of_y.fingerprint


def test_library_frames_below_one_line_have_separate_fingerprints() -> None:
    def behind(function: str) -> Finding:
        path = "/v/site-packages/lib/mod.py"
        stack = (
            StackEntry(path="/p/train.py", line=13, function="main"), StackEntry(path=path, line=1, function=function),
        )
        return findings_of([Recompile(path=path, line=1, function=function, stack=stack, reasons=(size(4, 5),))])[0]
    assert behind("attend").fingerprint != behind("mask").fingerprint
    assert (behind("mask").location.path, behind("mask").owner.name) == ("/p/train.py", "lib")


def test_a_module_that_torch_wraps_is_named_after_its_compile_call() -> None:
    wrapper: dict[str, Any] = {
        "path": "/v/site-packages/torch/_dynamo/external_utils.py", "line": 67, "function": "inner",
    }
    event = Recompile(**wrapper, compile_id="0/1", reasons=("0/0: fn.training == True",))
    call = CompileCall(path="/p/train.py", line=3, target="Sequential.forward")
    what = "recompiled once: it alternates between train and eval mode"
    assert findings_of([call, event])[0].title == f"Sequential.forward {what}"
    assert findings_of([event])[0].title == f"the compiled module {what}"


def test_the_parts_of_a_tuple_key_are_one_group() -> None:
    looked_up = "  # return accums[pair] + x  # p.py:6 in f"
    [finding] = findings_of([
        *events_of("pair[1] == 0" + looked_up, "pair[1] == 1" + looked_up, "pair[0] == 0" + looked_up),
        GuardValue(compile_id="0/3", source="L['pair'][0]", value="1"),
    ])
    assert (finding.code, finding.title) == ("TT216", "Net.forward recompiled 3 times: the dict key pair changes")
    assert finding.cause.startswith("pair[0] took 0, 1, pair[1] took 0, 1;")
    assert tuple(map(str, finding.evidence.values)) == ("[0]=0", "[0]=1", "[1]=0", "[1]=1")


def test_a_second_cause_is_named_in_the_cause_and_the_fix() -> None:
    events = events_of(size(4, 5), size(5, 4))
    events[3] = replace(events[3], reasons=("0/1: " + size(5, 4), "0/0: self.n == 0"))  # type: ignore[call-arg]
    [finding] = findings_of(events)
    assert "those variants failed on self.n" in finding.cause
    assert finding.fix.text.endswith("also keep self.n the same, or it recompiles again")
    assert not finding.fix.safe


def test_ranks_come_from_the_process() -> None:
    assert [finding.ranks for finding in findings_of(events_of("k == 2"), rank=3)] == [(3,)]


def test_two_sizes_inside_a_library_are_not_called_a_ragged_batch() -> None:
    frame_in = {"path": "/env/lib/python3.11/site-packages/lib/model.py", "line": 5, "function": "forward"}
    recompile = Recompile(
        compile_id="0/1", step=9, reasons=("0/0: tensor 'x' size mismatch at index 0. expected 8, actual 3",),
        **frame_in,
    )
    [finding] = recompiles(
        Process(events=(CompileStart(compile_id="0/0", step=1, **frame_in), recompile), facts={"num_steps": 10})
    )
    assert finding.code == "TT201"
    at_home = dict(frame_in, path="/home/me/model.py")
    recompile = Recompile(compile_id="0/1", step=9, reasons=recompile.reasons, **at_home)
    [finding] = recompiles(
        Process(events=(CompileStart(compile_id="0/0", step=1, **at_home), recompile), facts={"num_steps": 10})
    )
    assert finding.code == "TT203"


def test_a_changing_number_of_arguments_is_reported_as_such() -> None:
    sources = {("/p/net.py", 5): Source(
        first_line=5, lines=("    def forward(self, *args, **kwargs):",), qualname="Net.forward",
    )}
    [more] = findings_of(events_of("len(kwargs) == 6"), sources=sources)
    assert more.title == "Net.forward recompiled once: the number of keyword arguments changes"
    assert more.fix.text.startswith("call Net.forward with the same set of keyword arguments every time")
    [fewer] = findings_of(events_of("len(args) == 2"), sources=sources)
    assert fewer.title == "Net.forward recompiled once: the number of positional arguments changes"
    [other] = findings_of(events_of("len(xs) == 2"), sources=sources)
    assert other.title == "Net.forward recompiled once: len(xs) changes"


def test_a_dimension_with_one_value_is_not_reported_as_changing() -> None:
    events = events_of(size(32, 64, dim=1))
    events[1] = replace(events[1], compile_id="0/2", reasons=(f"0/1: {size(32, 64, dim=1)}", f"0/0: {size(1, 2)}"))
    [finding] = findings_of(events)
    assert finding.cause.startswith("x.size(1) took 32, 64;")


def test_the_guard_is_shown_with_the_names_of_the_user() -> None:
    [finding] = findings_of(events_of("L['self']._modules['bert']._modules['drop'].training == True"))
    assert "guard: self.bert.drop.training == True" in finding.cause
    [key] = findings_of(events_of("L['k'][1] == 0  # d[k]  # p.py:4 in f"))
    assert "guard: k[1] == 0" in key.cause


def test_the_fix_for_an_attribute_set_late_is_to_set_it_first() -> None:
    [finding] = findings_of(events_of("self.config.problem_type is None"))
    assert finding.fix.text.startswith("set self.config.problem_type before the first call of Net.forward, and do not")
    [argument] = findings_of(events_of("mask is None"))
    assert argument.fix.text.endswith("all True if its inverse does)")


def test_several_dimensions_that_keep_changing_are_all_named() -> None:
    [finding] = findings_of(events_of(size(4, 5), size(7, 8, dim=1), size(5, 6)))
    assert finding.title.endswith("x.size(0) and x.size(1) keep changing")


def test_making_a_private_field_a_tensor_is_not_advised() -> None:
    assert "torch.tensor(" not in findings_of(events_of("td._batch_size[0] == 8"))[0].fix.text
    assert "torch.tensor(td.n)" in findings_of(events_of("td.n == 8"))[0].fix.text


def test_only_a_function_that_the_user_compiles_has_a_ragged_batch() -> None:
    other = replace(STATIC, target_line=99, dynamic=None)
    assert [f.code for f in findings_of([other, *events_of(size(135, 40))])] == ["TT201"]
    assert [f.code for f in findings_of([replace(STATIC, dynamic=None), *events_of(size(135, 40))])] == ["TT203"]


SOURCE = """
class Net:
    def forward(self, x):
        batch, length = x.shape
        for t in range(length):
            x = x + 1
        if self.left > 2:
            return x
        return x * math.sqrt(1.0 + self.left)
"""


def in_source(*events: Event) -> list[Finding]:
    """The findings on events of Net.forward, whose source the recording has."""
    source = Source(first_line=5, lines=tuple(SOURCE.splitlines()[2:]), qualname="Net.forward")
    return findings_of(list(events), sources={("/p/net.py", 5): source})


def test_a_size_that_unrolls_a_loop_is_not_made_dynamic() -> None:
    events = events_of(*(size(n, n + 1, dim=1) for n in (4, 5, 6)))
    for settings in (AUTOMATIC, STATIC):
        [finding] = in_source(settings, *events)
        assert finding.fix.text.startswith("compile the body of the loop"), finding.fix.text
        assert "dynamic=False" not in finding.fix.text


def test_a_number_that_is_tested_on_another_line_foretells_what_breaks_next() -> None:
    reasons = [f"self.left == {n}  # self.left += 1  # net.py:6 in forward" for n in range(3)]
    [finding] = in_source(*events_of(*reasons))
    assert "with torch.sqrt instead of math.sqrt" in finding.fix.text
    assert "torch.where in place of `if self.left > 2:`" in finding.fix.text


def test_other_keys_and_another_number_of_keys_are_one_cause() -> None:
    [finding] = findings_of(events_of("len(d) != 1", "list(dict.keys(d))[0] == 'a'", "len(d) != 2"))
    assert (finding.code, finding.title) == ("TT216", "Net.forward recompiled 3 times: the keys of d change")


def test_an_object_that_is_compared_to_members_of_its_class_is_an_enum() -> None:
    guard = "___check_obj_id(task, 139793586335984), type=<class '__main__.Task'>"
    for line, code in (("if task is Task.RANK:", "TT224"), ("return task.f(x)", "TT219")):
        assert findings_of(events_of(f"{guard}  # {line}  # net.py:6 in forward"))[0].code == code


def test_a_batch_that_is_also_one_is_not_a_last_batch() -> None:
    once = with_steps(events_of(size(8, 6)), 7)
    [finding] = findings_of([AUTOMATIC, *once], num_steps=50)
    assert (finding.code, finding.title.endswith("is smaller in a later batch")) == ("TT203", True)
    both = with_steps(events_of(size(8, 6), "2 <= x.size()[0]  # y  # net.py:6 in forward"), 7)
    assert [f.code for f in findings_of([AUTOMATIC, *both], num_steps=50)] == ["TT201", "TT221"]


def test_a_list_that_the_function_joins_is_joined_before_the_call() -> None:
    lines = ("def forward(self, parts):", "    return torch.cat(parts, -1).sum()")
    sources = {("/p/net.py", 5): Source(first_line=5, lines=lines)}
    [finding] = findings_of(events_of("len(parts) == 2"), sources)
    assert finding.fix.text.startswith("compute `torch.cat(parts, -1)` before the call")


def test_a_size_argument_is_not_to_become_a_tensor() -> None:
    [finding] = findings_of([AUTOMATIC, *events_of("k == 12  # best = x.topk(k).indices  # net.py:6 in forward")])
    assert finding.fix.text.startswith("nothing needs to change: k is dynamic")


def test_the_state_that_an_optimizer_makes_in_its_first_step_needs_no_change() -> None:
    place = {"path": "/v/site-packages/torch/optim/sgd.py", "function": "step"}
    start = CompileStart(**{**PLACE, **place}, compile_id="0/0")
    again = Recompile(**{**PLACE, **place}, compile_id="0/1", reasons=("0/0: len(self.state[p]) != 0",))
    [finding] = findings_of([AUTOMATIC, start, again])
    assert finding.fix.text.startswith("nothing to do: the optimizer makes its state in the first step")


def test_a_learning_rate_keeps_its_value_as_a_tensor() -> None:
    [finding] = findings_of(events_of("self.param_groups[0]['lr'] == 0.05"))
    assert "lr=torch.tensor(0.05)" in finding.fix.text
    assert "fill_(value)" in finding.fix.text


def test_the_fix_for_a_growing_cache_is_a_static_cache() -> None:
    [finding] = findings_of(events_of(size(1, 2, dim=2, name="past_key_values.layers[0].keys")))
    assert "cache_implementation='static'" in finding.fix.text


def test_removing_a_branch_inside_torch_is_not_advised() -> None:
    finding, = findings_of(events_of("x.size()[0] > 4096  # (_inductor/codegen/cpp.py:2273 in need_use_acc_helper)"))
    assert finding.fix.text == (
        "pad x.size(0) so that `x.size()[0] > 4096` always holds, or keep both variants: torch itself sets this guard "
        "(torch/_inductor/codegen/cpp.py:2273)"
    )
    finding, = findings_of(events_of("x.size()[0] > 4096  # if n > 4096:  # p.py:28 in f"))
    assert finding.fix.text.startswith("take the branch on x.size(0) at p.py:28 out of Net.forward: test it in the")
    assert "pad" in finding.fix.text
    finding, = findings_of(events_of("x.size()[0] <= 6  # if n > 6:  # p.py:28 in f"))
    assert "pad" not in finding.fix.text        # padding makes a size larger


def test_a_function_compiled_twice_has_the_policy_of_the_call_before_it() -> None:
    """With or without a reset between them, the second call's dynamic=False decides."""
    first = [AUTOMATIC, CompileStart(**PLACE, compile_id="0/0")]
    [finding] = findings_of([*first, STATIC, *events_of(size(4, 5))])
    assert (finding.code, finding.severity) == ("TT202", Severity.P2)
    assert "dynamic=False" in finding.cause


def test_two_policies_of_one_function_are_two_findings() -> None:
    static = [
        replace(event, compile_id="0/2") if isinstance(event, Recompile) else event for event in events_of(size(5, 6))
    ]
    events = [AUTOMATIC, *events_of(size(4, 5)), STATIC, *static[1:]]
    assert sorted(finding.code for finding in findings_of(events)) == ["TT201", "TT202"]


@pytest.mark.parametrize("reason", [
    "GLOBAL_STATE changed: grad_mode", "GLOBAL_STATE changed: autocast_enabled", "self.training == True",
])
def test_a_flag_that_flips_once_needs_no_action(reason: str) -> None:
    [finding] = findings_of([AUTOMATIC, *events_of(reason)])
    assert finding.severity is Severity.P4
    assert finding.fix.text.startswith("nothing to do: ")


def test_one_smaller_batch_under_automatic_shapes_needs_no_action() -> None:
    [finding] = findings_of([AUTOMATIC, *with_steps(events_of(size(8, 6)), 7)], num_steps=50)
    assert (finding.code, finding.severity) == ("TT203", Severity.P4)
    assert finding.fix.text.startswith("nothing to do: ")
    [finding] = findings_of([STATIC, *with_steps(events_of(size(8, 6)), 7)], num_steps=50)
    assert (finding.code, finding.severity) == ("TT203", Severity.P3)


def test_the_fix_names_the_value_that_would_recompile_next() -> None:
    events = events_of(size(4, 5), size(5, 6), size(6, 7))
    for number, offset in enumerate(("1.5", "2.5", "3.5"), start=1):
        events.insert(2 * number + number - 1, GuardValue(compile_id=f"0/{number}", source="L['offset']", value=offset))
    [finding] = findings_of([AUTOMATIC, *events])
    assert "; then offset would recompile: it is a float that changes (1.5, 2.5, 3.5)" in finding.fix.text


@pytest.mark.parametrize(("old", "new", "expected"), [(1, 2, "x.unsqueeze(0)"), (2, 4, "x.flatten(0, -2)")])
def test_the_fix_for_a_rank_depends_on_the_ranks(old: int, new: int, expected: str) -> None:
    [finding] = findings_of(events_of(f"tensor 'x' rank mismatch. expected {old}, actual {new}"))
    assert expected in finding.fix.text


@pytest.mark.parametrize(("line", "expected"), [
    ("for _ in range(k):", "compile the body of the loop instead of Net.forward"),
    ("return self.heads[k](x)", "index the stacked results with k"),
    ("return x * k", "make it a tensor, torch.tensor(k)"),
    ("return x * self.gains[k]", "torch.tensor(...) of numbers"),
])
def test_the_fix_for_an_int_depends_on_its_use(line: str, expected: str) -> None:
    [finding] = findings_of(events_of(*(f"k == {n}  # {line}  # net.py:6 in forward" for n in range(3))))
    assert (finding.code, expected in finding.fix.text) == ("TT204", True), finding.fix.text


def test_a_number_computed_from_a_float_is_reported_as_the_float() -> None:
    [finding] = findings_of(events_of(*(
        f"((-0.3)*age) == (-{n}.5)  # y = math.exp(-s * age)  # net.py:6 in forward" for n in range(3)
    )))
    assert (finding.code, finding.title) == ("TT205", "Net.forward recompiled 3 times: the float age changes")
    assert "torch.exp instead of math.exp" in finding.fix.text
    assert "-0.5" not in finding.fix.text


def test_an_itertools_count_is_a_counter() -> None:
    reasons = [f"___normalize_count_iter(self.calls) == ({n}, 1)" for n in range(1, 5)]
    assert [finding.code for finding in findings_of(events_of(*reasons))] == ["TT206"]


def test_the_fix_for_a_string_that_always_changes_is_to_leave_it_out() -> None:
    [finding] = findings_of(events_of(*(f"name == 'step{n}'" for n in range(4))))
    assert (finding.code, finding.fix.text.startswith("leave name out of Net.forward")) == ("TT224", True)


@pytest.mark.parametrize(("line", "expected"), [
    ("x = x.masked_fill(mask, 0.0)", "(all False: it fills nothing)"), ("x = x + mask", "(zeros: they are added)"),
    ("x = x * mask", "(ones: they multiply)"),
])
def test_the_mask_without_effect_fits_its_use(line: str, expected: str) -> None:
    lines = ("", "    def forward(self, x, mask=None):", f"        {line}")
    sources = {("/p/net.py", 5): Source(first_line=4, lines=lines, qualname="Net.forward")}
    [finding] = findings_of(events_of("mask is None"), sources=sources)
    assert finding.fix.text.endswith(expected)


def test_a_dropout_rate_is_not_wrapped_in_a_tensor() -> None:
    reasons = [f"rate == 0.{n}  # x = F.dropout(x, rate)  # net.py:6 in forward" for n in range(1, 5)]
    [finding] = findings_of(events_of(*reasons))
    assert "torch.rand_like(x) >= rate" in finding.fix.text
    assert "rate=torch.tensor" not in finding.fix.text


@pytest.mark.parametrize(("reasons", "code"), [((size(4, 1),), "TT221"), ((size(4, 5), size(5, 6)), "TT202")])
def test_a_shape_spec_is_offered_where_the_recorded_torch_has_it(reasons: tuple[str, ...], code: str) -> None:
    offered = {}
    for version in ("2.15.0+cu132", "2.14.1", "2.13.0+cpu", "mine", None):
        (finding,) = findings_of([STATIC, *events_of(*reasons)], torch=version)
        assert finding.code == code
        offered[version] = 'dynamic_shapes={"x": TensorSpec([...])}' in finding.fix.text
    assert offered == {"2.15.0+cu132": True, "2.14.1": True, "2.13.0+cpu": False, "mine": False, None: False}


def test_a_shape_spec_cannot_name_what_is_not_a_parameter() -> None:
    (finding,) = findings_of([STATIC, *events_of(size(4, 1, name="self.cache"))], torch="2.15.0")
    assert "dynamic_shapes=" not in finding.fix.text


def test_an_int_that_an_operator_needs_is_not_advised_to_be_a_tensor() -> None:
    line = "return F.max_pool1d(x, cfg.kernel)"
    reasons = [f"cfg.kernel == {n}  # {line}  # net.py:6 in forward" for n in range(2, 6)]
    [finding] = findings_of([replace(STATIC, dynamic=None), *events_of(*reasons)])
    assert (finding.code, "torch.tensor" in finding.fix.text) == ("TT204", False)
    assert "recompile_limit above their number" in finding.fix.text


def test_a_tensor_that_is_read_as_an_index_goes_through_index_select() -> None:
    reasons = [f"t.item() == {n}  # a = self.table[t]  # net.py:6 in forward" for n in range(4)]
    [finding] = findings_of(events_of(*reasons))
    assert (finding.code, ".index_select(0, t) instead of [t]" in finding.fix.text) == ("TT222", True)


@pytest.mark.parametrize("name", ["self.seen", "seen"])
def test_a_list_that_the_function_makes_longer_is_not_padded(name: str) -> None:
    line = f"{name}.append(x.mean())"
    reasons = [f"len({name}) == {n}  # {line}  # net.py:6 in forward" for n in range(4)]
    [finding] = findings_of(events_of(*reasons))
    assert finding.fix.text.startswith(f"take `{line}` out of Net.forward")


@pytest.mark.parametrize("reason", [
    "len(batch) != 1", "list(dict.keys(batch))[0] == 'a'", "___dict_contains('mask', batch)",
])
def test_a_dict_that_is_read_by_name_is_not_stacked(reason: str) -> None:
    lines = ("", "    def forward(self, batch):", "        if 'mask' in batch:", "            x = batch['x']")
    sources = {("/p/net.py", 5): Source(first_line=4, lines=lines, qualname="Net.forward")}
    [finding] = findings_of(events_of(reason), sources)
    assert finding.fix.text.startswith("give batch the same keys in every call: where one is missing")


def test_an_index_that_changed_once_needs_no_action() -> None:
    [finding] = findings_of([AUTOMATIC, *events_of("t == 3  # a = self.table[t]  # net.py:6 in forward")])
    assert finding.fix.text.startswith("nothing needs to change")


FLAGS = [(False, False), (True, False), (False, True), (True, True), (False, False)]


def flag_events(*, limit: bool) -> list[Event]:
    """A frame that two independent flags recompile; each reason names the first flag that differs from an entry."""
    events: list[Event] = [CompileStart(**PLACE, compile_id="0/0")]
    for number in range(1, 4):
        reasons = []
        for entry in reversed(range(number)):
            name, at = ("flip", 0) if FLAGS[entry][0] != FLAGS[number][0] else ("noise", 1)
            reasons.append(f"0/{entry}: self.{name} == {FLAGS[entry][at]}")
        events.append(Recompile(**PLACE, compile_id=f"0/{number}", reasons=tuple(reasons)))
        events.append(CompileStart(**PLACE, compile_id=f"0/{number}"))
    if limit:
        events.append(LimitHit(**PLACE, compile_id="0/4", limit=4, reasons=("0/3: self.flip == True",)))
    return events


def test_combinations_of_flags_get_a_limit_that_has_room_for_all_of_them() -> None:
    of_limit = [finding for finding in findings_of(flag_events(limit=True)) if "limit" in finding.title]
    assert of_limit[0].fix.text.startswith("torch._dynamo.config.recompile_limit = 4 before the first call: self.")
    assert "also keep" not in of_limit[0].fix.text


def test_combinations_of_flags_below_the_limit_need_no_change() -> None:
    assert {finding.severity for finding in findings_of(flag_events(limit=False))} == {Severity.P4}


def test_a_counter_that_is_branched_on_foretells_the_break() -> None:
    reasons = [f"self.left == {n}  # if self.left > 0:  # /p/net.py:6 in forward" for n in (3, 2, 1)]
    [finding] = findings_of(events_of(*reasons))
    assert "select with torch.where in place of `if self.left > 0:`, which would branch on a tensor" in finding.fix.text


def test_a_counter_in_a_call_of_math_needs_the_function_of_torch() -> None:
    reasons = [f"self.n == {n}  # beta = math.cos(self.n)  # /p/net.py:6 in forward" for n in (1, 2, 3)]
    assert "with torch.cos instead of math.cos" in findings_of(events_of(*reasons))[0].fix.text


def test_a_condition_on_a_number_is_not_padded() -> None:
    reason = "(step % 3) != 0  # if step % 3 == 0:  # mp/project/train.py:13 in loss_fn"
    [finding] = findings_of([AUTOMATIC, *events_of(reason)])
    assert "pad" not in finding.fix.text
    assert "test step before the call" in finding.fix.text
    assert "train.py:13" in finding.cause
    assert "mp/project" not in finding.cause + finding.fix.text


@pytest.mark.parametrize("reason", [
    "tensor 'x' dtype mismatch. expected Float, actual Double", "tensor 'x' rank mismatch. expected 2, actual 1",
    "tensor 'x' stride mismatch at index 0. expected 6, actual 1",
])
def test_a_single_change_of_a_tensor_that_settled_needs_no_action(reason: str) -> None:
    [settled] = findings_of([AUTOMATIC, *events_of(reason)])
    assert (settled.severity, settled.fix.text.startswith("nothing needs to change")) == (Severity.P4, True)
    [unseen] = findings_of(events_of(reason))
    assert not unseen.fix.text.startswith("nothing")


def test_a_global_that_counts_inside_is_to_be_counted_outside() -> None:
    reasons = [f"G['CALLS'] == {n}  # CALLS += 1  # /p/net.py:6 in forward" for n in (1, 2, 3)]
    fix = findings_of(events_of(*reasons))[0].fix.text
    assert fix.startswith("take `CALLS += 1` out of Net.forward: count outside, and pass CALLS as an argument")
    read = [reason.replace("+= 1", "* x") for reason in reasons]
    assert findings_of(events_of(*read))[0].fix.text.startswith("pass CALLS to Net.forward as an argument")


def test_a_number_of_a_closure_has_its_own_name() -> None:
    held, other = (f"G['weight'].__closure__[{cell}].cell_contents" for cell in (0, 1))
    hint = "  # calls += 1  # /p/net.py:6 in weight (HINT: guard on \"calls\")"
    events: list[Event] = []
    for event in events_of(*(f"{held} == {n}{hint}" for n in (1, 2, 3))):
        events.append(event)
        if isinstance(event, CompileEnd):
            number = str(event.compile_id)[2:]
            events += [
                GuardValue(compile_id=event.compile_id, source=source, value=value)
                for source, value in ((held, number), (other, "20"))
            ]
    [finding] = findings_of(events)
    assert finding.title.endswith("calls, which a nested function holds, changes")
    assert "guard: calls == 1" in finding.cause
    assert "weight" not in finding.fix.text


def test_a_number_of_a_closure_that_would_recompile_next_is_named_by_its_function() -> None:
    events: list[Event] = []
    for event in events_of(*("tensor 'x' size mismatch at index 0. expected 4, actual 5" for _ in range(3))):
        events.append(event)
        if isinstance(event, CompileEnd):
            number = str(event.compile_id)[2:]
            held = "L['score'].__closure__[0].cell_contents"
            events.append(GuardValue(compile_id=event.compile_id, source=held, value=number))
    text = " ".join(finding.fix.text for finding in findings_of(events))
    assert "then the value that score holds would recompile: it is an int that changes" in text


def test_a_float_of_a_wrapped_function_is_named_by_its_position() -> None:
    fix = findings_of(events_of(*(f"args[1] == {n / 2}" for n in (1, 2, 3))))[0].fix.text
    assert "pass a tensor as argument 2 before the call" in fix
    assert "args" not in fix
