"""How tickets are numbered and their files named: B7-PT-07, B7-PT-07-dynamic-tensor-size.md."""

import re
import unicodedata
from collections.abc import Iterable

OURS = "torchtriage"    # the agent of a ticket that comes from a recording
MAX_SLUG = 50
_LETTERS = {"pytorch": "PT", "drl": "DRL", "codereview": "CR", "code-review": "CR", OURS: "TT"}
_ID = re.compile(r"B(\d+)-([A-Z]+)-(\d+)", re.I)


def letters_of(agent: str) -> str:
    """The part of an ID that tells who found it: the initials of several words, else the first two letters."""
    known = _LETTERS.get(agent.strip().lower())
    if known:
        return known
    words = re.findall(r"[A-Z]+", _plain(agent).upper())
    letters = "".join(word[0] for word in words) if len(words) > 1 else "".join(words)[:2]
    return letters[:4] or "XX"


def batch_in(ticket_id: str) -> int | None:
    match = _ID.match(ticket_id)
    return int(match[1]) if match else None


def highest_batch(ids: Iterable[str]) -> int:
    """0 if there is none."""
    return max((batch for each in ids if (batch := batch_in(each)) is not None), default=0)


def next_id(batch: int, agent: str, taken: Iterable[str]) -> str:
    """The first number after those of this batch and agent."""
    letters = letters_of(agent)
    numbers = [
        int(match[3]) for each in taken if (match := _ID.match(each)) and int(match[1]) == batch and match[2].upper() == letters
    ]
    return f"B{batch}-{letters}-{max(numbers, default=0) + 1:02d}"


def file_name(ticket_id: str, title: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", _plain(title).lower()).strip("-")
    if len(slug) > MAX_SLUG:
        slug = slug[: MAX_SLUG + 1].rpartition("-")[0] or slug[:MAX_SLUG]
    name = re.sub(r"[^\w.-]+", "-", ticket_id).strip(".-") or "ticket"
    return f"{name}-{slug}.md" if slug else f"{name}.md"


def _plain(text: str) -> str:
    """Without accents, and without what is no ASCII letter at all."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
