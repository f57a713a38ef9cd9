"""Lines of a text report: long text is wrapped, control characters are escaped, each line has a style."""

import io
import textwrap

from torchtriage.text import harmless

INDENT = " " * 8

Line = tuple[str, str | None]   # text, style


def wrapped(text: str, width: int, indent: str = INDENT, hanging: str = "") -> list[str]:
    """The text in lines of at most this width; a longer word is not broken.

    Every line but the first is also indented by `hanging`.
    """
    return textwrap.wrap(
        " ".join(text.split()),
        max(20, width),
        initial_indent=indent,
        subsequent_indent=indent + hanging,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [indent]


def field(name: str, text: str, width: int) -> list[Line]:
    """`  why   text`; further lines are aligned with the text."""
    first, *rest = wrapped(text, width)
    return [(f"  {name:<6}{first[len(INDENT):]}", None), *((line, None) for line in rest)]


def printed(lines: list[Line], *, width: int, colour: bool) -> str:
    """The lines as one text, with ANSI colours if `colour` is set."""
    escaped = [(harmless(text), style) for text, style in lines]
    return _coloured(escaped, width) if colour else "".join(f"{text}\n" for text, _ in escaped)


def _coloured(lines: list[Line], width: int) -> str:
    from rich.console import Console
    from rich.text import Text

    out = io.StringIO()
    # Every option is set: rich would otherwise read the environment, and display the text in a notebook.
    console = Console(
        file=out,
        width=width,
        force_terminal=True,
        color_system="standard",
        no_color=False,
        force_jupyter=False,
        soft_wrap=True,
    )
    for text, style in lines:
        console.print(Text(text, style=style or ""))
    return out.getvalue()
