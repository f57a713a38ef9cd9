"""The gate for pytest: limits as markers, the fixture `triage`, and --torchtriage, which records the whole suite."""

from __future__ import annotations

import pytest

TYPE_CHECKING = False   # every pytest run loads this module, most of them never torch: it imports nothing that pytest has not
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from torchtriage.integrations.pytest_limits import Gate
    from torchtriage.integrations.pytest_recording import Suite
    from torchtriage.integrations.watch import Seen

MARKERS = {
    "limit_graph_breaks": "(most, *, allow=[]): fail if torch.compile breaks its graphs more often than this in the test",
    "limit_recompiles": "(most, *, warmup=0, allow=[]): fail if frames are compiled again more often than this; the first `warmup` compiles"
                        " of each frame are free",
    "limit_findings": "(severity, *, allow=[]): fail if torchtriage finds anything at this severity (P0 to P4) or worse in the test",
}
OPTIONS = {
    "output": ("NAME.triage", "the recording of --torchtriage (default: pytest.triage in the root folder; an earlier one is replaced)"),
    "fail_on": ("P0..P4|never", "with --torchtriage: the session fails if a finding of the suite is at least this severe (default: never)"),
    "baseline": ("FILE", "with --torchtriage: findings in this file are known: they are counted and never fail"),
}
# With these pytest runs no test; an earlier recording must survive them.
_ONLY_ASKING = ("help", "version", "collectonly", "markers", "showfixtures", "show_fixtures_per_test", "cacheshow", "setupplan")

_gate: pytest.StashKey[Gate] = pytest.StashKey()
_suite: pytest.StashKey[Suite] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("torchtriage", "torchtriage: what torch.compile does in the tests")
    group.addoption("--torchtriage", action="store_true", default=None, help="record the whole suite and sum up its findings")
    for name, (metavar, text) in OPTIONS.items():
        group.addoption(f"--torchtriage-{name.replace('_', '-')}", metavar=metavar, default=None, help=f"{text}; implies --torchtriage")
        parser.addini(f"torchtriage_{name}", text, default=None)


def pytest_configure(config: pytest.Config) -> None:
    for name, text in MARKERS.items():
        config.addinivalue_line("markers", name + text)


# The whole suite

@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Begin to record before a conftest can import torch, so that every torch.compile call is seen."""
    options = early_config.known_args_namespace
    flags = (options.torchtriage, *(getattr(options, f"torchtriage_{name}") for name in OPTIONS))
    if all(flag is None for flag in flags) or any(getattr(options, name, False) for name in _ONLY_ASKING):
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
    return [f"torchtriage: recording into {suite.shown}"] if suite else []


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
    """Runs after skip marks have been heard and before fixtures are set up."""
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
    """As near to the test as can be: pytest and its plugins have made their preparations."""
    gate = item.stash.get(_gate, None)
    if gate is None:
        return (yield)
    with gate.judging():
        result = yield
    if gate.excess:
        pytest.fail(gate.excess, pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails by itself keeps its own failure, and shows the limits it exceeded beside it."""
    report = yield
    gate = item.stash.get(_gate, None)
    if gate is not None and call.when == "call" and report.failed and gate.excess not in str(report.longrepr):
        report.sections.append(("torchtriage", gate.excess))
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
    """What torch.compile has done in this test so far: graph_breaks, recompiles, limits, findings."""
    gate = request.node.stash.get(_gate, None)
    if gate is not None:
        yield gate.seen     # watched from the first line of the test
        return
    from torchtriage.integrations.watch import watch

    with watch(roots=[str(request.config.rootpath)]) as seen:   # asked for by getfixturevalue, in the midst of the test
        yield seen


def _closest(item: pytest.Item, name: str) -> pytest.Mark | None:
    """The mark of this name that is nearest to the test; one of a parameter set is nearer than that of the function."""
    for mark in getattr(getattr(item, "callspec", None), "marks", ()):
        if mark.name == name:
            return mark  # type: ignore[no-any-return]  # callspec is only on parametrized tests, and has no public type
    return item.get_closest_marker(name)


def _asks_for_triage(item: pytest.Item) -> bool:
    """Whether our fixture, and not one of the project's with the same name, is among those of the test."""
    if "triage" not in getattr(item, "fixturenames", ()):
        return False
    known = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    return any(definition.func.__module__ == __name__ for definition in known.get("triage", ())[-1:])
