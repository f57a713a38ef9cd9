"""The pytest plugin: limit markers, the fixture `triage`, --torchtriage for the full suite."""

from __future__ import annotations

import pytest

# Every pytest run loads this module, and most never load torch, so it imports only modules that pytest itself imports.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from torchtriage.integrations.pytest_limits import Gate
    from torchtriage.integrations.pytest_recording import Suite
    from torchtriage.integrations.watch import Seen

MARKERS = {
    "limit_graph_breaks": (
        "(most, *, allow=[]): fail the test if it has more than this number of graph breaks"
    ),
    "limit_recompiles": (
        "(most, *, warmup=0, allow=[]): fail the test if it has more than this number of recompiles; "
        "the first `warmup` compiles of each frame do not count"
    ),
    "limit_findings": (
        "(severity, *, allow=[]): fail the test if torchtriage has a finding of this severity (P0 to P4) or worse"
    ),
}
# name -> (metavar, help)
OPTIONS = {
    "output": (
        "NAME.triage",
        "the recording of --torchtriage (default: pytest.triage in the root folder; an earlier one is replaced)",
    ),
    "fail_on": (
        "P0..P4|never",
        "with --torchtriage: fail the session if a finding is at least this severe (default: never)",
    ),
    "baseline": (
        "FILE",
        "with --torchtriage: findings in this file are known: they are counted and never fail",
    ),
}
# With these options pytest runs no tests; they must not replace an earlier recording.
_NO_TEST_RUN = (
    "help", "version", "collectonly", "markers", "showfixtures", "show_fixtures_per_test", "cacheshow", "setupplan",
)

_gate: pytest.StashKey[Gate] = pytest.StashKey()
_seen: pytest.StashKey[Seen] = pytest.StashKey()        # of the fixture `triage`
_suite: pytest.StashKey[Suite] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("torchtriage", "torchtriage: what torch.compile does in the tests")
    group.addoption("--torchtriage", action="store_true", default=None, help=(
        "record the full suite and print a summary of its findings"
    ))
    for name, (metavar, text) in OPTIONS.items():
        flag = f"--torchtriage-{name.replace('_', '-')}"
        group.addoption(flag, metavar=metavar, default=None, help=f"{text}; implies --torchtriage")
        parser.addini(f"torchtriage_{name}", text, default=None)


def pytest_configure(config: pytest.Config) -> None:
    for name, text in MARKERS.items():
        config.addinivalue_line("markers", name + text)


# The full suite

@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Start to record before a conftest can import torch, so that every torch.compile call is recorded."""
    options = early_config.known_args_namespace
    flags = (options.torchtriage, *(getattr(options, f"torchtriage_{name}") for name in OPTIONS))
    if all(flag is None for flag in flags) or any(getattr(options, name, False) for name in _NO_TEST_RUN):
        return
    from torchtriage.errors import TriageError
    from torchtriage.integrations.pytest_recording import start

    try:
        suite = start(early_config)
    except TriageError as error:
        raise pytest.UsageError(f"torchtriage: {error}") from None
    if suite is not None:
        early_config.stash[_suite] = suite


def pytest_report_header(config: pytest.Config) -> list[str]:
    suite = config.stash.get(_suite, None)
    return [f"torchtriage: recording into {suite.path}"] if suite else []


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Runs after xdist has stopped its workers, and before the summary is printed."""
    suite = session.config.stash.get(_suite, None)
    if suite is None:
        return
    suite.close(int(session.exitstatus))
    if hasattr(session.config, "workerinput"):
        return      # the controller of xdist reads what its workers recorded
    suite.read()
    if suite.verdict and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    suite = config.stash.get(_suite, None)
    if suite is None:
        return
    terminalreporter.section("torchtriage")
    for line in suite.summary():
        terminalreporter.line(line, red=line == suite.verdict)


# One test

def pytest_runtest_setup(item: pytest.Item) -> None:
    """Runs after skip marks have been evaluated and before fixtures are set up."""
    marks = [mark for name in MARKERS if (mark := _closest(item, name)) is not None]
    if not marks and not _asks_for_triage(item):
        return
    from torchtriage.errors import TriageError
    from torchtriage.integrations.pytest_limits import Gate, limit_of

    try:
        limits = [limit_of(mark.name, mark.args, mark.kwargs) for mark in marks]
        item.stash[_gate] = Gate(limits, root=str(item.config.rootpath))
    except TriageError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """The innermost hook around the test: pytest and its other plugins have made their preparations."""
    gate = item.stash.get(_gate, None)
    if gate is None:
        return (yield)
    with gate.watching():
        result = yield
    if gate.excess:
        pytest.fail(gate.excess, pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails by itself shows its own failure, and in a separate section the limits that it exceeded.

    A test that uses the fixture `triage` shows its findings there: pytest would shorten them in an assertion.
    """
    report = yield
    if call.when == "call" and report.failed:
        gate, seen = item.stash.get(_gate, None), item.stash.get(_seen, None)
        text = gate.excess if gate is not None else ""
        if not text and seen is not None and seen.findings:
            from torchtriage.integrations.pytest_limits import findings_text

            text = findings_text(seen.report)
        if text and text not in str(report.longrepr):
            report.sections.append(("torchtriage", text))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        gate = item.stash.get(_gate, None)
        if gate is not None:
            gate.close()
            del item.stash[_gate]


@pytest.fixture
def triage(request: pytest.FixtureRequest) -> Iterator[Seen]:
    """The graph breaks, recompiles, limits and findings of torch.compile in this test so far."""
    gate = request.node.stash.get(_gate, None)
    if gate is not None:
        request.node.stash[_seen] = gate.seen
        yield gate.seen     # watched from the first line of the test
        return
    from torchtriage.integrations.watch import watch

    # The test requested the fixture with getfixturevalue while it was running.
    with watch(roots=[str(request.config.rootpath)]) as seen:
        request.node.stash[_seen] = seen
        yield seen


def _closest(item: pytest.Item, name: str) -> pytest.Mark | None:
    """The mark of this name that is closest to the test; a mark of its parameter set precedes that of the function."""
    for mark in getattr(getattr(item, "callspec", None), "marks", ()):
        if mark.name == name:
            return mark  # type: ignore[no-any-return]  # callspec is only on parametrized tests, and has no public type
    return item.get_closest_marker(name)


def _asks_for_triage(item: pytest.Item) -> bool:
    """Whether the test uses this fixture `triage`, and not one of the project with the same name."""
    if "triage" not in getattr(item, "fixturenames", ()):
        return False
    definitions = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    return any(definition.func.__module__ == __name__ for definition in definitions.get("triage", ())[-1:])
