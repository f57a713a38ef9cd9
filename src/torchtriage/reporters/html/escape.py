"""Makes what came from the program harmless: in a page it is text, never markup, script or an invisible mark."""

import html
import json
import math
from collections.abc import Iterable
from typing import Any

from torchtriage.reporters.phrases import literal

_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def text(value: object) -> str:
    """One line of text, for an element or a quoted attribute."""
    return html.escape(literal(str(value)))


def block(value: str) -> str:
    """Text of several lines, for a <pre>."""
    return "\n".join(text(line.expandtabs(4)) for line in value.split("\n"))


def attributes(**values: object) -> str:
    """` name="value"` for each that is not None or False; True gives the bare name, `data_x` is written data-x, `class_` class."""
    parts = []
    for name, value in values.items():
        if value is not None and value is not False:
            name = name.rstrip("_").replace("_", "-")
            parts.append(f" {name}" if value is True else f' {name}="{text(value)}"')
    return "".join(parts)


def items(values: Iterable[object]) -> str:
    return "".join(f"<li>{text(value)}</li>" for value in values)


def script_data(data: Any) -> str:
    """JSON that can stand in a <script> element; no text in it can end the element."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(_IN_SCRIPT)


def number(value: float | None, digits: int = 4) -> float | int | None:
    """A number short enough to be written 20,000 times; None for what JSON cannot say."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short == int(short) else short
