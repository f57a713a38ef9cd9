"""Whether the program, as written, can be studied at all; else the error says why and what to do."""

from torchtriage.errors import CommandError
from torchtriage.shapes.one_function import REFUSED
from torchtriage.shapes.running import Outcome
from torchtriage.shapes.wording import seconds_text


def check_first_run(outcome: Outcome, num_units: int, *, has_calls: bool, has_stdin: bool) -> None:
    """It must end well, or be stopped by us, and have called something compiled."""
    if outcome.exit_status and not outcome.was_stopped:
        raise CommandError(_failure(outcome, has_stdin))
    ran = f"it ran for {seconds_text(outcome.seconds)}" + (" and was stopped at its time limit" if outcome.was_stopped else "")
    more = "; raise --budget, or give the program less to do" if outcome.was_stopped else ""
    if not has_calls:
        raise CommandError(f"the program makes no torch.compile call, so there is no policy to choose; {ran}{more}")
    if not num_units:
        raise CommandError(f"the program calls torch.compile, but no compiled function came to its end; {ran}{more}")


def _failure(outcome: Outcome, has_stdin: bool) -> str:
    last_words = outcome.last_words()
    if outcome.exit_status == REFUSED:
        return last_words.rpartition("torchtriage: ")[2]
    text = f"the program fails as written, with status {outcome.exit_status}, so nothing was measured; its last words:\n{last_words}"
    if "EOFError" in last_words and not has_stdin:
        text += "\nit reads stdin, which is a terminal or empty here; give every run the same input: torchtriage shapes ... < input.txt"
    return text
