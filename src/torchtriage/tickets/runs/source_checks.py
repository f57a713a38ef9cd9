"""Judge a check by the source: a decorator, a docstring, a warning, a test, with the line that shows it."""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchtriage.tickets.checks.matching import base_name, same_file
from torchtriage.tickets.model import Ticket
from torchtriage.tickets.runs.call_graph import Function, Project, disabling_decorator
from torchtriage.tickets.runs.observations import names_in

_WARNS = re.compile(r"\bwarn|\bnot\b.{0,40}\b(?:compatible|supported|safe)|\b(?:do|must) not\b|\bnever\b", re.I)
_CAUTIONS = ("warns", "assertWarns", "assertWarnsRegex", "recwarn")
_NEGATION = re.compile(r"\b(?:no|not|never|without|remov\w*|drop\w*|delet\w*|instead)\b", re.I)
_KEPT_OUT = re.compile(r"\bnot (?:be )?(?:in|inside|part of) (?:any |a |the )?compiled\b", re.I)
_TEST_FILE = re.compile(r"test_.*\.py|.*_test\.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFact:
    """What the source says about a check; `holds` is None if it does not decide it."""

    holds: bool | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPlace:
    """One definition that a ticket names, with its file."""

    path: Path
    node: Function
    name: str

    def at(self, node: ast.AST, root: Path) -> str:
        return place_of(self.path, getattr(node, "lineno", self.node.lineno), root)


def place_of(path: Path, line: int, root: Path) -> str:
    shown = path.relative_to(root) if path.is_relative_to(root) else path
    return f"{shown.as_posix()}:{line}"


def fact_for(text: str, ticket: Ticket, project: Project) -> SourceFact | None:
    """What the source says about a box; None if no rule reads the box."""
    line = " ".join(text.split())
    if _NEGATION.search(line) and not _KEPT_OUT.search(line):
        return None
    rule = next((rule for wording, rule in _RULES if wording.search(line)), None)
    if rule is None:
        return None
    places = list(places_in(ticket, project))
    if not places:
        name = ticket.function or "the function"
        return SourceFact(holds=None, reason=f"{name} is not in the source below {project.root.name}")
    return rule(line, places, project)


def places_in(ticket: Ticket, project: Project) -> Iterator[NamedPlace]:
    """Every definition of the ticket's functions; only those in the ticket's own file, if the project has it."""
    for file in ticket.files:
        named = [path for path in project.trees if path.name == base_name(file)]
        own = [path for path in named if _is_the_file(path, file, project.root)] or named
        for path in sorted(own):
            for name in names_in(ticket.function):
                yield from (NamedPlace(path=path, node=node, name=name) for node in _defined(project.trees[path], name))


def _is_the_file(path: Path, file: str, root: Path) -> bool:
    return same_file((path.relative_to(root) if path.is_relative_to(root) else path).as_posix(), file)


def _defined(tree: ast.AST, name: str) -> list[Function]:
    """The definitions of `name`, where `A.b` is the method b of the class A."""
    nodes: list[ast.AST] = [tree]
    for part in name.split("."):
        below = [each for node in nodes for each in ast.walk(node) if each is not node]
        nodes = [each for each in below if isinstance(each, Function) and each.name == part]
    return [node for node in nodes if isinstance(node, Function)]


def _has_decorator(line: str, places: Sequence[NamedPlace], project: Project) -> SourceFact:
    for place in places:
        if disabling_decorator(place.node, project.trees[place.path]) is None:
            where = place.at(place.node, project.root)
            reason = f"{place.name} at {where} is not decorated with torch.compiler.disable"
            return SourceFact(holds=False, reason=reason)
    first = places[0]
    where = first.at(disabling_decorator(first.node, project.trees[first.path]) or first.node, project.root)
    return SourceFact(holds=True, reason=f"{first.name} is decorated with torch.compiler.disable at {where}")


def _is_kept_out(line: str, places: Sequence[NamedPlace], project: Project) -> SourceFact:
    """A decorator keeps a function out of compiled code; without one only a run can show it."""
    fact = _has_decorator(line, places, project)
    if fact.holds:
        return fact
    return SourceFact(holds=None, reason=f"{fact.reason}, and only a run shows what is compiled")


def _warns_in_docstring(line: str, places: Sequence[NamedPlace], project: Project) -> SourceFact:
    topic = r"\bcompil"
    reasons = []
    for place in places:
        text = ast.get_docstring(place.node, clean=False) or ""
        where = place.at(place.node, project.root)
        warning = _WARNS.search(text)
        if warning is None or not re.search(topic, text, re.I):
            return SourceFact(holds=False, reason=f"the docstring of {place.name} at {where} does not warn of this")
        line_number = place.node.body[0].lineno + text[:warning.start()].count("\n")
        reasons.append(f"the docstring of {place.name} warns at {place_of(place.path, line_number, project.root)}")
    return SourceFact(holds=True, reason="; ".join(reasons))


def _calls_warn(line: str, places: Sequence[NamedPlace], project: Project) -> SourceFact:
    """Every function of the ticket warns, itself or in a function of the same file that it calls, about the topic."""
    topic = _topic(line)
    reasons = []
    for place in places:
        shown = _warning_in(place.node, project.trees[place.path], topic, follow=True)
        if shown is None:
            where = place.at(place.node, project.root)
            about = f" about {topic}" if topic else ""
            return SourceFact(holds=False, reason=f"{place.name} at {where} does not call warnings.warn{about}")
        reasons.append(f"{place.name} calls warnings.warn at {place.at(shown, project.root)}")
    return SourceFact(holds=True, reason="; ".join(reasons))


def _topic(line: str) -> str:
    """The first word after `for` or `about`: what the warning has to be about."""
    match = re.search(r"\b(?:for|about|on|when)\s+(?:an?\s+|the\s+)?([\w-]{4,})", line, re.I)
    return match[1].casefold() if match else ""


def _warning_in(node: ast.AST, tree: ast.AST, topic: str, *, follow: bool) -> ast.Call | None:
    """The call of warnings.warn below a node whose statement or condition mentions the topic."""
    for statement in ast.walk(node):
        if not isinstance(statement, ast.If | ast.Expr) or topic not in ast.unparse(statement).casefold():
            continue
        for call in ast.walk(statement):
            if isinstance(call, ast.Call) and ast.unparse(call.func) in ("warnings.warn", "warn"):
                return call
    called = {_last(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)} if follow else set()
    helpers = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and each.name in called]
    warnings = (_warning_in(helper, tree, topic, follow=False) for helper in helpers if helper is not node)
    return next((call for call in warnings if call), None)


def _last(function: ast.expr) -> str:
    return ast.unparse(function).rpartition(".")[2]


def _tests_warning(line: str, places: Sequence[NamedPlace], project: Project) -> SourceFact:
    return _tested(places, project, " and expects a warning", lambda names: bool(names & set(_CAUTIONS)))


def _tests_compile(line: str, places: Sequence[NamedPlace], project: Project) -> SourceFact:
    return _tested(places, project, " and calls torch.compile", lambda names: "torch.compile" in names)


def _tests_it(line: str, places: Sequence[NamedPlace], project: Project) -> SourceFact:
    return _tested(places, project, "", lambda names: bool(names))


def _tested(places: Sequence[NamedPlace], project: Project, what: str, fits: Callable[[set[str]], bool]) -> SourceFact:
    """Holds if a test names the class, or the function, of every place and fits."""
    reasons = []
    for subject in dict.fromkeys(place.name.partition(".")[0] for place in places):
        shown = next(_tests_of(subject, project, fits), "")
        if not shown:
            return SourceFact(holds=False, reason=f"no test below {project.root.name} names {subject}{what}")
        reasons.append(f"{shown} names {subject}{what}")
    return SourceFact(holds=True, reason="; ".join(reasons))


def _tests_of(subject: str, project: Project, fits: Callable[[set[str]], bool]) -> Iterator[str]:
    for path, tree in sorted(project.trees.items()):
        if not _TEST_FILE.fullmatch(path.name):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
                names = _mentioned(node)
                if subject in names and fits(names):
                    yield f"{node.name} at {place_of(path, node.lineno, project.root)}"


def _mentioned(tree: ast.AST) -> set[str]:
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            names |= {node.attr, ast.unparse(node)}
    return names | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}


def _has_flat_keys(line: str, places: Sequence[NamedPlace], project: Project) -> SourceFact:
    """Holds if the class keeps a dict and none of its dicts has tuples as keys."""
    flat: list[str] = []
    for place in places:
        for node in ast.walk(place.node):
            if isinstance(node, ast.Dict | ast.DictComp):
                keys = node.keys if isinstance(node, ast.Dict) else [node.key]
                if any(isinstance(key, ast.Tuple) for key in keys):
                    return SourceFact(holds=False, reason=f"a tuple is a key at {place.at(node, project.root)}")
            if not isinstance(node, ast.AnnAssign):
                continue
            match = re.match(r"(?:typing\.)?[dD]ict\[(\w+)", ast.unparse(node.annotation))
            name = ast.unparse(node.target)
            if match and match[1].casefold() == "tuple":
                where = place.at(node, project.root)
                return SourceFact(holds=False, reason=f"the keys of {name} are tuples at {where}")
            if match:
                flat.append(f"the keys of {name} are {match[1]} at {place.at(node, project.root)}")
    if not flat:
        return SourceFact(holds=None, reason=f"{places[0].name} annotates no dict, so its keys are unknown")
    return SourceFact(holds=True, reason="; ".join(flat))


_SourceRule = Callable[[str, Sequence[NamedPlace], Project], SourceFact]
# The first wording that a box contains decides; a box about a test is about no other part of the source.
_RULES: tuple[tuple[re.Pattern[str], _SourceRule], ...] = (
    (re.compile(r"^(?:(?:add|write)\s+(?:an?\s+)?(?:unit\s+)?)?tests?\b.*\bwarn", re.I), _tests_warning),
    (re.compile(r"^(?:add|write)\s+(?:an?\s+)?(?:unit\s+)?tests?\b.*\bcompil", re.I), _tests_compile),
    (re.compile(r"^(?:add|write)\s+(?:an?\s+)?(?:unit\s+)?tests?(?:\s+(?:of|for)\s+`?[A-Z]\w+`?)?\.?$", re.I),
     _tests_it),
    (re.compile(r"(?=.*\bdocstring)(?=.*\bwarn)(?=.*compil)", re.I), _warns_in_docstring),
    (re.compile(r"@?torch\.compiler\.disable\b", re.I), _has_decorator),
    (re.compile(r"\bwarnings\.warn\b|\b(?:add|emit)\b.*\bruntime warning", re.I), _calls_warn),
    (re.compile(r"\bflat(?:ten)?\b.*\bkeys?\b", re.I), _has_flat_keys),
    (_KEPT_OUT, _is_kept_out),
)
