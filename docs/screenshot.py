"""Runs the demo and writes a screenshot of its HTML report in Chromium to docs/report.png."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

WIDTH, HEIGHT = 1280, 1290      # the verdict, the timeline and the first finding


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        subprocess.run([sys.executable, "-m", "torchtriage", "demo", "-q"], cwd=folder, check=True, capture_output=True)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto((Path(folder) / "torchtriage-demo" / "demo.html").as_uri())
        page.screenshot(path=Path(__file__).parent / "report.png")
        browser.close()


if __name__ == "__main__":
    main()
