"""Opens reports in a real Chromium, from disk as a user would, and fails a test if its page has an error."""

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from torchtriage.findings.report import Report
from torchtriage.reporters.html import render

Open = Callable[..., Any]


@dataclass
class Trouble:
    """Errors and requests that no page may cause."""

    seen: list[str] = field(default_factory=list)

    def watch(self, page: Any) -> None:
        page.on(
            "console",
            lambda message: (
                self.seen.append(f"console: {message.text}") if message.type in ("error", "warning") else None
            ),
        )
        page.on("pageerror", lambda error: self.seen.append(f"error: {error}"))
        page.on("dialog", self._on_dialog)
        page.on("request", self._on_request)

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith(("file:", "data:")):
            self.seen.append(f"request: {request.url}")

    def _on_dialog(self, dialog: Any) -> None:
        self.seen.append(f"dialog: {dialog.message}")
        dialog.dismiss()


def wait_until(page: Any, expression: str, arg: Any = None, seconds: float = 120.0) -> None:
    """Waits until the expression holds in the page.

    Playwright's own `wait_for_function` evaluates again in a callback of the page, which the report's
    content security policy forbids: it works only when the expression holds at once.
    """
    end = time.monotonic() + seconds
    while not page.evaluate(expression, arg):
        assert time.monotonic() < end, f"not within {seconds:g} s: {expression}"
        page.wait_for_timeout(20)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    api = pytest.importorskip(
        "playwright.sync_api", reason="the browser tests need playwright: pip install -e '.[dev]'"
    )
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("the browser tests need chromium: apt-get install chromium")
    with api.sync_playwright() as playwright:
        # Chromium refuses to run as root inside its sandbox, and containers have no other user.
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def open_report(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """`open_report(report or HTML, width=, colour=, **context)` opens a page; an error in any page fails the test."""
    trouble = Trouble()
    contexts = []

    def open_(
        report: Report | str,
        *,
        width: int = 1280,
        height: int = 900,
        colour: str = "light",
        at: str = "",
        **options: Any,
    ) -> Any:
        path = tmp_path / f"report-{len(contexts)}.html"
        path.write_text(
            report if isinstance(report, str) else render(report), encoding="utf-8", errors="backslashreplace"
        )
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=colour, **options)
        context.set_default_timeout(120_000)    # of a page on a busy machine
        contexts.append(context)
        page = context.new_page()
        trouble.watch(page)
        page.goto(path.as_uri() + at)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert trouble.seen == []
