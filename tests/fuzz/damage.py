"""Random damage to bytes and to JSON values; the same generator gives the same damage."""

import json
import random
from typing import Any

NAN, INFINITY = float("nan"), float("inf")
VALUES: list[Any] = [
    None, True, False, 0, -1, 7, 1.5, 10**30, 10**400, 2**63, 1e308, NAN, INFINITY, -INFINITY, "", "text", "1",
    "\ud800", "a\0b", "\x1b[31m", "x" * 10_000, [], [None], [NAN], [["x"]], [0] * 1000, {}, {"x": None},
    {"": {"y": []}},
]
PIECES = [
    b"", b"\0", b"\xff", b"\n", b"\r\n", b"\t", b"[" * 90_000, b"{" * 2000, b'{"a":' * 20_000, b"9" * 5000, b"-1",
    b"1e999", b"NaN", b"null", b"{}", b"[]", b'""', b'"\\ud800"', b"\xed\xa0\x80", b"99", b"/", b"0/0", b"] ", b"| ",
    b"#", b"```", b"a" * 70_000, b"V9999 99:99:99.999999 1 torch/_dynamo/x.py:1] [0/0] [__recompiles] ",
]


def damaged_bytes(draw: random.Random, content: bytes) -> bytes:
    """The content with one to eight damages: bits, pieces, lines, and parts that are cut, repeated or moved."""
    data = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 2, 3, 8])):
        start = draw.randrange(len(data) + 1)
        end = min(len(data), start + draw.choice([0, 1, 1, 4, 20, 300, 5000]))
        kind = draw.randrange(7)
        if kind == 0 and start < len(data):
            data[start] ^= 1 << draw.randrange(8)
        elif kind == 1:
            data[start:end] = draw.randbytes(end - start)
        elif kind == 2:
            data[start:end] = draw.choice(PIECES)
        elif kind == 3:
            data[start:start] = data[start:end] * draw.choice([1, 2, 20])
        elif kind == 4:
            del data[start:end]
        elif kind == 5:
            lines = bytes(data).split(b"\n")
            one, other = draw.randrange(len(lines)), draw.randrange(len(lines))
            lines[one], lines[other] = lines[other], lines[one] if draw.random() < 0.5 else b""
            data = bytearray(b"\n".join(lines))
        elif draw.random() < 0.3:
            del data[start:]
    return bytes(data)


def flipped(draw: random.Random, content: bytes) -> bytes:
    """The content with one to twenty wrong bytes, and the length that it had."""
    data = bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 5, 20])):
        data[draw.randrange(len(data))] = draw.choice([0, 1, 127, 128, 255, draw.randrange(256)])
    return bytes(data)


def damaged_json(draw: random.Random, value: Any) -> str:
    """The text of a JSON value with one to three wrong or missing values in it, or with damaged bytes."""
    for _ in range(draw.choice([1, 1, 2, 3])):
        value = _damaged_value(draw, value)
    text = json.dumps(value)
    if draw.random() < 0.2:
        return damaged_bytes(draw, text.encode()).decode("utf-8", "replace")
    return text


def _damaged_value(draw: random.Random, value: Any) -> Any:
    if not isinstance(value, dict | list) or not value or draw.random() < 0.1:
        return draw.choice(VALUES)
    changed = value.copy()
    key = draw.choice(list(changed)) if isinstance(changed, dict) else draw.randrange(len(changed))
    if draw.random() < 0.15:
        del changed[key]
    else:
        changed[key] = _damaged_value(draw, changed[key])
    return changed
