"""The policies of each round, failures, and functions with a policy of their own."""

from pathlib import Path

import pytest

from tests.unit.shapes.trial_samples import race, trial
from torchtriage.errors import CommandError
from torchtriage.proof.runs.process import RunOutcome
from torchtriage.shapes.experiment import check_first_run
from torchtriage.shapes.functions.driver import REFUSED
from torchtriage.shapes.policies import ShapePolicy
from torchtriage.shapes.runs.trial import Lane, Trial
from torchtriage.shapes.verdict.by_function import best_by_function, divided_sites, mixed_choice
from torchtriage.shapes.verdict.race import Race, failure, first_difference, output_notes, unit_notes


def test_each_round_starts_with_another_policy() -> None:
    one = race(w=[10], a=[9], b=[11])
    assert [one.order(n, 10, baseline_last=False)[0] for n in (1, 2, 3, 4)] == ["as written", "a", "b", "as written"]


def test_the_baseline_runs_last_if_runs_write_files() -> None:
    one = race(w=[10, 10, 10], a=[2, 2.3, 1.9], b=[2.2, 1.9, 2.1])
    assert one.order(4, 10, baseline_last=True)[-1] == "as written"
    assert "as written" not in one.order(4, 10, baseline_last=False)


def test_eliminated_policies_are_skipped_and_new_ones_run_with_the_baseline() -> None:
    one = race(w=[10, 10], a=[2, 2.3], b=[9, 9], c=[2.2, 1.9])
    assert sorted(one.order(2, 10, baseline_last=False)) == ["a", "as written", "c"]
    assert sorted(one.order(3, 10, baseline_last=False)) == ["a", "c"]       # the baseline has lost by then
    one.enter(ShapePolicy(name="d"))
    assert sorted(one.order(3, 10, baseline_last=False)) == ["a", "as written", "c", "d"]


def test_of_policies_with_the_same_code_only_the_simplest_is_kept() -> None:
    one = Race()
    code = {
        "as written": "a b",
        "dynamic=None": "a",
        "dynamic=True": "c",
        "dynamic=False": "a b",
        "marked": "c",
        "mixed": "",
        "late": "",
    }
    for name, names in code.items():
        one.enter(ShapePolicy(name=name))
        one.add(trial(name, code=frozenset(names.split()), num_compiles=1))
    one.add(trial("late", code=frozenset("c"), num_compiles=2))
    assert one.drop_same_code() == {"dynamic=False": "as written", "marked": "dynamic=True"}
    assert list(one.policies) == ["as written", "dynamic=None", "dynamic=True", "mixed", "late"]
    assert one.drop_same_code() == {}


def test_a_failed_run_eliminates_its_policy_but_not_the_baseline() -> None:
    one = race(w=[10], a=[2])
    assert one.add(trial("a", 2, exit_status=1))
    assert one.add(trial("as written", 2, exit_status=1))
    assert list(one.compared()) == ["as written"]
    assert list(one.failures) == ["a"]


def test_an_early_end_is_detected_with_the_second_baseline_run() -> None:
    one = race(w=[10])
    one.enter(ShapePolicy(name="a"))
    one.add(trial("a", 1, units=3))
    one.judge_again()
    assert one.failures == {}
    one.add(trial("as written", 2))
    one.judge_again()
    assert one.failures == {"a": "ended early: 3 calls instead of 10"}


def test_a_second_run_in_a_round_replaces_the_first() -> None:
    one = race(w=[10, 10])
    one.add(trial("as written", 1, rate=0.2))
    assert [t.round for t in one.trials["as written"]] == [2, 1]


def two_functions(name: str, prefill: float, decode: float) -> Trial:
    lanes = {"prefill": Lane.of([prefill] * 3), "decode": Lane.of([decode] * 30)}
    return Trial(policy=name, round=1, functions=lanes, sites={"prefill": "m.py:3", "decode": "m.py:4"})


def test_functions_with_different_best_policies_are_mixed() -> None:
    trials = {n: [two_functions(n, p, d)] for n, p, d in (
        ("as written", 5.0, 0.5), ("dynamic=False", 1.0, 0.9), ("dynamic=True", 4.0, 0.1), ("marked", 0.1, 0.01),
    )}
    assert best_by_function(trials) == {"prefill": "dynamic=False", "decode": "dynamic=True"}
    assert mixed_choice(trials) == {"m.py:3": "dynamic=False", "m.py:4": "dynamic=True"}
    assert divided_sites(trials) == {}


def test_of_equally_good_policies_a_function_gets_the_simplest() -> None:
    trials = {n: [two_functions(n, p, d)] for n, p, d in (
        ("as written", 5.0, 0.1), ("dynamic=False", 1.0, 0.9), ("dynamic=None", 1.02, 0.3),
    )}
    assert best_by_function(trials) == {"prefill": "dynamic=None", "decode": "as written"}


def test_functions_are_not_mixed_if_one_policy_is_as_good() -> None:
    trials = {n: [two_functions(n, p, d)] for n, p, d in (("as written", 5.0, 0.5), ("dynamic=True", 1.0, 0.49))}
    assert best_by_function(trials) == {"prefill": "dynamic=True", "decode": "as written"}
    assert mixed_choice(trials) == {}


def test_two_functions_of_one_compile_call_share_a_policy() -> None:
    def at_one_site(one: Trial) -> Trial:
        return Trial(policy=one.policy, round=1, functions=one.functions, sites=dict.fromkeys(one.functions, "m.py:3"))

    trials = {n: [at_one_site(two_functions(n, p, d))] for n, p, d in (
        ("as written", 5.0, 0.5), ("dynamic=False", 1.0, 0.9), ("dynamic=True", 4.0, 0.1),
    )}
    assert mixed_choice(trials) == {}
    assert divided_sites(trials) == {"m.py:3": ["prefill", "decode"]}


def test_another_exit_status_is_a_failure_with_the_last_line_of_stderr(tmp_path: Path) -> None:
    (tmp_path / "err").write_text("Traceback ...\nRuntimeError: no\n")
    failed = trial("p", exit_status=1, stderr=str(tmp_path / "err"))
    assert failure(failed, [trial("as written")]) == "ended with status 1: RuntimeError: no"


def test_an_early_end_is_a_failure_once_two_baseline_runs_agree() -> None:
    short = trial("p", units=4)
    assert failure(short, [trial("as written")]) == ""
    assert failure(short, [trial("as written"), trial("as written", 2)]) == "ended early: 4 calls instead of 10"
    assert failure(short, [trial("as written"), trial("as written", 2, units=12)]) == ""


def test_a_run_without_a_compiled_call_is_a_failure() -> None:
    assert failure(trial("p", functions={}), [trial("as written")]) == "called no compiled function"


def test_a_stopped_run_is_compared_unless_it_was_far_behind() -> None:
    written = [trial("as written", startup=0.0, rate=0.1)]
    assert failure(trial("p", startup=0.0, rate=0.12, units=6, was_stopped=True, exit_status=130), written) == ""
    slow = failure(trial("p", startup=0.0, rate=0.5, units=2, was_stopped=True, exit_status=130, seconds=40.0), written)
    assert slow == "stopped at its 40.0 s limit after 2 of 10 calls: 5.0x slower than the unmodified program"


def test_a_run_that_was_stopped_before_its_first_call_is_a_failure() -> None:
    stopped = trial("p", functions={}, was_stopped=True, seconds=40.0)
    assert failure(stopped, [trial("as written")]) == "stopped at its 40.0 s limit after 0 of 10 calls"


def printed(folder: Path, policy: str, number: int, text: str) -> Trial:
    path = folder / f"{policy}{number}"
    path.write_text(text)
    return trial(policy, number, stdout=str(path))


def test_different_output_is_a_note_on_the_policy(tmp_path: Path) -> None:
    written = [printed(tmp_path, "as written", n, "loss 1\n") for n in (1, 2)]
    other = [printed(tmp_path, "p", 1, "loss 2\n")]
    notes, by_policy = output_notes({"as written": written, "p": other, "q": [written[0]]})
    assert notes == []
    assert by_policy == {"p": ["output differs from the baseline run (line 1: 'loss 2' instead of 'loss 1')"]}


def test_the_output_of_a_nondeterministic_program_is_not_compared(tmp_path: Path) -> None:
    written = [printed(tmp_path, "as written", n, f"took {n} s\n") for n in (1, 2)]
    notes, by_policy = output_notes({"as written": written, "p": [printed(tmp_path, "p", 1, "x\n")]})
    assert notes == ["not deterministic: two runs of the unmodified program printed different output "
                     "(line 1: 'took 2 s' instead of 'took 1 s'), so outputs are not compared"]
    assert by_policy == {}


def test_the_first_line_that_differs_is_shown() -> None:
    assert first_difference("a\nb\n", "a\n") == "line 2: 'b' instead of nothing"
    assert first_difference("a\n", "a") == "only in its line endings"


def test_baseline_runs_of_different_length_are_noted() -> None:
    assert unit_notes([trial("as written"), trial("as written", 2)]) == []
    assert unit_notes([trial("as written"), trial("as written", 2, units=8)]) == [
        "runs of the unmodified program made 8 to 10 calls; all runs are compared over the part they have in common",
    ]


def outcome(folder: Path, *, status: int = 0, was_stopped: bool = False, stderr: str = "") -> RunOutcome:
    (folder / "stderr").write_text(stderr)
    return RunOutcome(
        recording=folder, exit_status=status, seconds=12.0, was_stopped=was_stopped, stdout=folder,
        stderr=folder / "stderr",
    )


@pytest.mark.parametrize(
    ("status", "was_stopped", "stderr", "units", "has_calls", "message"),
    [
        (
            3,
            False,
            "Traceback\nValueError: x",
            0,
            True,
            "the unmodified program fails with status 3, so nothing was measured",
        ),
        (3, False, "Traceback\nValueError: x", 0, True, "the end of its stderr:\nTraceback\nValueError: x"),
        (
            1,
            False,
            "EOFError: EOF when reading a line",
            0,
            True,
            "give every run the same input: torchtriage shapes ... < input.txt",
        ),
        (REFUSED, False, "noise\ntorchtriage: m.py has no function g", 0, False, "m.py has no function g"),
        (0, False, "", 0, False, "does not call torch.compile, so there is no policy to choose; it ran for 12.0 s"),
        (130, True, "", 0, False, "did not come to a torch.compile call: it ran for 12.0 s and was stopped"),
        (0, False, "", 0, True, "no compiled function returned"),
    ],
)
def test_a_program_that_cannot_be_studied_is_refused(
    status: int, was_stopped: bool, stderr: str, units: int, has_calls: bool, message: str, tmp_path: Path,
) -> None:
    ended = outcome(tmp_path, status=status, was_stopped=was_stopped, stderr=stderr)
    with pytest.raises(CommandError) as caught:
        check_first_run(ended, units, has_calls=has_calls, has_stdin=False)
    assert message in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_long_program_that_was_stopped_can_be_studied(tmp_path: Path) -> None:
    check_first_run(outcome(tmp_path, status=130, was_stopped=True), 5, has_calls=True, has_stdin=False)
