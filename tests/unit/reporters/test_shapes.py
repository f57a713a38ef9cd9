"""A shape study at a terminal: the advice comes first, the table fits, and each number says what it is."""

import dataclasses
from typing import Any

import pytest

from tests.unit.reporters import study_samples
from tests.unit.reporters.report_samples import a_report
from tests.unit.reporters.study_samples import (
    a_policy,
    clear_win,
    failures,
    nothing_compiled,
    refusal,
    turning,
)
from tests.unit.samples import a_finding
from torchtriage.findings.report import Report
from torchtriage.findings.shape_study import Advice, Basis, Branch, Interval, Need, Requirement, ShapeStudy
from torchtriage.reporters import html, markdown, terminal
from torchtriage.reporters.shape_text import reason, rows, verdict, with_sentences
from torchtriage.reporters.shapes import render_study, study_lines

EVERY = pytest.mark.parametrize("make", study_samples.ALL.values(), ids=study_samples.ALL)


def lines_of(study: ShapeStudy, width: int = 80, verbose: bool = False) -> list[str]:
    return [line for line, _ in study_lines(study, width=width, verbose=verbose)]


def row_of(study: ShapeStudy, name: str, width: int = 140) -> str:
    return next(line for line in lines_of(study, width)[3:] if line[2:].startswith(name))


def test_the_advice_comes_first_then_the_table_then_the_evidence() -> None:
    lines = lines_of(turning(), width=140)
    assert lines == [
        "SHAPES  use dynamic=False",
        "  why   70.0 s for 100,000 steps, 1.69x (1.60x to 1.78x) faster than the unmodified program",
        "  set   train.py:9: torch.compile(step, dynamic=False)",
        "",
        "  policy         compiles  compiling  first call                per step   memory           100,000 steps",
        "  unmodified            2     2.90 s      2.61 s  1.15 ms (1.14 to 1.16)  612 MiB     ~118 s (114 to 122)",
        "> dynamic=False        19     2.90 s      2.61 s     300 us (296 to 304)  612 MiB  ~70.0 s (67.9 to 72.1)",
        "  dynamic=True          1     2.90 s      2.61 s  1.20 ms (1.19 to 1.21)  612 MiB     ~123 s (119 to 127)",
        "  2,000 steps per policy, 4 runs each, 95 % confidence intervals; ~ marks totals estimated beyond them",
        "",
        "  cross dynamic=True is the fastest up to 41,000 steps, then dynamic=False",
        "  vary  decode: L['x'].size(0) took 64 (1,900x), 32 (96x), 17 (4x) (3 values in 2,000 calls)",
        "  spent 180 s on 12 timed runs of python train.py, torch 2.13.0",
    ]


@EVERY
@pytest.mark.parametrize("width", [80, 100, 160])
def test_every_line_fits_the_width(make: Any, width: int) -> None:
    assert max(map(len, lines_of(make(), width, verbose=True))) <= width
    assert not [line for line in lines_of(make(), width) if line != line.rstrip()]


def test_in_a_narrow_table_an_interval_is_a_percentage() -> None:
    assert row_of(refusal(), "unmodified", width=80).split() == [
        "unmodified", "2", "in", "2.90", "s", "2.61", "s", "210", "ms", "±1%", "612", "MiB", "12.0", "s", "±3%",
    ]


def test_a_line_to_paste_is_never_wrapped() -> None:
    setting = "TORCH_COMPILE_DYNAMIC_SOURCES='" + ",".join(f"^L\\[.x{n}.\\]$" for n in range(20)) + "' python decode.py"
    assert f"  set   {setting}" in lines_of(clear_win(advice=Advice(policy="marked", setting=(setting,))))


def test_a_refusal_says_what_would_settle_it() -> None:
    lines = lines_of(refusal())
    assert lines[0] == "SHAPES  inconclusive, no policy is recommended"
    assert "  needs about 9 more rounds, 4m: --budget 14m" in lines
    assert not [line for line in lines if line.startswith((">", "  set"))]


@pytest.mark.parametrize(("policy", "words"), [
    ("", "inconclusive, no policy is recommended"), ("as written", "keep your code unchanged"),
    ("dynamic=None", "use dynamic=None"),
    ("marked", "mark the dimensions that vary"), ("mixed", "use a separate policy for each function"),
])
def test_the_advice_in_a_few_words(policy: str, words: str) -> None:
    assert verdict(clear_win(advice=Advice(policy=policy))) == words


def test_nothing_is_kept_unchanged_above_a_severe_finding() -> None:
    study = clear_win(advice=Advice(policy="as written"), standing=["TT301"])
    assert verdict(study) == "no other shape policy is recommended, but TT301 is unsolved: fix that first"
    two = with_sentences(dataclasses.replace(refusal(), standing=["TT301", "TT302"])).advice.text
    assert two.endswith("nor slower than the unmodified program; TT301 and TT302 are unsolved: fix that first")
    assert "keep" not in two
    assert ShapeStudy.from_dict(study.to_dict()).standing == ("TT301",)


@pytest.mark.parametrize("text", ["not settled: too close", "marked: too close", "too close"])
def test_the_sentences_of_an_older_version_are_shown_unchanged(text: str) -> None:
    study = clear_win(advice=Advice(policy="marked", text=text, needs="more runs"))
    assert f"  why   {text}" in lines_of(study)
    assert "  needs more runs" in lines_of(study)
    assert f"\n\n{text}; to settle it: more runs\n" in markdown.render(Report(findings=[], shapes=study))
    assert f"<p>{text}</p>" in html.render(Report(findings=[], shapes=study))
    assert with_sentences(study).advice == study.advice


def test_json_carries_the_verdict_with_its_reason() -> None:
    advice = with_sentences(turning()).advice
    assert advice.text == (
        "use dynamic=False: 70.0 s for 100,000 steps, 1.69x (1.60x to 1.78x) faster than the unmodified program"
    )
    assert with_sentences(refusal()).advice.text == (
        "inconclusive, no policy is recommended: dynamic=True is neither clearly faster nor slower than the unmodified "
        "program; keep your code unchanged"
    )
    assert with_sentences(refusal()).advice.needs == "about 9 more rounds, 4m: --budget 14m"


def test_the_sentences_in_json_are_never_read_back() -> None:
    advice = dataclasses.replace(turning().advice, text="not settled: wrong", needs="wrong")
    assert lines_of(clear_win(advice=advice))[1].startswith("  why   70.0 s for 100,000 calls")
    assert not [line for line in lines_of(clear_win(advice=advice)) if "wrong" in line]


@pytest.mark.parametrize(("basis", "policy", "kind", "text"), [
    (Basis.STATIC, "as written", "", "no size varies and nothing recompiles, so no other policy can save time"),
    (Basis.FAILED, "as written", "", "every other policy failed"),
    (Basis.SAME_CODE, "as written", "", "every other policy failed or compiles exactly the same code"),
    (Basis.NOT_MEASURED, "", Need.FULL_RUN, "no other policy was measured before the interruption"),
    (Basis.NOT_MEASURED, "", Need.BUDGET, "no other policy was measured before the budget ran out"),
])
def test_the_reason_without_other_figures(basis: str, policy: str, kind: str, text: str) -> None:
    requirement = Requirement(kind=kind, budget_seconds=60.0) if kind else None
    assert reason(clear_win(advice=Advice(policy=policy, basis=basis, requirement=requirement))) == text


def test_a_failed_policy_has_its_reason_and_the_others_keep_their_figures() -> None:
    lines = lines_of(failures(), width=120)
    begin = "  dynamic=True failed: ConstraintViolationError: L['x'].size()[0] was"
    [at] = [n for n, line in enumerate(lines) if line.startswith(begin)]
    assert lines[at + 1].startswith("    ")
    assert "20.0 ms" in row_of(failures(), "unmodified")


def test_a_policy_name_that_is_too_long_has_a_separate_line() -> None:
    long = "dynamic=False, recompile_limit=1024"
    study = clear_win(policies=(a_policy("as written"), a_policy(long)), advice=Advice(policy=long))
    lines = lines_of(study, 80)
    at = lines.index(f"> {long}")
    assert lines[at + 1].split()[:4] == ["2", "in", "2.90", "s"]
    assert max(map(len, lines)) <= 80
    assert row_of(study, long, width=160).startswith(f"> {long}  ")


def test_a_missing_figure_is_a_dash_and_never_zero() -> None:
    assert row_of(failures(), "mixed").split() == [">", "mixed", "3", "-", "-", "-", "-", "-"]


def test_eager_calls_and_late_compiles_are_remarks_below_their_policy() -> None:
    lines = lines_of(clear_win(), width=120)
    at = lines.index(next(line for line in lines if line.startswith("  unmodified")))
    assert lines[at + 1] == "    1,504 calls ran eagerly after the recompile limit"
    assert lines[at + 2].startswith("    still compiling in the second half of its run")


@pytest.mark.parametrize(("planned", "mark"), [(512, ""), (513, "~")])
def test_a_total_is_marked_as_estimated_only_beyond_the_measured_units(planned: int, mark: str) -> None:
    study = clear_win(num_planned=planned)
    assert [row.total[:5] for row in rows(study) if row.policy == "dynamic=True"] == [f"{mark}27.4 s"[:5]]
    assert ("all times are observed" in "\n".join(lines_of(study, 160))) is (not mark)


@pytest.mark.parametrize(("runs", "words"), [
    ((1, 1), "one run each (no confidence interval)"), ((3, 3), "3 runs each, 95 % confidence intervals"),
    ((2, 5), "2 to 5 runs each, 95 % confidence intervals"),
])
def test_the_number_of_runs_per_policy_is_shown(runs: tuple[int, int], words: str) -> None:
    policies = [a_policy(name, num_runs=number) for name, number in zip(("as written", "marked"), runs, strict=True)]
    assert words in "\n".join(lines_of(clear_win(policies=policies), 160))


def test_a_single_run_among_many_is_remarked_to_have_no_interval() -> None:
    once_only = [row.policy for row in rows(clear_win()) if "ran once (no confidence interval)" in row.remarks]
    assert once_only == ["recompile_limit=1024"]
    once = [a_policy("as written", num_runs=1), a_policy("marked", num_runs=1)]
    assert not [row for row in rows(clear_win(policies=once)) if row.remarks]


def test_the_questions_of_the_tree_have_answers_and_facts() -> None:
    assert "  tree  Is the tensor shape fixed? no: L['cache'].size(2) took 512 values in 512 calls" in lines_of(
        clear_win(), 120
    )
    bare = clear_win(branches=(Branch(question="Is it?", answer="yes", evidence=""),))
    assert "  tree  Is it? yes" in lines_of(bare)


def test_varying_sizes_are_cut_to_a_few_unless_verbose() -> None:
    short, full = "\n".join(lines_of(failures())), "\n".join(lines_of(failures(), verbose=True))
    assert (short.count("  vary  decode"), full.count("  vary  decode")) == (4, 9)
    assert "  vary  5 more (-v)" in short
    assert "more (-v)" not in full


def test_a_size_that_could_not_be_marked_says_why() -> None:
    text = "took 100, 101, 102, 103, 104, 105 ... (512 values in 512 calls); a Python number cannot be marked by name"
    assert f"L['offset'] {text}" in "\n".join(lines_of(clear_win(), 160))


def test_overridden_calls_are_listed_by_policy() -> None:
    many = tuple(f"m.py:{n} f{n}: dynamic=False -> True" for n in range(5))
    study = clear_win(policies=(a_policy("as written"), a_policy("dynamic=True", overridden=many)))
    [line] = [line for line in lines_of(study, 400) if line.startswith("  over")]
    assert line == f"  over  dynamic=True overrode {'; '.join(many[:3])}; 2 more (-v)"


def test_functions_are_listed_only_if_there_are_several() -> None:
    assert {"  each  prefill: dynamic=False", "  each  decode: dynamic=True"} <= set(lines_of(failures()))
    assert not [line for line in lines_of(clear_win()) if line.startswith("  each")]


def test_a_program_that_compiles_nothing_has_no_table() -> None:
    assert lines_of(nothing_compiled()) == [
        "SHAPES  inconclusive, no policy is recommended",
        "  why   the program never calls torch.compile, so there is no shape policy to",
        "        choose",
        "  needs compile a function first, then measure again",
        "",
        "  spent 2.00 s",
    ]


def test_an_interval_is_written_in_the_unit_of_its_middle() -> None:
    [row] = rows(
        clear_win(policies=(a_policy("as written", steady_seconds=Interval(middle=1.01, low=0.98, high=1.2)),))
    )
    assert row.steady == "1.01 s (0.98 to 1.20)"


def test_the_study_is_above_the_findings_and_counts_towards_the_lines() -> None:
    text = terminal.render(a_report(shapes=clear_win()), width=120)
    assert text.startswith("SHAPES  use dynamic=True\n")
    assert text.index("SHAPES") < text.index("TT301 P1")
    many = [a_finding(fingerprint=str(n)) for n in range(40)]
    room = (terminal.render(Report(findings=many, shapes=shapes)).count("TT101 P3") for shapes in (None, clear_win()))
    assert next(room) > next(room) > 0


def test_text_of_the_program_is_escaped_at_the_terminal() -> None:
    bad = "\x1b[2J\u202e"
    study = clear_win(notes=(bad,), advice=Advice(policy="dynamic=True", text=bad, setting=(bad,)), command=(bad,))
    for colour in (False, True):
        assert "\x1b[2J" not in render_study(study, colour=colour)
    assert "\u202e" not in render_study(study)


def test_the_advice_is_coloured() -> None:
    assert "\x1b[1;32m> dynamic=True" in render_study(clear_win(), width=80, colour=True)
    assert "\x1b[" not in render_study(clear_win(), width=80)
