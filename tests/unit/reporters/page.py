"""Reads a page as a browser would, strictly: for the tests of the HTML report."""

import json
import re
from html.parser import HTMLParser
from typing import Any

from tests.unit.reporters.report_samples import a_report
from torchtriage.reporters.html import render

VOID = {"meta", "input", "br"}
INLINE = {"a", "b", "code", "i"}      # their text joins the text beside them


class Page(HTMLParser):
    """The elements of a page, as a browser would open them; complains about what is not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.contents: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._space(tag)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        self._space(tag)

    def _space(self, tag: str) -> None:
        if tag not in INLINE:
            self.words.append(" ")

    def handle_data(self, data: str) -> None:
        self.contents.append((self._open[-1] if self._open else "", data))
        if not {"style", "script"} & set(self._open):
            self.words.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    @property
    def shape(self) -> list[tuple[str, tuple[str, ...]]]:
        """Which elements with which attributes, without what they say."""
        return [(tag, tuple(attrs)) for tag, attrs in self.elements]

    def all(self, name: str) -> list[str]:
        return [attrs[name] or "" for _, attrs in self.elements if name in attrs]

    def content(self, tag: str) -> str:
        return "".join(data for open_, data in self.contents if open_ == tag)


def data_of(text: str) -> dict[str, Any]:
    [block] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(block)


def words_of(**fields: Any) -> str:
    return Page(render(a_report(**fields))).text
