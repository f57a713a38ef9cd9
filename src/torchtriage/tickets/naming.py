"""Names of tickets: B7-PT-07, batch 7, B7-PT-07-dynamic-tensor-size.md."""

import re
import unicodedata
from collections.abc import Iterable

from torchtriage.tickets.model import Ticket

RECORDING_AGENT = "torchtriage"     # the agent of a ticket that comes from a recording
MAX_SLUG = 50
_LETTERS = {"pytorch": "PT", "drl": "DRL", "codereview": "CR", "code-review": "CR", RECORDING_AGENT: "TT"}
_ID = re.compile(r"B(\d+)-([A-Z]+)-(\d+)", re.I)


def letters_of(agent: str) -> str:
    """The part of an ID that names the agent: the initials of several words, or the first two letters of one."""
    letters = _LETTERS.get(agent.strip().lower())
    if letters:
        return letters
    words = re.findall(r"[A-Z]+", _ascii(agent).upper())
    letters = "".join(word[0] for word in words) if len(words) > 1 else "".join(words)[:2]
    return letters[:4] or "XX"


def agent_of(ticket_id: str) -> str:
    """The agent that the letters of an ID name; empty for letters that several agents may have."""
    match = _ID.match(ticket_id)
    return next((agent for agent, letters in _LETTERS.items() if match and letters == match[2].upper()), "")


def batch_in(ticket_id: str) -> int | None:
    """The batch number in an ID; None if the ID does not have the form B7-PT-07."""
    match = _ID.match(ticket_id)
    return int(match[1]) if match else None


def batch_in_id(ticket_id: str) -> str:
    """The batch number in an ID as text; empty if there is none."""
    number = batch_in(ticket_id)
    return "" if number is None else str(number)


def batch_name(text: str) -> str:
    """The canonical name of a batch: `7`, `07` and `Batch 7` are the same batch."""
    name = text.strip().removeprefix("Batch").strip()
    return name.lstrip("0") or "0" if name.isdecimal() else name


def batch_of(ticket: Ticket) -> str:
    """The batch that a ticket names, otherwise the one in its ID."""
    return batch_name(ticket.batch) or batch_in_id(ticket.id)


def highest_batch(ids: Iterable[str]) -> int:
    """The highest batch number among these IDs; 0 if there is none."""
    return max((batch for each in ids if (batch := batch_in(each)) is not None), default=0)


def next_id(batch: int, agent: str, ids_in_use: Iterable[str]) -> str:
    """The ID after the highest one in use for this batch and agent."""
    letters = letters_of(agent)
    highest = 0
    for each in ids_in_use:
        match = _ID.match(each)
        if match and int(match[1]) == batch and match[2].upper() == letters:
            highest = max(highest, int(match[3]))
    return f"B{batch}-{letters}-{highest + 1:02d}"


def ticket_file_name(ticket_id: str, title: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", _ascii(title).lower()).strip("-")
    if len(slug) > MAX_SLUG:
        slug = slug[: MAX_SLUG + 1].rpartition("-")[0] or slug[:MAX_SLUG]
    name = re.sub(r"[^\w.-]+", "-", ticket_id).strip(".-") or "ticket"
    return f"{name}-{slug}.md" if slug else f"{name}.md"


def _ascii(text: str) -> str:
    """The text without accents and without characters that have no ASCII form."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
