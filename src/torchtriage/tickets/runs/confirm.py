"""Finds the ticket that already describes a finding, also one that a person wrote."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torchtriage.findings.model import UNKNOWN_PLACE, Finding
from torchtriage.tickets.checks.matching import line_ranges, same_base, same_file
from torchtriage.tickets.files.read import TicketFile
from torchtriage.tickets.model import Ticket
from torchtriage.tickets.runs.from_finding import ticket_path
from torchtriage.tickets.runs.observations import names_in

_FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1", re.M | re.S)
_CALLED = re.compile(r"`([\w.]+)\(\)`")
_CODE = re.compile(r"\bTT\d{3}\b")
_SMALL = frozenset({"in", "of", "to", "by", "on", "or", "not", "over", "after", "before", "with", "for", "and"})
# How people name the cause of a rule, where they use other words than its slug.
_WORDINGS = {
    "TT101": r"\bprint\b", "TT102": r"\blogg(?:ing|er)\b",
    "TT103": r"\b(?:data|value)-dependent (?:branch|control flow)",
    "TT104": r"\.item\(|\.tolist\(|python (?:scalar|number)",
    "TT105": r"\b(?:data-dependent shape|nonzero|boolean mask)",
    "TT107": r"\bdeepcopy\b", "TT114": r"\bnumpy\b.{0,40}\brandom",
    "TT216": r"\bdict\w*\b.{0,40}\bkeys? chang",
    "TT701": r"\b(?:gpu |device )?syncs?\b|\bsynchroni[sz]ation", "TT703": r"\btemp(?:orary)? tensor|\btorch\.cat\b",
    "TT704": r"\boverflow", "TT706": r"\bdivision by (?:a )?(?:small|tiny|zero)|\bnear epsilon",
    "TT708": r"\b(?:bare|broad|swallow\w*|narrow\w*)\b.{0,60}\bexception|\bexception\w*.{0,60}\b(?:swallow|narrow)",
    "TT712": r"\bunused\b.{0,60}\b(?:parameters?|arguments?)\b",
    "TT713": r"\b(?:config\w*|settings?) fields?\b", "TT715": r"\bduplicat", "TT716": r"\bprivate (?:api|name)",
    "TT717": r"\bno tests?\b|\btest coverage\b|\buntested\b",
    "TT719": r"\bfloat\b.{0,40}\bboolean|\bboolean\w*.{0,40}\bfloat\b",
    "TT720": r"\bprofiler\b.{0,60}\b(?:not integrated|never called|not used)", "TT721": r"\bmps\b|\bxpu\b",
    "TT722": r"\bprofile\w*\b.{0,60}\bsteps\b|\bsteps\b.{0,60}\bprofiled\b",
    "TT736": r"\btuple\b.{0,60}\bkeys?\b|\bkeys?\b.{0,60}\btuples?\b",
    "TT737": r"\bstack\b.{0,80}(?:layer|parameter)", "TT738": r"\bdevice migrat|\bmigrat\w*.{0,40}\bdevice",
}
_EFFECTS = {"TT1": r"\bgraph breaks?\b", "TT2": r"\brecompil\w*"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketMatch:
    """A ticket that may be about a finding; only a sure match is taken without being asked for."""

    file: TicketFile
    is_sure: bool
    reason: str


def match_in(files: Iterable[TicketFile], finding: Finding, roots: Sequence[str]) -> TicketMatch | None:
    """The ticket of the same place and cause; two tickets that match equally well make it doubtful."""
    if finding.location == UNKNOWN_PLACE:
        return None
    matches = [match for file in files if (match := _match(file, finding, roots))]
    sure = [match for match in matches if match.is_sure]
    if len(sure) > 1:
        others = ", ".join(match.file.ticket.id for match in sure[1:])
        return TicketMatch(file=sure[0].file, is_sure=False, reason=f"{sure[0].reason}, but so is {others}")
    return next(iter([*sure, *matches]), None)


def _match(file: TicketFile, finding: Finding, roots: Sequence[str]) -> TicketMatch | None:
    ticket, place = file.ticket, finding.location
    path = ticket_path(place.path, roots)
    if ticket.fingerprint:      # torchtriage wrote it for another finding
        return None
    cause = cause_named(ticket, finding)
    effect = "" if cause else _effect_named(ticket, finding)
    if not (cause or effect) or not any(same_base(path, name) for name in ticket.files):
        return None
    is_file = any(same_file(path, name) for name in ticket.files)
    names = names_in(ticket.function) if ticket.function else _functions_named(ticket)
    is_function = any(_is_within(place.function or "", name) for name in names)
    if effect:
        reason = f"same file, same function, {effect}, but its cause is in other words"
        return TicketMatch(file=file, is_sure=False, reason=reason) if is_file and is_function else None
    if is_file and is_function:
        return TicketMatch(file=file, is_sure=True, reason=f"same file, same function, {cause}")
    if is_function:
        return TicketMatch(file=file, is_sure=False, reason=f"same function, {cause}, but the folder is another one")
    if is_file and not ticket.function:
        return TicketMatch(file=file, is_sure=False, reason=f"same file, {cause}, but the ticket names no function")
    if is_file and any(place.line in lines for lines in line_ranges(ticket.lines)):
        return TicketMatch(file=file, is_sure=False, reason=f"same file, same line, {cause}, but another function")
    return None


def _functions_named(ticket: Ticket) -> list[str]:
    """The functions that a ticket without a place in a function writes as `name()` in its text."""
    return _CALLED.findall(_FENCE.sub("", f"{ticket.title}\n{ticket.wrong}"))


def cause_named(ticket: Ticket, finding: Finding) -> str:
    """How the ticket names the cause of the finding: by its code, or in words and category; empty if it does not."""
    prose = _FENCE.sub("", f"{ticket.title}\n{ticket.summary}\n{ticket.wrong}")
    codes = set(_CODE.findall(f"{prose}\n{ticket.report_section}"))
    if codes:
        return f"the ticket names {finding.code}" if finding.code in codes else ""
    if ticket.categories and finding.category not in ticket.categories:
        return ""
    text = " ".join(prose.replace("`", "").casefold().split())
    wording = _WORDINGS.get(finding.code)
    if wording:
        named = re.search(wording, text)
        return f'the ticket says "{named[0]}"' if named else ""
    words = [word for word in finding.slug.split("-") if word not in _SMALL]
    has_all = len(words) > 1 and all(re.search(rf"\b{re.escape(word[:6])}", text) for word in words)
    return f"the ticket has the words of {finding.slug}" if has_all else ""


def _effect_named(ticket: Ticket, finding: Finding) -> str:
    """How the ticket names what the finding leads to, a graph break or a recompile; empty if it names a code."""
    prose = _FENCE.sub("", f"{ticket.title}\n{ticket.summary}\n{ticket.wrong}")
    effect = _EFFECTS.get(finding.code[:3])
    if effect is None or finding.category not in ticket.categories or _CODE.search(f"{prose}\n{ticket.report_section}"):
        return ""
    named = re.search(effect, prose, re.I)
    return f'the ticket says "{named[0]}"' if named else ""


def _is_within(function: str, name: str) -> bool:
    """Whether a function is the one that a ticket names; the name of a class means each of its methods."""
    if not function or not name:
        return False
    padded = f".{function}."
    return f".{name}." in padded or name.endswith(f".{function}")
