"""Time and size of a large HTML report, beside tlparse on the same trace, and how fast its filter responds in Chromium.

Both read one trace with as many compiles as a recording of 20,000 events has; torchtriage also reads that recording.
"""

import argparse
import shutil
import tempfile
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

from common import CACHE, Spread, interleaved, machine, note, save, table
from read import OURS, TLPARSE, make_html, real_traces, recording

from torchtriage.diagnosis.report import build_report
from torchtriage.findings.model import Severity
from torchtriage.findings.report import Report
from torchtriage.recording.events import Event
from torchtriage.recording.reader import read_recording
from torchtriage.recording.store import Writer
from torchtriage.reporters.html import render

NUM_EVENTS = 20_000
NUM_FINDINGS = 2_000
MAX_SECONDS = 5.0
MAX_MB = 2.0
MAX_FILTER_MS = 100.0
CHOICES = (("code", "TT202"), ("code", ""), ("text", "forward cat"), ("text", ""), ("file", "part3.py"), ("file", ""))
# From the reader's choice to the frame that shows its outcome: the script, the layout, and drawing the timeline again.
ANSWER = """([name, value]) => new Promise((done) => {
  const field = document.querySelector(`#filter [name=${name}]`);
  const shown = new MessageChannel(), began = performance.now();
  shown.port1.onmessage = () => done(performance.now() - began);
  field.value = value;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  requestAnimationFrame(() => shown.port2.postMessage(0));
})"""


def recording_of(number: int, folder: Path) -> Path:
    """The events of a real recording, one run after the other, until there are `number`;
    written as a run writes them.
    """
    real = max(read_recording(recording(folder)).processes, key=lambda p: len(p.events))
    span = real.events[-1].time - real.events[0].time + 1.0
    events: list[Event] = []
    for copy, event in enumerate(cycle(real.events)):
        events.append(replace(event, time=event.time + copy // len(real.events) * span))
        if len(events) == number:
            break
    target = folder / f"events-{number}.triage"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    writer = Writer(target / "process.sqlite")
    writer.put(events, facts={**real.facts, "end": events[-1].time}, sources=real.sources, series=real.series.values())
    writer.close()
    return target


def trace_of(number: int, folder: Path) -> Path:
    """A trace with about that many compiles: copies of a real one."""
    traces = sorted(real_traces(folder), key=lambda path: path.name)
    content = next(path.read_bytes() for path in traces if path.parent.name.startswith("many_runs"))
    target = folder / "report-trace.log"
    with target.open("wb") as file:
        for _ in range(max(1, round(number / max(1, content.count(b'"dynamo_start"'))))):
            file.write(content)
    return target


def large_report(source: Path) -> Report:
    """The report of the recording, its findings repeated at other places until there are 2,000."""
    report = build_report(read_recording(source), with_history=True)
    findings = []
    for number, finding in enumerate(cycle(report.findings)):
        place = replace(finding.location, path=f"{report.run['cwd']}/part{number % 20}.py")
        findings.append(
            finding.with_(
                fingerprint=f"{number:016x}" if number >= len(report.findings) else finding.fingerprint,
                location=place,
                severity=Severity(number % 5),
                title=f"{finding.title} ({number})",
            )
        )
        if len(findings) == NUM_FINDINGS:
            break
    return replace(report, findings=findings)


def answers(text: str, rounds: int) -> dict[str, list[float]] | None:
    """Milliseconds of each choice; None without a browser."""
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        note("no playwright or no chromium: the filter is not measured")
        return None
    measured: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        path = Path(scratch) / "report.html"
        path.write_text(text, encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(path.as_uri())
        page.locator("#list").scroll_into_view_if_needed()
        for _ in range(rounds):
            for name, value in CHOICES:
                measured.setdefault(f"{name}: {value or 'all'}", []).append(page.evaluate(ANSWER, [name, value]))
        browser.close()
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    folder = CACHE / "bench-read"
    folder.mkdir(parents=True, exist_ok=True)
    before = machine()
    source = recording_of(NUM_EVENTS, folder)
    report = build_report(read_recording(source), with_history=True)
    trace = trace_of(int(report.totals["compiles"] or 0), folder)
    results: dict[str, Any] = {
        "events": NUM_EVENTS,
        "moments": len(report.history.moments),
        "findings": len(report.findings),
        "trace_mb": trace.stat().st_size / 1e6,
    }
    ours = {"torchtriage, recording": (OURS, source), "torchtriage, trace": (OURS, trace)}
    variants = {**ours, TLPARSE: (TLPARSE, trace)}
    print(
        f"HTML of {report.totals['compiles']:,} compiles, complete processes: a recording of {NUM_EVENTS:,} events"
        f" ({len(report.history.moments):,} marks on its timeline), and a trace of {results['trace_mb']:.0f} MB that"
        " consists of copies\n"
    )
    rows = []
    for name, made in interleaved(tuple(variants), lambda name: make_html(*variants[name]), options.rounds).items():
        wall, cpu = Spread.of([m.ended.seconds for m in made]), Spread.of([m.ended.cpu_seconds for m in made])
        results[name] = {"seconds": wall, "cpu_seconds": cpu, "mb": made[0].mb, "files": made[0].num_files}
        rows.append([name, cpu.show(2), wall.show(2), f"{made[0].mb:.2f}", made[0].num_files])
    print(table(["made by", "cpu s", "wall s", "MB", "files"], rows))
    trace.unlink()
    print(f"\ntargets: <= {MAX_SECONDS:.0f} s, < {MAX_MB:.0f} MB, one file\n")
    text = render(large_report(source))
    measured = answers(text, 2 * options.rounds)
    if measured is not None:
        spreads = {name: Spread.of(values) for name, values in measured.items()}
        results["filter_ms"] = spreads
        results["filter_page_mb"] = len(text.encode()) / 1e6
        print(
            f"the filter at {NUM_FINDINGS:,} findings and {len(report.history.moments):,} marks"
            f" ({len(text.encode()) / 1e6:.1f} MB)\n"
        )
        print(table(["choice", "ms to the next frame"], [[name, spread.show(0)] for name, spread in spreads.items()]))
        print(f"\ntarget: < {MAX_FILTER_MS:.0f} ms")
    save("report", before, results)


if __name__ == "__main__":
    main()
