"""Lines of a text report: each has a style, names and messages of the program are made harmless, long text is wrapped."""

import io
import textwrap

from torchtriage.text import printable

INDENT = " " * 8

Line = tuple[str, str | None]   # text, style


def wrapped(text: str, width: int, indent: str = INDENT, hanging: str = "") -> list[str]:
    """The text in lines of at most this width, all but the first indented by `hanging` too; a long word stays whole."""
    return textwrap.wrap(
        " ".join(text.split()), max(20, width), initial_indent=indent, subsequent_indent=indent + hanging, break_long_words=False,
        break_on_hyphens=False,
    ) or [indent]


def field(name: str, text: str, width: int) -> list[Line]:
    """`  why   text`, wrapped below itself."""
    first, *rest = wrapped(text, width)
    return [(f"  {name:<6}{first[len(INDENT):]}", None), *((line, None) for line in rest)]


def printed(lines: list[Line], *, width: int, colour: bool) -> str:
    """One text, with ANSI colours if asked for."""
    harmless = [(printable(text), style) for text, style in lines]
    return _coloured(harmless, width) if colour else "".join(f"{text}\n" for text, _ in harmless)


def _coloured(lines: list[Line], width: int) -> str:
    from rich.console import Console
    from rich.text import Text

    out = io.StringIO()
    # Every choice is made here: rich would look at the environment, and in a notebook display the text instead of writing it.
    console = Console(
        file=out, width=width, force_terminal=True, color_system="standard", no_color=False, force_jupyter=False, soft_wrap=True,
    )
    for text, style in lines:
        console.print(Text(text, style=style or ""))
    return out.getvalue()
