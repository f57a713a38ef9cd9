"""A policy that does not run the same program is said, and left out where it cannot be compared."""

from pathlib import Path

import pytest

from tests.unit.shapes.trial_samples import trial
from torchtriage.errors import CommandError
from torchtriage.shapes.checks import failure, first_difference, output_notes, unit_notes
from torchtriage.shapes.first_run import check_first_run
from torchtriage.shapes.one_function import REFUSED
from torchtriage.shapes.running import Outcome
from torchtriage.shapes.trials import Trial


def test_another_exit_status_is_a_failure_with_the_last_words(tmp_path: Path) -> None:
    (tmp_path / "err").write_text("Traceback ...\nRuntimeError: no\n")
    failed = trial("p", exit_status=1, stderr=str(tmp_path / "err"))
    assert failure(failed, [trial("as written")]) == "ended with status 1: RuntimeError: no"


def test_an_early_end_is_told_once_two_runs_as_written_agree() -> None:
    short = trial("p", units=4)
    assert failure(short, [trial("as written")]) == ""
    assert failure(short, [trial("as written"), trial("as written", 2)]) == "ended early: 4 calls instead of 10"
    assert failure(short, [trial("as written"), trial("as written", 2, units=12)]) == ""


def test_a_run_without_a_compiled_call_is_a_failure() -> None:
    assert failure(trial("p", functions={}), [trial("as written")]) == "called no compiled function"


def test_a_run_that_was_stopped_is_compared_unless_it_was_far_behind() -> None:
    written = [trial("as written", startup=0.0, rate=0.1)]
    assert failure(trial("p", startup=0.0, rate=0.12, units=6, was_stopped=True, exit_status=130), written) == ""
    slow = failure(trial("p", startup=0.0, rate=0.5, units=2, was_stopped=True, exit_status=130, seconds=40.0), written)
    assert slow == "stopped after 40.0 s at 2 of 10 calls, 5.0x the time that they took as written"


def test_a_run_that_was_stopped_before_its_first_call_is_left_out() -> None:
    stopped = trial("p", functions={}, was_stopped=True, seconds=40.0)
    assert failure(stopped, [trial("as written")]) == "stopped after 40.0 s at 0 of 10 calls"


def printed(folder: Path, policy: str, number: int, text: str) -> Trial:
    path = folder / f"{policy}{number}"
    path.write_text(text)
    return trial(policy, number, stdout=str(path))


def test_other_output_is_a_note_on_the_policy(tmp_path: Path) -> None:
    written = [printed(tmp_path, "as written", n, "loss 1\n") for n in (1, 2)]
    notes, by_policy = output_notes({"as written": written, "p": [printed(tmp_path, "p", 1, "loss 2\n")], "q": [written[0]]})
    assert notes == []
    assert by_policy == {"p": ["printed something else than as written (line 1: 'loss 2' instead of 'loss 1')"]}


def test_a_program_that_is_not_deterministic_is_told_and_its_output_not_compared(tmp_path: Path) -> None:
    written = [printed(tmp_path, "as written", n, f"took {n} s\n") for n in (1, 2)]
    notes, by_policy = output_notes({"as written": written, "p": [printed(tmp_path, "p", 1, "x\n")]})
    assert notes == ["not deterministic: two runs as written printed different things "
                     "(line 1: 'took 2 s' instead of 'took 1 s'), so outputs are not compared"]
    assert by_policy == {}


def test_the_first_line_that_differs_is_shown() -> None:
    assert first_difference("a\nb\n", "a\n") == "line 2: 'b' instead of nothing"
    assert first_difference("a\n", "a") == "only in its line ends"


def test_runs_that_go_differently_far_are_told() -> None:
    assert unit_notes([trial("as written"), trial("as written", 2)]) == []
    assert unit_notes([trial("as written"), trial("as written", 2, units=8)]) == [
        "runs as written went through 8 to 10 calls; all are compared over what they have in common",
    ]


def outcome(folder: Path, *, status: int = 0, was_stopped: bool = False, stderr: str = "") -> Outcome:
    (folder / "stderr").write_text(stderr)
    return Outcome(recording=folder, exit_status=status, seconds=12.0, was_stopped=was_stopped, stdout=folder, stderr=folder / "stderr")


@pytest.mark.parametrize(("status", "was_stopped", "stderr", "units", "has_calls", "told"), [
    (3, False, "Traceback\nValueError: x", 0, True, "fails as written, with status 3, so nothing was measured"),
    (3, False, "Traceback\nValueError: x", 0, True, "its last words:\nTraceback\nValueError: x"),
    (1, False, "EOFError: EOF when reading a line", 0, True, "give every run the same input: torchtriage shapes ... < input.txt"),
    (REFUSED, False, "noise\ntorchtriage: m.py has no function g", 0, False, "m.py has no function g"),
    (0, False, "", 0, False, "makes no torch.compile call, so there is no policy to choose; it ran for 12.0 s"),
    (130, True, "", 0, False, "was stopped at its time limit; raise --budget"),
    (0, False, "", 0, True, "no compiled function came to its end"),
])
def test_a_program_that_cannot_be_studied_is_refused(
    status: int, was_stopped: bool, stderr: str, units: int, has_calls: bool, told: str, tmp_path: Path,
) -> None:
    ended = outcome(tmp_path, status=status, was_stopped=was_stopped, stderr=stderr)
    with pytest.raises(CommandError) as caught:
        check_first_run(ended, units, has_calls=has_calls, has_stdin=False)
    assert told in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_long_program_that_was_stopped_can_be_studied(tmp_path: Path) -> None:
    check_first_run(outcome(tmp_path, status=130, was_stopped=True), 5, has_calls=True, has_stdin=False)
