"""Adds the pages of the site that live outside docs/, and rewrites the links to them."""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]\n]*)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
RULE_CODE = re.compile(r"\bTT\d{3}\b")


def outside_pages() -> dict[str, str]:
    """By path in the repository, the address in the site of every page that is kept outside docs/."""
    pages = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "examples/README.md": "examples.md"}
    for rule in sorted(ROOT.glob("src/torchtriage/findings/rules/*.md")):
        pages[rule.relative_to(ROOT).as_posix()] = f"reference/rules/{rule.name}"
    return pages


PAGES = outside_pages()
ORIGINS = {address: path for path, address in PAGES.items()}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, address in PAGES.items():
        files.append(File.generated(config, address, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    address = page.file.src_uri
    origin = ORIGINS.get(address, f"docs/{address}")
    if address.startswith("reference/rules/"):
        markdown = link_related_rules(markdown)
    return LINK.sub(lambda match: site_link(match, origin, address), markdown)


def site_link(match: re.Match[str], origin: str, address: str) -> str:
    """The link as the site needs it; a link to a file that is not part of the site becomes plain text."""
    target = match["target"]
    if "://" in target or target.startswith("mailto:"):
        return match[0]
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
    if path in PAGES:
        in_site = PAGES[path]
    elif path.startswith("docs/"):
        in_site = path.removeprefix("docs/")
    elif (ROOT / path).exists():
        return match["text"]
    else:
        return match[0]     # broken: mkdocs reports it
    return f"[{match['text']}]({posixpath.relpath(in_site, posixpath.dirname(address))}{match['anchor'] or ''})"


def link_related_rules(markdown: str) -> str:
    """The codes below "See also" link to their pages, which are beside this one in the repository too."""
    text, heading, related = markdown.rpartition("## See also")
    return text + heading + RULE_CODE.sub(lambda match: f"[{match[0]}]({match[0]}.md)", related)
