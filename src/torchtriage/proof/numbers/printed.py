"""Whether the numbers that two runs print differ by more than rounding does."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from torchtriage.proof.numbers.compare import NOISE_FACTOR

MAX_LINES = 5000        # of the end of the output
FLOAT_ROUNDING = 2.4e-7     # two roundings of a float32, relative: how a number with many digits is printed
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w])|(?<!\w)[-+]?(?:nan|inf)\b")
# `print(loss)` where the other side prints `loss.item()`
_TENSOR = re.compile(r"\btensor\(\s*([-+.\dean]\S*?)(?:,\s*\w+=(?:<\w+>|'[^']*'|[\w.]+))*\s*\)")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class PrintedNumber:
    value: float
    unit: float         # of its last digit; 0 for a whole number


@dataclass(frozen=True, slots=True)
class PrintedLine:
    text: str
    words: str                          # without its numbers
    numbers: Sequence[PrintedNumber]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedComparison:
    num_compared: int = 0
    num_varying: int = 0                # two runs of BEFORE differ in them
    num_of_compiler: int = 0            # BEFORE prints others when it runs eager, so they are about the compiler
    num_unequal: int = 0                # compared, and not the same to the last digit
    different: tuple[str, str] | None = None    # the first line that differs, before and after
    only_before: Sequence[str] = ()     # lines with numbers that the other side does not print
    only_after: Sequence[str] = ()


def parse(text: str) -> list[PrintedLine]:
    lines = []
    for given in text.splitlines()[-MAX_LINES:]:
        line = _TENSOR.sub(r"\1", given)
        if line.strip():
            numbers = [_number(match[0]) for match in _NUMBER.finditer(line)]
            lines.append(PrintedLine(given.strip(), _SPACE.sub(" ", _NUMBER.sub("#", line)).strip(), numbers))
    return lines


def _number(text: str) -> PrintedNumber:
    value = float(text)
    digits, _, exponent = text.lower().partition("e")
    if "." not in digits and not exponent:
        return PrintedNumber(value, 0.0)
    decimals = len(digits.partition(".")[2]) if "n" not in digits else 0
    return PrintedNumber(value, 10.0 ** (int(exponent or 0) - decimals))


def compare_printed(
    before: str, after: str, again: Sequence[str], eager: str | None, moved: Sequence[str],
) -> PrintedComparison:
    """`again`: further runs of BEFORE; `eager`: BEFORE run eager; `moved`: the same with every result moved."""
    lines, other = parse(before), parse(after)
    partner = _partners(lines, other)
    repeats = [(run, _partners(lines, run)) for run in map(parse, again)]
    exact = parse(eager) if eager is not None else None
    in_exact = _partners(lines, exact) if exact is not None else {}
    noisy = [(run, _partners(lines, run)) for run in map(parse, moved)]
    counts = {"compared": 0, "varying": 0, "compiler": 0, "unequal": 0}
    different = None
    for index, line in enumerate(lines):
        for position, number in enumerate(line.numbers):
            same = [_at(run, found, index, position) for run, found in repeats]
            if any(value is None or not _is_same(value.value, number.value) for value in same):
                counts["varying"] += 1
                continue
            noise = 0.0
            if exact is not None:
                middle = _at(exact, in_exact, index, position)
                values = [_at(run, found, index, position) for run, found in noisy]
                gaps = [abs(v.value - middle.value) for v in values if v is not None and middle is not None]
                noise = max(gaps, default=0.0)
                if middle is None or not _agrees(number, middle, noise):
                    counts["compiler"] += 1
                    continue
            value = _at(other, partner, index, position)
            if value is None:
                continue
            counts["compared"] += 1
            counts["unequal"] += not _is_same(number.value, value.value)
            if different is None and not _agrees(number, value, noise):
                different = (line.text, other[partner[index]].text)
    found_after = set(partner.values())
    return PrintedComparison(
        num_compared=counts["compared"], num_varying=counts["varying"], num_of_compiler=counts["compiler"],
        num_unequal=counts["unequal"], different=different,
        only_before=[line.text for n, line in enumerate(lines) if n not in partner and line.numbers],
        only_after=[line.text for n, line in enumerate(other) if n not in found_after and line.numbers],
    )


def _partners(lines: Sequence[PrintedLine], other: Sequence[PrintedLine]) -> dict[int, int]:
    """Line -> the line with the same words in the other output, in the same order."""
    matcher = difflib.SequenceMatcher(None, [a.words for a in lines], [b.words for b in other], autojunk=False)
    return {a + k: b + k for a, b, size in matcher.get_matching_blocks() for k in range(size)}


def _at(lines: Sequence[PrintedLine], partner: dict[int, int], index: int, position: int) -> PrintedNumber | None:
    return lines[partner[index]].numbers[position] if index in partner else None


def _is_same(a: float, b: float) -> bool:
    return a == b or (a != a and b != b)


def _agrees(number: PrintedNumber, other: PrintedNumber, noise: float) -> bool:
    """In the digits of the one that has fewer; a whole number has to be the same."""
    if _is_same(number.value, other.value):
        return True
    allowed = NOISE_FACTOR * noise
    if number.unit:
        allowed += max(number.unit, other.unit) * 1.01 + FLOAT_ROUNDING * abs(number.value)
    return abs(number.value - other.value) <= allowed
