"""The reasons of a recompile. Torch gives one per cache entry; a bounded number of them is kept.

With thousands of cache entries, all reasons of all recompiles would be millions of texts that differ in one number.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

# The default recompile limit allows 8 cache entries, so in most programs every reason is kept.
MAX_REASONS = 16
NUM_NEWEST = 8          # of more reasons: those of the newest entries, then the newest of each other form
MAX_TEXT = 4_000        # characters per reason; real ones stay below 2,000

_FORM = re.compile(
    r"\s*(?:- )?(?:(?:!?\d+(?:/\d+)*(?:_\d+)?|None):\s)?\s*(.*?)(?:\.? [Ee]xpected | [=!]= |\n|\Z)", re.S)
_ADDRESS = re.compile(r"\d{6,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptReasons:
    """The reasons that are recorded, newest cache entry first, and the number of the others."""

    texts: tuple[str, ...]
    num_omitted: int = 0


def parse_reasons(payload: str) -> KeptReasons:
    """The reasons in a trace record: torch writes a JSON list, a JSON string or a bare string."""
    text = payload.strip()
    try:
        reasons = json.loads(text)
    except ValueError:
        reasons = text
    if isinstance(reasons, list):
        return kept([str(reason).strip() for reason in reasons])
    return kept([str(reasons)] if reasons else [])


def kept(reasons: Sequence[str]) -> KeptReasons:
    """All reasons if they are few; else those of the newest entries, and one of each form among the others.

    The newest show the value that changes, and a form that differs shows a second cause.
    """
    texts = list(reasons)
    if len(reasons) > MAX_REASONS:
        texts = texts[:NUM_NEWEST]
        forms = set(map(_form, texts))
        for reason in reasons[NUM_NEWEST:]:
            form = _form(reason)
            if form not in forms and len(texts) < MAX_REASONS:
                forms.add(form)
                texts.append(reason)
    return KeptReasons(texts=tuple(map(_shortened, texts)), num_omitted=len(reasons) - len(texts))


def _form(reason: str) -> str:
    """The guard without its cache entry and its values."""
    match = _FORM.match(reason[:MAX_TEXT])
    return _ADDRESS.sub("", match[1] if match else reason)


def _shortened(reason: str) -> str:
    """The beginning, which is the guard, and the end, which is the line that made torch guard."""
    return reason if len(reason) <= MAX_TEXT else f"{reason[: MAX_TEXT // 2]} ... {reason[-MAX_TEXT // 2:]}"
