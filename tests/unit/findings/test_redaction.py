"""A redacted report contains only public facts, in every field."""

import dataclasses
import enum
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from tests.unit.reporters.study_samples import clear_win
from tests.unit.samples import a_finding, a_recording
from torchtriage.config import FORMATS
from torchtriage.diagnosis.report import not_seen, watched
from torchtriage.findings.checks import sentence
from torchtriage.findings.history import Curve, FrameHistory, History, Moment, MomentKind, ProcessHistory
from torchtriage.findings.model import Cost, CostKind, Evidence, Finding, Location, Owner, OwnerKind, Severity
from torchtriage.findings.redaction import NOT_NAMED, redacted
from torchtriage.findings.report import SHAPES, Report
from torchtriage.findings.shape_study import Advice
from torchtriage.findings.tap_state import TapState, TapStatus

SECRET = "5ecret"


def filled(hint: Any, name: str) -> Any:
    """A value of this type in which every string is a secret that says where it stood, however the type is built."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in (str, Any):
        return f"{SECRET} {name}"
    if hint in (int, float, bool):
        return hint(1)
    if origin in (types.UnionType, typing.Union):
        return filled(next(arg for arg in args if arg is not type(None)), name)
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return hint(
            **{
                field.name: filled(hints[field.name], f"{hint.__name__}.{field.name}")
                for field in dataclasses.fields(hint)
            }
        )
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return list(hint)[1]
    if origin is tuple and args[-1] is not Ellipsis:
        return tuple(filled(arg, name) for arg in args)
    if origin in (tuple, Sequence):
        return (filled(args[0], name),)
    assert origin is Mapping, f"{name}: teach this test to fill {hint}"
    return {key: filled(args[1], f"{name}.{key}") for key in KEYS}


# Every known key of the mappings in a report, and an unknown one.
KEYS = (
    "argv", "cwd", "executable", "host", "python", "torch", "platform", "cpu_count", "environment", "torchtriage",
    "start", "end", "origin", "path", "exit_status", "num_processes", "ranks", "function", "gb_id", "type", "reason",
    "reasons", "compile_id", "line", "step", "rank", "time", "graph_breaks", "recompiles",
    f"{SECRET} key",
)


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from strings(getattr(value, field.name))
    elif isinstance(value, Mapping):
        yield from strings([*value.keys(), *value.values()])
    elif isinstance(value, Sequence):
        for item in value:
            yield from strings(item)
    else:
        assert isinstance(value, (int, float, type(None))), f"what is a {type(value).__name__}?"


FULL: Report = filled(Report, "report")


def test_the_hand_made_report_has_a_secret_in_every_string() -> None:
    """So that the tests below cannot pass by default."""
    assert len([text for text in strings(FULL) if SECRET in text]) > 60
    assert {f"{SECRET} Finding.title", f"{SECRET} CompileEntry.values", f"{SECRET} Link.detail"} <= set(strings(FULL))


def test_no_string_of_any_field_gets_through() -> None:
    assert [text for text in strings(redacted(FULL)) if SECRET in text] == []


# Numbers that could identify a program, a machine or a day.
NUMBERS_THAT_GO = {
    "ProcessHistory.pid", "History.start", "Report.run", "Report.totals", "Report.events", "Fix.safe", "Branch.edges",
}


def test_every_other_number_stays() -> None:
    """A count or time that is added to a type, and forgotten in the redaction, would vanish from redacted reports."""
    steps = dataclasses.replace(FULL.history.curves[0], name="step_seconds")
    report = dataclasses.replace(FULL, history=dataclasses.replace(FULL.history, curves=(steps,)))
    assert list(lost_numbers(report, redacted(report))) == []


def lost_numbers(before: Any, after: Any, name: str = "") -> Iterator[str]:
    if name in NUMBERS_THAT_GO:
        return
    if dataclasses.is_dataclass(before):
        for field in dataclasses.fields(before):
            parts = (getattr(value, field.name) for value in (before, after))
            yield from lost_numbers(*parts, f"{type(before).__name__}.{field.name}")
    elif isinstance(before, (list, tuple)):
        for pair in zip(before, after, strict=not any(strings(before))):
            yield from lost_numbers(*pair, name)
    elif isinstance(before, (int, float)) and before != after:
        yield name


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "text"])
def test_no_format_shows_what_was_redacted(name: str) -> None:
    reporter = pytest.importorskip(f"torchtriage.reporters.{name}")
    assert SECRET in reporter.render(FULL)
    assert SECRET not in reporter.render(redacted(FULL))


def test_the_terminal_does_not_show_redacted_text() -> None:
    from torchtriage.reporters import terminal

    assert SECRET not in terminal.render(redacted(FULL), verbose=True)


def the_one(**fields: Any) -> Finding:
    [finding] = redacted(Report(findings=[a_finding(**fields)])).findings
    return finding


def test_texts_come_from_the_rule_page() -> None:
    finding = the_one(code="TT204", title="SecretModel.f recompiled", severity=Severity.P1)
    assert (finding.code, finding.slug, finding.title) == ("TT204", "changing-int-argument", "changing int argument")
    assert finding.severity is Severity.P1
    assert finding.cause.startswith(
        "A Python int that reaches a compiled function is a constant of the graph at first."
    )
    assert finding.fix.text.startswith(
        "Pass the number as a tensor and use tensor operations on it; change it in place with `fill_`. Look"
    )
    assert [sentence(check) for check in finding.verification] == [
        "`torchtriage run` again: at most one recompile on this name."
    ]


def test_numbers_are_not_redacted() -> None:
    cost = Cost(seconds=61.2, share=0.25, ms_per_step=1.5, kind=CostKind.OBSERVED, note="of SecretModel")
    finding = the_one(
        cost=cost,
        evidence=Evidence(num_events=7, compile_ids=("0/1", "2/0")),
        ranks=(0, 1),
        steps=(4,),
        upstream="GB0059",
    )
    assert finding.cost == dataclasses.replace(cost, note="")
    assert finding.evidence == Evidence(num_events=7, compile_ids=("0/1", "2/0"))
    assert (finding.ranks, finding.steps, finding.upstream) == ((0, 1), (4,), "GB0059")


def test_a_private_place_has_the_same_pseudonym_everywhere() -> None:
    here, there = (
        Location(path="/home/me/a.py", line=3, function="A.f"),
        Location(path="/home/me/b.py", line=9, function="A.f"),
    )
    report = redacted(Report(
        findings=[a_finding(location=here, raised_at=there), a_finding(location=there)],
        events={"graph_breaks": [{"path": "/home/me/b.py", "line": 9, "function": "A.f", "gb_id": "GB0059"}]},
        history=History(frames=(FrameHistory(name="A.f", location=here, process=0),)),
        unused_suppressions=["/home/me/b.py:7: ignore[TT101,SECRET]"],
    ))
    first, second = report.findings
    assert first.location == Location(path="file-1.py", line=3, function="function-1")
    assert first.raised_at == second.location == Location(path="file-2.py", line=9, function="function-2")
    assert report.events["graph_breaks"][0]["path"] == "file-2.py"
    assert report.events["graph_breaks"][0]["gb_id"] == "GB0059"
    assert (report.history.frames[0].name, report.history.frames[0].location.path) == ("function-1", "file-1.py")
    assert report.unused_suppressions == ["file-2.py:7: ignore[TT101]"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (
            "/home/me/.venv/lib/python3.11/site-packages/torch/nn/modules/linear.py",
            "site-packages/torch/nn/modules/linear.py",
        ),
        ("C:\\Users\\me\\venv\\Lib\\site-packages\\timm\\x.py", "site-packages/timm/x.py"),
        ("/usr/lib/python3/dist-packages/numpy/x.py", "dist-packages/numpy/x.py"),
        ("/home/me/.pyenv/lib/python3.11/contextlib.py", "lib/python3.11/contextlib.py"),
        ("/home/me/lib/python3.11/mymodel.py", "file-1.py"), ("/home/me/train.py", "file-1.py"),
        ("train.py", "file-1.py"), ("<mystring>", "file-1.py"), ("unknown", "unknown"),
    ],
)
def test_a_public_path_keeps_only_its_part_below_site_packages(path: str, expected: str) -> None:
    assert the_one(location=Location(path=path, line=3)).location == Location(path=expected, line=3)


def test_functions_of_libraries_keep_their_names() -> None:
    assert (
        the_one(location=Location(path="/v/site-packages/timm/x.py", function="Block.forward")).location.function
        == "Block.forward"
    )
    assert the_one(location=Location(path="/home/me/x.py", function="<module>")).location.function == "<module>"


@pytest.mark.parametrize(
    ("owner", "path", "expected"),
    [
        (Owner(kind=OwnerKind.YOU), "/home/me/x.py", Owner(kind=OwnerKind.YOU)),
        (
            Owner(kind=OwnerKind.LIBRARY, name="timm", version="1.0.3"),
            "/v/x.py",
            Owner(kind=OwnerKind.LIBRARY, name="timm", version="1.0.3"),
        ),
        (
            Owner(kind=OwnerKind.LIBRARY, name="timm"),
            "/v/site-packages/timm/x.py",
            Owner(kind=OwnerKind.LIBRARY, name="timm"),
        ),
        (
            Owner(kind=OwnerKind.LIBRARY, name="secretfolder"),
            "/home/secretfolder/x.py",
            Owner(kind=OwnerKind.LIBRARY, name="a library"),
        ),
    ],
)
def test_a_library_keeps_its_name_if_it_is_installed(owner: Owner, path: str, expected: Owner) -> None:
    assert the_one(owner=owner, location=Location(path=path)).owner == expected


def test_fingerprints_become_pseudonyms_that_still_link() -> None:
    limit, cause = redacted(Report(findings=[
        a_finding(fingerprint="aaaa", related=("bbbb", "cccc")), a_finding(fingerprint="bbbb", related=("aaaa",)),
    ])).findings
    assert cause.related == (limit.fingerprint,)
    assert limit.related[0] == cause.fingerprint
    assert len({limit.fingerprint, *limit.related}) == 3
    assert not {"aaaa", "bbbb", "cccc"} & {limit.fingerprint, *limit.related}


def test_only_public_facts_of_the_run_stay() -> None:
    run = redacted(
        Report(
            findings=[],
            run={
                "argv": ["train.py"],
                "cwd": "/home/me",
                "host": "box",
                "environment": {"OMP_NUM_THREADS": "1"},
                "executable": "/home/me/python",
                "torch": "2.13.0+cpu",
                "python": "3.11.2",
                "torchtriage": "0.1.0",
                "platform": "Linux-6.1.0-mycompany-x86_64-with-glibc2.36",
                "origin": "recording",
                "exit_status": 1,
                "num_processes": 2,
                "ranks": [0, 1],
                "start": 1e9,
                "end": 1e9 + 12.5,
            },
        )
    ).run
    assert {name: value for name, value in run.items() if value is not None} == {
        "redacted": True, "torch": "2.13.0+cpu", "python": "3.11.2", "torchtriage": "0.1.0", "platform": "Linux x86_64",
        "origin": "recording", "exit_status": 1, "num_processes": 2, "ranks": [0, 1], "seconds": 12.5,
    }


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.13.0", "2.13.0"), ("2.9.0a0+git1a2b3c", "2.9.0a0+git1a2b3c"),
        ("2.10.0.dev20260901+cu128", "2.10.0.dev20260901+cu128"), ("2.9.0+mycompany", "2.9.0"),
        ("2.9.0+cpumycompany", "2.9.0"), ("mine", None), (None, None), (3, None),
    ],
)
def test_a_version_does_not_reveal_its_builder(version: object, expected: str | None) -> None:
    assert redacted(Report(findings=[], run={"torch": version})).run["torch"] == expected


@pytest.mark.parametrize("origin", ["recording", "trace", "log", "watch"])
def test_every_tap_name_of_torchtriage_is_public(origin: str) -> None:
    recording = a_recording(origin=origin)
    said = [*watched(recording), *not_seen(recording)]
    report = redacted(Report(findings=[], watched=watched(recording), not_seen=not_seen(recording)))
    assert [*report.watched, *report.not_seen] == said


def test_a_tap_that_failed_is_named_without_its_error() -> None:
    report = redacted(
        Report(
            findings=[],
            not_seen=[
                TapState(name="recorder", status=TapStatus.LOST, detail="KeyError: 'secret' (observe.py:3)"),
                TapState(name="a secret name"),
            ],
        )
    )
    assert report.not_seen == [TapState(name="recorder", status=TapStatus.LOST), TapState(name=NOT_NAMED)]


def test_times_and_counts_of_the_history_stay_and_values_are_removed() -> None:
    history = redacted(
        Report(
            findings=[],
            history=History(
                start=1e9,
                seconds=9.0,
                processes=(ProcessHistory(name="process 4711", pid=4711, num_compiles=3, end=8.0),),
                moments=(Moment(kind=MomentKind.BREAK, time=1.5, process=0, label="print() in f", compile_id="0/1"),),
                curves=(
                    Curve(name="step_seconds", process=0, steps=[1], values=[0.1]),
                    Curve(name="loss", process=0, steps=[1], values=[7.5]),
                    Curve(name="grad_norm/secret_layer", process=0, steps=[1], values=[7.5]),
                ),
            ),
        )
    ).history
    assert history == History(
        start=0.0, seconds=9.0, processes=(ProcessHistory(name="process 1", num_compiles=3, end=8.0),),
        moments=(Moment(kind=MomentKind.BREAK, time=1.5, process=0, label="graph break", compile_id="0/1"),),
        curves=(Curve(name="step_seconds", process=0, steps=(1.0,), values=(0.1,)),),
    )


def test_a_mark_has_the_pseudonym_of_its_function_unless_ambiguous() -> None:
    def frame(path: str, name: str) -> FrameHistory:
        return FrameHistory(name=name, location=Location(path=path, function=name), process=0)

    def moment(label: str) -> Moment:
        return Moment(kind=MomentKind.RECOMPILE, time=1.0, process=0, label=label)

    history = redacted(Report(findings=[], history=History(
        start=1e9, frames=(frame("/a.py", "f"), frame("/a.py", "f"), frame("/a.py", "g"), frame("/b.py", "g")),
        moments=(moment("f"), moment("f, backward"), moment("g"), moment("h")),
    ))).history
    assert [m.label for m in history.moments] == ["function-1", "function-1", "recompile", "recompile"]
    assert [f.name for f in history.frames] == ["function-1", "function-1", "function-2", "function-3"]


def test_the_counts_of_hidden_findings_stay() -> None:
    report = redacted(
        Report(findings=[], num_known=1, num_hidden=2, num_suppressed=3, totals={"compiles": 4, "secret": 5})
    )
    assert (report.num_known, report.num_hidden, report.num_suppressed) == (1, 2, 3)
    assert (report.totals["compiles"], "secret" in report.totals) == (4, False)


def test_redaction_does_not_modify_its_input() -> None:
    report = Report(findings=[a_finding()], run={"cwd": "/app"})
    redacted(report)
    assert (report.findings, report.run) == ([a_finding()], {"cwd": "/app"})


def test_policies_counts_and_times_of_a_shape_study_stay() -> None:
    study = clear_win()
    after = redacted(Report(findings=[a_finding("TT202", related=(SHAPES,))], shapes=study, run={"cwd": "/app"}))
    assert after.shapes is not None
    assert [p.name for p in after.shapes.policies] == [p.name for p in study.policies]
    assert [(p.total_seconds, p.totals) for p in after.shapes.policies] == [
        (p.total_seconds, p.totals) for p in study.policies
    ]
    assert (after.shapes.advice.policy, after.shapes.advice.setting, after.shapes.command) == ("dynamic=True", (), ())
    sizes = [(s.source, s.dim, s.num_values, s.values) for s in after.shapes.sizes]
    assert sizes == [("source-1", 2, 512, {}), ("source-2", None, 512, {})]
    assert after.findings[0].related == (SHAPES,)


def test_a_policy_with_an_unknown_name_gets_a_pseudonym() -> None:
    study = dataclasses.replace(clear_win(), advice=Advice(policy="bucketed to 5ecret"))
    after = redacted(Report(findings=[], shapes=study)).shapes
    assert after is not None
    assert after.advice.policy == "policy-1"
