"""Checks as text: a check as a sentence, or read back from the checklist of a ticket file."""

import re

from torchtriage.findings.model import UNKNOWN_PLACE, Check, CheckKind, Location
from torchtriage.text import pattern, short_place

_SENTENCES = {
    CheckKind.NO_GRAPH_BREAK: "0 graph breaks at {place} in the next recording",
    CheckKind.NOT_EAGER: "all of {subject} no longer runs eager",
    CheckKind.REST_NOT_EAGER: "the rest of {subject} no longer runs eager",
    CheckKind.NO_RESUME_FUNCTION: "0 compiles of {subject}",
    CheckKind.FEW_RECOMPILES: "at most 1 recompile of {subject} in the next recording",
    CheckKind.NO_FINDING: "no {code} of {subject} in the next recording",
    CheckKind.NO_FINDING_IN_TRAINING: "no {code} in the next recording of this training",
    CheckKind.BELOW_RECOMPILE_LIMIT: "{subject} does not reach its recompile limit in the next recording",
    CheckKind.IS_COMPILED: "{subject} is among the compiled frames of the next recording",
    CheckKind.NO_FAILED_COMPILE: "no failed compile of {subject} in the next recording",
    CheckKind.ERRORS_NOT_SUPPRESSED: "suppress_errors is off in the next recording",
    CheckKind.LESS_COMPILE_TIME: "less compile time before steady state in the next recording",
    CheckKind.FEWER_CACHE_MISSES: "fewer cache misses in the next recording",
    CheckKind.NOT_IN_COMPILED_CODE: "not in compiled code",
    CheckKind.BY_HAND: "{subject}",
}


def sentence(check: Check) -> str:
    """The check as a line of a checklist."""
    place = short_place(check.place.path, check.place.line) if check.place else UNKNOWN_PLACE.path
    return _SENTENCES[check.kind].format(subject=check.subject, place=place, code=check.code)


# Every wording that a ticket file may contain. Add a new wording here and keep the old ones: tickets on disk have them.
_NEXT = r"(?: in the next recording)?"
_NAME = r"(?P<subject>\S+|the (?:compiled|module) .+?)"     # a frame without its own name is "the compiled module"
_WORDINGS = (
    (rf"(?:0|no) graph breaks? at (?:unknown|(?P<path>.+):(?P<line>\d{{1,9}})){_NEXT}", CheckKind.NO_GRAPH_BREAK),
    (rf"all of {_NAME} no longer runs eager", CheckKind.NOT_EAGER),
    (rf"the rest of {_NAME} no longer runs eager", CheckKind.REST_NOT_EAGER),
    (r"0 compiles of (?P<subject>torch_dynamo_resume_in_.+_at_\d+)", CheckKind.NO_RESUME_FUNCTION),
    (rf"at most 1 recompile of {_NAME}{_NEXT}", CheckKind.FEW_RECOMPILES),
    (rf"no (?P<code>TT\d{{3}}) of {_NAME}{_NEXT}", CheckKind.NO_FINDING),
    (r"no (?P<code>TT\d{3}) in the next recording of this training", CheckKind.NO_FINDING_IN_TRAINING),
    (rf"{_NAME} does not reach its recompile limit{_NEXT}", CheckKind.BELOW_RECOMPILE_LIMIT),
    (rf"no frame at its recompile limit{_NEXT}: {_NAME}", CheckKind.BELOW_RECOMPILE_LIMIT),
    (rf"{_NAME} is among the compiled frames of the next recording", CheckKind.IS_COMPILED),
    (rf"no failed compile of {_NAME}{_NEXT}", CheckKind.NO_FAILED_COMPILE),
    (rf"suppress_errors is off{_NEXT}", CheckKind.ERRORS_NOT_SUPPRESSED),
    (r"less compile time before steady state in the next recording", CheckKind.LESS_COMPILE_TIME),
    (r"fewer cache misses in the next recording", CheckKind.FEWER_CACHE_MISSES),
    (r".*\bnot (?:be )?(?:in|inside|part of) (?:any |a |the )?compiled (?:paths?|regions?|code|graphs?|functions?)\b.*",
     CheckKind.NOT_IN_COMPILED_CODE),
)


def check_in(text: str) -> Check:
    """The check that a line of a ticket's checklist states; BY_HAND if no wording of torchtriage matches."""
    line = " ".join(text.split()).rstrip(".")
    for wording, kind in _WORDINGS:
        match = pattern(wording, re.IGNORECASE).fullmatch(line)
        if match is None:
            continue
        fields = match.groupdict(default="")
        place = Location(path=fields["path"], line=int(fields["line"])) if fields.get("path") else None
        return Check(kind, fields.get("subject", ""), place, fields.get("code", "").upper())
    return Check(CheckKind.BY_HAND, text)
