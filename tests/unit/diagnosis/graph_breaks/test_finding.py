"""Graph breaks become one finding each, with their frames, cost, owner and fix."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.samples import source_lines
from torchtriage.diagnosis.graph_breaks.finding import MAX_TITLE, graph_breaks
from torchtriage.findings.checks import sentence
from torchtriage.findings.model import Check, CheckKind, CostKind, Finding, OwnerKind, Severity
from torchtriage.recording.events import (
    CompileEnd,
    CompileStart,
    FrameSkipped,
    GapTime,
    GraphBreak,
    Recompile,
    StackEntry,
)
from torchtriage.recording.recording import Process, Source

APP = "/app/model.py"
LIB = "/venv/lib/python3.11/site-packages/lib/net.py"
TORCH = "/venv/lib/python3.11/site-packages/torch"
RESUME = "torch_dynamo_resume_in_forward_at_14"
FACTS = {"your_roots": ["/app"], "libraries": {"lib": ("lib-dist", "1.2")}}
PRINT = {
    "type": "Failed to trace builtin operator", "gb_id": "GB0059",
    "explanation": "builtin operator `print` with argument types ['str']",
}
BRANCH = {"type": "Data-dependent branching", "gb_id": "GB0170", "explanation": "Detected data-dependent branching."}


def entry(path: str = APP, line: int = 14, function: str = "forward", code: str = "print('a')") -> StackEntry:
    return StackEntry(path=path, line=line, function=function, code=code)


def a_break(*stack: StackEntry, **fields) -> GraphBreak:
    stack = stack or (entry(),)
    last = stack[-1]
    place = {"path": last.path, "line": last.line, "function": last.function, "stack": stack, "compile_id": "0/0"}
    return GraphBreak(**{**place, **PRINT, **fields})


def a_start(
    compile_id: str, function: str, path: str = APP, line: int = 10, stack: tuple[StackEntry, ...] = (),
) -> CompileStart:
    own = StackEntry(path=path, line=line, function=function)
    return CompileStart(path=path, line=line, function=function, compile_id=compile_id, stack=(*stack, own))


def an_end(
    compile_id: str, function: str, seconds: float | None, path: str = APP, line: int = 10, **fields,
) -> CompileEnd:
    return CompileEnd(path=path, line=line, function=function, compile_id=compile_id, seconds=seconds, **fields)


def diagnose(*events, facts=FACTS, sources=None) -> list[Finding]:
    return list(graph_breaks(Process(events=events, facts=facts, sources=sources or {})))


def the_one(*events, **kwargs) -> Finding:
    findings = diagnose(*events, **kwargs)
    assert len(findings) == 1
    return findings[0]


def test_a_run_without_breaks_has_no_finding() -> None:
    assert diagnose(a_start("0/0", "forward"), an_end("0/0", "forward", 1.0)) == []


def test_a_print_is_one_finding_with_place_cause_and_fix() -> None:
    finding = the_one(a_break(step=3, rank=0))
    assert (finding.code, finding.slug, finding.severity, finding.upstream) == (
        "TT101", "print-in-graph", Severity.P3, "GB0059",
    )
    assert finding.title == "print() breaks forward"
    assert str(finding.location) == "/app/model.py:14"
    assert finding.owner.kind is OwnerKind.YOU
    assert finding.cause.startswith("Failed to trace builtin operator: builtin operator `print`")
    assert "move `print('a')` at model.py:14 out of the compiled function" in finding.fix.text
    assert [sentence(check) for check in finding.verification] == [
        "0 graph breaks at model.py:14 in the next recording"
    ]
    assert (finding.steps, finding.ranks) == ((3,), (0,))


def test_the_same_break_in_several_compiles_is_one_finding() -> None:
    finding = the_one(*(a_break(compile_id=f"0/{n}", step=n) for n in range(30)))
    assert finding.evidence.num_events == 30
    assert len(finding.evidence.compile_ids) == 20
    assert finding.steps == tuple(range(30))


def test_a_break_that_2_9_logs_with_and_without_its_id_is_one_finding() -> None:
    finding = the_one(a_break(**BRANCH | {"gb_id": None}), a_break(**BRANCH, compile_id="1/0"))
    assert (finding.evidence.num_events, finding.upstream) == (2, "GB0170")


def test_two_causes_at_one_line_are_two_findings() -> None:
    assert sorted(f.code for f in diagnose(a_break(), a_break(**BRANCH))) == ["TT101", "TT103"]


def test_the_rank_of_the_process_is_used_if_the_event_has_none() -> None:
    assert the_one(a_break(), facts={**FACTS, "rank": 2}).ranks == (2,)


def test_source_lines_come_from_the_recording() -> None:
    source = Source(first_line=13, lines=("y = x + 1", "print('kept')", "return y"), qualname="Policy.forward")
    finding = the_one(a_break(), sources={(APP, 14): source})
    assert finding.evidence.source == source_lines("y = x + 1", "print('kept')", "return y", first=13, at=14)
    assert finding.title == "print() breaks Policy.forward"
    assert "`print('kept')`" in finding.fix.text


def test_a_break_raised_in_the_standard_library_shows_the_line_of_the_user() -> None:
    inside = entry("/usr/lib/python3.11/logging/__init__.py", 1488, "info", "if self.isEnabledFor(INFO):")
    sources = {
        (APP, 14): Source(first_line=14, lines=("log.info(x)",), qualname="Policy.forward"),
        (inside.path, 1488): Source(first_line=1488, lines=(inside.code,), qualname="Logger.info"),
    }
    finding = the_one(a_break(entry(code="log.info(x)"), inside), sources=sources)
    assert (str(finding.location), finding.raised_at.line) == ("/app/model.py:14", 1488)
    assert finding.evidence.source == source_lines("log.info(x)", first=14, at=14)


def test_resume_frames_are_folded_into_their_break() -> None:
    finding = the_one(
        a_start("0/0", "forward"), a_break(),
        a_start("1/0", RESUME, line=14), an_end("1/0", RESUME, 0.7, line=14),
        Recompile(path=APP, line=14, function=RESUME, compile_id="1/1"),
        a_start("1/1", RESUME, line=14), an_end("1/1", RESUME, 0.5, line=14),
    )
    assert finding.evidence.folded == (f"{RESUME}: 2 compiles, 1 recompile, 1.20 s",)
    assert finding.cost.seconds == 1.2
    assert finding.cost.kind is CostKind.OBSERVED
    assert "run-time cost not measured" in finding.cost.note
    assert Check(CheckKind.NO_RESUME_FUNCTION, RESUME) in finding.verification


def test_compiles_that_were_not_timed_have_an_unknown_cost() -> None:
    finding = the_one(
        a_start("0/0", "forward"), a_break(), a_start("1/0", RESUME, line=14), an_end("1/0", RESUME, None, line=14),
    )
    assert (finding.cost.seconds, finding.cost.kind) == (None, CostKind.NOT_MEASURED)
    assert finding.evidence.folded == (f"{RESUME}: 1 compile",)


def test_a_resume_frame_of_two_breaks_is_listed_in_both_and_counted_in_none() -> None:
    callee = entry(line=40, function="helper", code="if y > 0:")
    findings = diagnose(
        a_start("0/0", "forward"), a_break(), a_break(entry(), callee, **BRANCH),
        a_start("1/0", RESUME, line=14), an_end("1/0", RESUME, 0.7, line=14),
    )
    assert [f.evidence.folded for f in findings] == [(f"{RESUME}: 1 compile, 700 ms",)] * 2
    assert [f.cost.seconds for f in findings] == [None, None]
    assert all("counted under none" in f.evidence.notes[0] for f in findings)


def test_measured_gaps_give_seconds_and_milliseconds_per_step() -> None:
    events = (
        a_start("0/0", "forward"), a_break(), a_start("1/0", RESUME, line=14), an_end("1/0", RESUME, 0.7, line=14),
        GapTime(compile_id="0/0", to_compile_id="1/0", calls=100, seconds=0.5),
        GapTime(compile_id="0/0", to_compile_id="7/0", calls=100, seconds=9.0),
    )
    finding = the_one(*events, facts={**FACTS, "num_steps": 100})
    assert (finding.cost.seconds, finding.cost.ms_per_step, finding.cost.kind) == (0.5, 5.0, CostKind.OBSERVED)
    assert "not measured" not in finding.cost.note
    assert the_one(*events).cost.ms_per_step is None


def test_a_whole_frame_break_is_p1_and_keeps_its_cause() -> None:
    finding = the_one(a_start("0/0", "forward"), a_break(whole_frame=True))
    assert (finding.code, finding.severity) == ("TT119", Severity.P1)
    assert finding.title == "print() sends all of forward to eager"
    assert "underlying rule: TT101 print-in-graph" in finding.evidence.notes
    assert finding.cause.startswith("Failed to trace builtin operator")
    assert finding.cause.endswith("so all of forward runs eager")
    assert "reorderable_logging_functions.add(print)" in finding.fix.text
    assert Check(CheckKind.NOT_EAGER, "forward") in finding.verification


def test_the_frame_that_runs_eager_is_shown_by_its_qualified_name() -> None:
    source = Source(first_line=14, lines=("print('a')",), qualname="Policy.forward")
    finding = the_one(a_start("0/0", "forward"), a_break(whole_frame=True), sources={(APP, 14): source})
    assert finding.title == "print() sends all of Policy.forward to eager"


def test_a_loop_is_named_as_the_block_that_cannot_be_cut() -> None:
    explanation = PRINT["explanation"] + " It is in a for/while loop."
    assert "inside a for or while loop" in the_one(a_break(whole_frame=True, explanation=explanation)).cause


def test_a_frame_that_was_skipped_makes_its_break_a_whole_frame_break() -> None:
    skip = FrameSkipped(path=APP, line=10, function="forward", reason="an error was suppressed during compilation")
    assert the_one(a_start("0/0", "forward"), a_break(), skip).code == "TT119"


def test_a_skip_that_is_unrelated_to_the_break_does_not_count() -> None:
    harmless = FrameSkipped(path=APP, function="forward", reason="frame is in the Dynamo skipfiles list")
    other = FrameSkipped(path=APP, function="other", reason="an error was suppressed during compilation")
    error = FrameSkipped(path=APP, function="forward", reason="an error was suppressed during compilation")
    assert the_one(a_start("0/0", "forward"), a_break(), harmless, other).code == "TT101"
    assert the_one(
        a_start("0/0", "forward"), a_break(), an_end("0/0", "forward", 1.0, produced_code=True), error,
    ).code == "TT101"


def test_a_skip_is_attributed_to_the_break_that_ended_the_compile() -> None:
    skip = FrameSkipped(path=APP, function="forward", reason="an error was suppressed during compilation")
    gave_up = a_break(entry(line=20, code="if y > 0:"), whole_frame=True, **BRANCH)
    findings = diagnose(a_start("0/0", "forward"), a_break(), gave_up, skip)
    assert {f.location.line: f.code for f in findings} == {14: "TT101", 20: "TT119"}


def test_an_eager_resume_frame_is_the_rest_of_its_function() -> None:
    event = a_break(entry(line=20), compile_id="1/0", whole_frame=True)
    assert the_one(a_start("1/0", RESUME, line=14), event).title == "print() sends the rest of forward to eager"


def test_a_break_in_a_helper_is_less_severe() -> None:
    main = entry("/app/train.py", 3, "<module>", "f(x)")
    events = (
        a_start("0/0", "forward", stack=(main,)), a_start("1/0", "helper", line=30, stack=(main,)),
        a_break(
            main, entry(line=14, code="helper(x)"), entry(line=33, function="helper"), compile_id="1/0",
            whole_frame=True,
        ),
    )
    finding = the_one(*events)
    assert (finding.code, finding.severity, finding.title) == (
        "TT119", Severity.P2, "print() sends all of helper to eager",
    )


def test_reused_compile_ids_after_a_reset_do_not_mix_frames() -> None:
    finding = the_one(
        a_start("0/0", "forward"), an_end("0/0", "forward", 1.0, produced_code=True),
        a_start("0/0", "other", line=50), a_break(entry(line=52, function="other"), whole_frame=True),
    )
    assert finding.title == "print() sends all of other to eager"


def test_a_cause_that_always_skips_the_frame_keeps_its_code() -> None:
    finding = the_one(
        a_break(type="Attempted to wrap RNN, GRU, or LSTM", gb_id="GB0014", context="LSTM(4, 8)", whole_frame=True)
    )
    assert (finding.code, finding.severity) == ("TT117", Severity.P1)
    assert finding.title == "nn.LSTM sends all of forward to eager"


def test_an_explicit_skip_frame_call_keeps_its_code() -> None:
    finding = the_one(a_break(type="Call to `torch._dynamo.skip_frame()`", gb_id="GB4297", whole_frame=True))
    assert (finding.code, finding.severity) == ("TT120", Severity.P4)


def test_a_break_in_a_library_says_what_the_user_can_do() -> None:
    stack = (entry("/app/train.py", 3, "<module>", "loss = model(x)"), entry(LIB, 99, "encode", "if y.sum() > 0:"))
    finding = the_one(a_break(*stack, **BRANCH))
    assert str(finding.location) == "/app/train.py:3"
    assert str(finding.raised_at) == f"{LIB}:99"
    assert str(finding.owner) == "lib-dist 1.2"
    assert finding.title == "the branch on `y.sum() > 0` breaks encode (lib-dist)"
    assert "lib-dist 1.2 (net.py:99)" in finding.fix.text
    assert "torch.compiler.disable on lib.net.encode" in finding.fix.text


def test_disabling_a_complete_forward_is_not_advised() -> None:
    stack = (entry("/app/train.py", 3, "<module>", "loss = model(x)"), entry(LIB, 99, "forward", "if y.sum() > 0:"))
    assert "compile only the parts that do not reach lib.net" in the_one(a_break(*stack, **BRANCH)).fix.text


def test_a_setting_that_fixes_a_library_line_comes_first() -> None:
    stack = (entry("/app/train.py", 3, "<module>", "loss = model(x)"), entry(LIB, 99, "encode", "n = int(idx.max())"))
    finding = the_one(a_break(*stack, type="Unsupported Tensor.item() call", gb_id="GB0124"))
    assert finding.fix.text.startswith(
        "torch._dynamo.config.capture_scalar_outputs = True at start-up: the line is in lib-dist"
    )


def test_the_title_does_not_name_a_function_of_torch() -> None:
    optim = entry(f"{TORCH}/optim/optimizer.py", 79, "_use_grad", "torch._dynamo.graph_break()")
    finding = the_one(
        a_break(entry(code="opt.step()"), optim, type="Call to `torch._dynamo.graph_break()`", gb_id="GB0025")
    )
    assert (finding.code, finding.title) == ("TT118", "the optimizer step breaks forward")


def test_fingerprint_ignores_line_numbers_and_differs_by_place() -> None:
    one, = diagnose(a_break())
    moved, = diagnose(a_break(entry(line=99)))
    assert one.fingerprint == moved.fingerprint
    same_text = diagnose(a_break(), a_break(entry(line=20)), a_break(entry(line=30)))
    assert len({f.fingerprint for f in same_text}) == 3
    assert same_text[0].fingerprint == one.fingerprint


def test_library_breaks_below_one_user_line_have_separate_fingerprints() -> None:
    top = entry("/app/train.py", 3, "<module>", "loss = model(x)")
    findings = diagnose(*(a_break(top, entry(LIB, n, "encode", f"if y[{n}] > z{n}:"), **BRANCH) for n in (5, 6)))
    assert len({f.fingerprint for f in findings}) == 2


def test_a_fragment_without_place_or_reason_is_still_a_finding() -> None:
    finding = the_one(GraphBreak())
    assert (finding.code, str(finding.location)) == ("TT199", "unknown")
    assert finding.cause == "PyTorch gives no reason"
    assert finding.title
    assert finding.fix.text


def test_a_file_name_that_is_not_utf8_does_not_raise() -> None:
    assert len(the_one(a_break(entry("/app/\udcff.py"))).fingerprint) == 16


texts = st.text(max_size=30) | st.sampled_from(
    ["print('a')", "if x:", RESUME, "Data-dependent branching", "graph break in loop"]
)
paths = st.sampled_from(["unknown", "", APP, LIB, "<stdin>", "/app/\udcff.py", "C:\\x\\y.py", f"{TORCH}/a.py"])
lines = st.none() | st.integers(-1, 3)
ids = st.none() | st.sampled_from(["0/0", "1/0", "!0/1/2", "x"])
stacks = st.lists(
    st.builds(StackEntry, path=paths, line=st.integers(-1, 3), function=texts, code=texts), max_size=3,
).map(tuple)
places = {
    "path": paths, "line": lines, "function": texts, "stack": stacks, "compile_id": ids, "step": lines, "rank": lines,
}
gb_ids = st.none() | st.sampled_from(["GB0059", "GB7000", "GB0124", "é"])
breaks = st.builds(
    GraphBreak, type=texts, gb_id=gb_ids, explanation=texts, context=texts,
    hints=st.lists(texts, max_size=2).map(tuple), whole_frame=st.booleans(), **places,
)
others = (
    st.builds(CompileStart, **places) | st.builds(Recompile, **places) | st.builds(FrameSkipped, reason=texts, **places)
    | st.builds(CompileEnd, seconds=st.none() | st.floats(0, 9), produced_code=st.none() | st.booleans(), **places)
    | st.builds(GapTime, compile_id=ids, to_compile_id=ids.map(str), seconds=st.floats(0, 9))
)


@settings(max_examples=300)
@given(
    events=st.lists(breaks | others, max_size=8),
    facts=st.sampled_from([{}, FACTS, {"num_steps": 0, "your_roots": None}]),
)
def test_malformed_events_never_raise_and_none_is_lost(events: list, facts: dict) -> None:
    findings = diagnose(*events, facts=facts)
    assert sum(f.evidence.num_events for f in findings) == sum(isinstance(e, GraphBreak) for e in events)
    assert all(f.title and len(f.title) <= MAX_TITLE and f.fix.text and f.cause and f.fingerprint for f in findings)
    assert len({f.fingerprint for f in findings}) == len(findings)


def test_the_stack_with_the_most_user_lines_gives_the_place() -> None:
    call, inner, broken = entry(line=30, function="<module>"), entry(line=12), entry(LIB, 650, "loops", "x[mask]")
    finding = the_one(a_break(call, broken), a_break(call, inner, broken, compile_id="1/0"))
    assert (str(finding.location), str(finding.raised_at)) == ("/app/model.py:12", f"{LIB}:650")


def test_a_torch_line_below_a_library_is_fixed_at_the_library_line() -> None:
    hook = entry(LIB, 138, "install", "module.register_forward_hook(hook)")
    handle = entry(f"{TORCH}/utils/hooks.py", 27, "__init__", "next_id += 1")
    finding = the_one(a_break(entry(), hook, handle, type="setattr", gb_id="GB0467"))
    assert finding.fix.text.startswith("the line is in lib-dist 1.2 (net.py:138)")
    assert "torch.compiler.disable on lib.net.install (one break remains, at its call)" in finding.fix.text


def test_disabling_a_nested_function_is_not_advised() -> None:
    broken = a_break(entry(), entry(LIB, 40, "g", "if x.sum() > 0:"), **BRANCH)
    for qualname, is_advised in (("cached.g", False), ("Cache.g", True)):
        source = Source(first_line=40, lines=("x",), qualname=qualname)
        finding = the_one(broken, sources={(LIB, 40): source})
        assert (f"torch.compiler.disable on lib.net.{qualname}" in finding.fix.text) is is_advised


def test_a_frame_that_runs_eager_is_not_named_after_another_class() -> None:
    sources = {
        (APP, 10): Source(first_line=10, lines=("x",), qualname="Outer.forward"),
        (LIB, 40): Source(first_line=40, lines=("x",), qualname="Inner.forward"),
    }
    finding = the_one(
        a_start("0/0", "forward"), a_break(entry(line=14), entry(LIB, 40), whole_frame=True), sources=sources,
    )
    assert finding.title == "print() sends all of Outer.forward (lib-dist) to eager"
    assert "cannot resume after the call at model.py:14" in finding.cause


def test_a_long_title_omits_the_library_first() -> None:
    name = "f" * 75
    assert the_one(a_break(entry(), entry(LIB, 40, name))).title == f"print() breaks {name}"


def test_the_error_traced_before_a_failed_backend_is_not_a_second_finding() -> None:
    error = a_break(
        type="torch._subclasses.fake_tensor.DataDependentOutputException: aten.item", gb_id=None, explanation="",
    )
    failure = a_break(type="Backend compiler exception", gb_id="GB0219", explanation="failed")
    assert the_one(error, failure).upstream == "GB0219"
    assert the_one(error).upstream is None


def test_a_cause_has_no_memory_address() -> None:
    finding = the_one(a_break(explanation="cannot rebuild <function f at 0x7fe97ab19080>"))
    assert "<function f>" in finding.cause


def test_a_failed_backend_is_not_reported_as_a_block_that_cannot_be_cut() -> None:
    failure = a_break(type="Backend compiler exception", gb_id="GB0219", explanation="x", whole_frame=True)
    finding = the_one(a_start("0/0", "forward"), failure)
    assert finding.code == "TT123"
    assert "cannot resume" not in finding.cause


def test_a_recurrent_module_in_a_library_mentions_the_cost_of_tracing_it() -> None:
    lstm = a_break(
        entry(), entry(LIB, 40, "encode", "h = self.lstm(x)"), type="Attempted to wrap RNN, GRU, or LSTM",
        gb_id="GB0014",
    )
    finding = the_one(lstm)
    assert finding.fix.text.startswith("torch._dynamo.config.allow_rnn = True at start-up")
    assert "slow to compile" in finding.fix.text


def test_a_function_that_is_left_to_eager_names_its_next_break() -> None:
    lines = ("def forward(xs):", "    for x in xs:", "        y = x", "", "        print('a')", "        print('b')")
    sources = {(APP, 14): Source(first_line=10, lines=lines, qualname="forward")}
    events = (a_start("0/0", "forward"), a_break(whole_frame=True), an_end("0/0", "forward", 1.0, produced_code=False))
    [finding] = diagnose(*events, sources=sources)
    assert finding.code == "TT119"
    assert finding.fix.text.endswith("; if only this line is changed, model.py:15 breaks next, in the same way")
    [cut] = diagnose(a_start("0/0", "forward"), a_break(), an_end("0/0", "forward", 1.0), sources=sources)
    assert "breaks next" not in cut.fix.text    # the rest was traced, and its breaks have their own findings


IN_STEP = {"type": "Call to `torch._dynamo.graph_break()`", "gb_id": "GB0025", "explanation": "User-inserted."}
STEP = {"path": f"{TORCH}/optim/optimizer.py", "function": "wrapper", "line": 500}
CUT = entry(path=f"{TORCH}/optim/optimizer.py", line=79, function="_use_grad", code="torch._dynamo.graph_break()")


def test_the_cut_of_torch_in_a_step_that_is_compiled_alone_needs_no_action() -> None:
    call = entry(line=19, function="<module>", code="step()")
    start = CompileStart(**STEP, compile_id="0/0", stack=(call, entry(**STEP, code="return func(*args)")))
    [finding] = diagnose(start, a_break(call, CUT, **IN_STEP))
    assert (finding.code, finding.severity) == ("TT118", Severity.P4)
    assert finding.fix.text.startswith("nothing to do")


def test_the_same_cut_inside_a_function_of_the_user_is_to_be_taken_out() -> None:
    call = entry(line=19, function="update", code="optimizer.step()")
    start = a_start("0/0", "update")
    [finding] = diagnose(start, a_break(call, CUT, **IN_STEP))
    assert (finding.code, finding.severity) == ("TT118", Severity.P3)
    assert "outside this compiled function" in finding.fix.text


def test_a_step_that_a_scheduler_wrapped_is_to_be_compiled_before_the_scheduler() -> None:
    wrapper = entry(path=f"{TORCH}/_dynamo/external_utils.py", line=69, function="inner", code="return fn(*args)")
    skipped = f"function `Adam.step` in file `{TORCH}/optim/lr_scheduler.py` should not be traced."
    [finding] = diagnose(a_break(
        entry(line=19, function="<module>", code="step()"), wrapper, gb_id="GB0007", explanation=skipped,
        type="Attempted to call function marked as skipped",
    ))
    assert finding.code == "TT118"
    assert finding.fix.text.startswith("call torch.compile(opt.step) before a scheduler is made")


def test_the_cut_of_torch_in_a_function_that_only_steps_needs_no_action() -> None:
    call = entry(line=11, function="opt_step", code="opt.step()")
    alone = Source(first_line=9, lines=("@torch.compile", "def opt_step():", "    opt.step()"))
    events = (a_start("0/0", "opt_step"), a_break(call, CUT, **IN_STEP))
    [finding] = diagnose(*events, sources={(APP, 11): alone})
    assert finding.severity is Severity.P4
    assert finding.fix.text.startswith("nothing to do")
    within = (a_start("0/0", "train"), a_break(entry(line=30, function="train"), call, CUT, **IN_STEP))
    [finding] = diagnose(*within, sources={(APP, 11): alone})
    assert finding.severity is Severity.P3
    more = Source(first_line=8, lines=("@torch.compile", "def train():", "    loss = f()", "    opt.step()"))
    [finding] = diagnose(*events, sources={(APP, 11): more})
    assert finding.severity is Severity.P3


def test_a_function_of_the_standard_library_has_the_name_that_the_line_gives_it() -> None:
    line = entry(code="n = int(hashlib.md5(name.encode()).hexdigest(), 16)")
    [finding] = diagnose(a_break(
        line, type="Attempted to call function marked as skipped", gb_id="GB0007",
        explanation="Dynamo does not know how to trace the builtin `_hashlib.openssl_md5.`",
        context="module: _hashlib, qualname: openssl_md5, skip reason: <missing reason>",
    ))
    assert finding.title.startswith("the call to hashlib.md5 breaks")


def test_an_identifier_is_not_drawn_as_a_random_number() -> None:
    [finding] = diagnose(a_break(
        entry(code="tag = uuid4()"), type="Attempted to call function marked as skipped", gb_id="GB0007",
        explanation="Dynamo does not know how to trace the builtin `posix.urandom.`",
        context="module: posix, qualname: urandom, skip reason: <missing reason>",
    ))
    assert finding.fix.text.startswith("call posix.urandom outside the compiled function")
