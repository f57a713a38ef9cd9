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


def pass_on_signals(error: BaseException) -> None:
    """Raise `error` again if a signal handler raised it in the midst of our code: a timeout of the program's is not ours to swallow."""
    import signal  # only now: this module is loaded in every process

    handlers = [handler for number in signal.valid_signals() if callable(handler := signal.getsignal(number))]
    codes = {getattr(getattr(handler, "__func__", handler), "__code__", None) for handler in handlers}
    codes |= {getattr(type(handler).__call__, "__code__", None) for handler in handlers}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            raise error
        trace = trace.tb_next
