"""The part of Markdown that the rule pages use, as HTML: headings, paragraphs, lists, code blocks and code spans."""

import re
from collections.abc import Callable, Collection

from torchtriage.reporters.html.escape import block, text

_PARTS = re.compile(
    r"^```[^\n]*\n(?P<code>.*?)^```$"
    r"|^#+ (?P<heading>[^\n]+)$"
    r"|^- (?P<item>[^\n]+(?:\n  [^\n]+)*)$"
    r"|(?P<words>[^\n]+(?:\n(?!```|#|- )[^\n]+)*)",
    re.M | re.S,
)
_CODE_SPAN = re.compile(r"`([^`]+)`")
_RULE = re.compile(r"\bTT\d{3}\b")


def to_html(page: str, *, heading: str = "h4", linked: Collection[str] = ()) -> str:
    """A page without its first heading; a code in `linked` becomes a link to its page in this report."""
    out: list[str] = []
    in_list = False
    for part in _PARTS.finditer(page.partition("\n")[2]):
        is_item = part["item"] is not None
        if is_item != in_list:
            out.append("<ul>" if is_item else "</ul>")
            in_list = is_item
        if part["code"] is not None:
            out.append(f"<pre>{block(part['code'].rstrip())}</pre>")
        elif part["heading"] is not None:
            out.append(f"<{heading}>{text(part['heading'])}</{heading}>")
        elif is_item:
            out.append(f"<li>{_inline(part['item'], linked)}</li>")
        else:
            out.append(f"<p>{_inline(part['words'], linked)}</p>")
    return "\n".join([*out, "</ul>"] if in_list else out)


def _inline(words: str, linked: Collection[str]) -> str:
    """Text with code spans; what stands in a code span is never a link."""
    pieces = _CODE_SPAN.split(" ".join(words.split()))
    return "".join(f"<code>{text(piece)}</code>" if i % 2 else _RULE.sub(_link_to(linked), text(piece)) for i, piece in enumerate(pieces))


def _link_to(linked: Collection[str]) -> "Callable[[re.Match[str]], str]":
    return lambda found: f'<a href="#rule-{found[0]}">{found[0]}</a>' if found[0] in linked else found[0]
