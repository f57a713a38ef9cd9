"""The errors that torchtriage raises on purpose."""


class TriageError(Exception):
    """Something the user can act on: says what was asked, what was found, what to do."""


class CommandError(TriageError):
    """A command cannot go on; its message goes to stderr and its code to the shell."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def hide_frame(error: BaseException) -> None:
    """Take the frame that catches `error` off its traceback: the program must not see ours. A bare `raise` does not put it back."""
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next
