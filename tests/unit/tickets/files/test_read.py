"""Reading tickets: every field of the seeds, forms that other people use, and any text at all."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tickets.samples import PIECES, REPORT, TICKETS, seed, seed_text
from torchtriage.findings.model import Category
from torchtriage.tickets.files.read import TicketFile, parse
from torchtriage.tickets.model import Box, Relation, Review


def parsed(text: str) -> TicketFile:
    return parse(text, Path("x.md"))


def kinds(text: str) -> list[str]:
    return [problem.kind for problem in parsed(text).problems]


def with_change(name: str, old: str, new: str) -> TicketFile:
    text = seed_text(name)
    assert old in text
    return parsed(text.replace(old, new, 1))


def test_a_seed_with_a_bold_impact_label_and_three_reviews_is_read() -> None:
    file = seed("B7-PT-07")
    t = file.ticket
    assert file.problems == ()
    assert (t.id, t.severity, t.status) == ("B7-PT-07", "P4", "open")
    assert t.title == "Dynamic Tensor Size May Cause Recompilation"
    assert (t.batch, t.agent, t.domain, t.assignee) == ("7", "pytorch", "simic/telemetry", "")
    assert (t.created, t.updated) == ("2024-12-27", "2024-12-27")
    assert t.files == ("/home/john/esper-lite/src/esper/simic/telemetry/debug_telemetry.py",)
    assert (t.lines, t.function) == ("79-95", "collect_per_layer_gradients()")
    assert t.summary == "`torch.stack()` with dynamic layer count may cause recompilation under torch.compile."
    assert t.categories == {Category.COMPILE}
    assert t.wrong.startswith("```python\nstat_tensors.append(")
    assert t.wrong.endswith("- This triggers recompilation when layer count changes")
    assert t.impact == "Not critical since this is debug-only code that shouldn't be in compiled regions."
    assert t.fix.startswith(
        "Document that this function should not be called from compiled code:\n\n```python\ndef collect_per_layer"
    )
    assert t.fix.endswith("def collect_per_layer_gradients(...):\n    ...\n```")
    assert t.verification == (
        Box(text="Add docstring warning about torch.compile"),
        Box(text="Optionally add @torch.compiler.disable decorator"),
        Box(text="Verify debug code is not in compiled paths"),
    )
    assert t.related == ()
    assert [(r.role, r.verdict, r.reviewer, r.date) for r in t.reviews] == [
        (role, "ENDORSE", role, "") for role in ("DRL Specialist", "PyTorch Specialist", "Code Review Specialist")
    ]
    assert t.reviews[0].evaluation == (
        "Debug telemetry should explicitly opt out of compiled graphs to avoid silently degrading training performance."
    )
    assert t.report_file == "docs/temp/2712reports/batch7-pytorch.md"
    assert t.report_section == '"torch.compile risk - dynamic tensor size may cause recompilation"'
    assert t.fingerprint == ""


def test_a_seed_with_reviews_after_the_appendix_is_read() -> None:
    file = seed("B5-PT-06")
    t = file.ticket
    assert file.problems == ()
    assert (t.id, t.severity, t.batch, t.domain) == ("B5-PT-06", "P3", "5", "simic/control")
    assert (t.lines, t.function) == ("71-72, 131-132", "RunningMeanStd.update(), RunningMeanStd.normalize()")
    assert t.summary == "Auto device migration (CPUâ†’GPU) triggers torch.compile graph breaks without warning."
    assert t.wrong.startswith("Both `update()`")
    assert t.wrong.endswith("no runtime warning is emitted.")
    assert t.impact == ""
    assert t.fix.endswith("    self.to(x.device)\n```")
    assert len(t.verification) == 3
    assert [(r.reviewer, r.date) for r in t.reviews] == [
        ("PyTorch Specialist", "2024-12-27"), ("DRL Specialist", ""), ("Code Review Specialist", ""),
    ]
    assert t.reviews[2].evaluation.endswith("The fix is surgical and safe - recommend implementation.")
    assert t.report_section == '"Cross-Cutting Integration Risks" (torch.compile Graph Break)'


def test_a_seed_with_an_impact_section_and_related_tickets_is_read() -> None:
    file = seed("B8-PT-06")
    t = file.ticket
    assert file.problems == ()
    assert (t.id, t.created, t.function) == ("B8-PT-06", "2025-12-27", "ParallelEnvState")
    assert t.wrong.endswith("3. Dynamic key access patterns are hard for the compiler to trace")
    assert t.impact.startswith("- **Graph breaks**: Compilation may fail")
    assert t.impact.endswith("May need @torch.compiler.disable on accessors")
    assert t.fix.startswith("**Option 1 - Use flat indices:**\n```python")
    assert t.related == (
        Relation(ticket_id="B8-PT-05", note="Fragile locals() check (also torch.compile concern)"),
        Relation(ticket_id="B8-CR-02", note="Repeated cast() in hot path (also compilation concern)"),
    )
    assert t.reviews == ()


def test_a_batch_report_is_not_a_ticket() -> None:
    assert not parsed(REPORT.read_text()).is_ticket
    assert all(seed(name).is_ticket for name in TICKETS)


@pytest.mark.parametrize("name", TICKETS)
def test_line_endings_do_not_matter(name: str) -> None:
    assert parsed(seed_text(name).replace("\n", "\r\n")).ticket == seed(name).ticket


@pytest.mark.parametrize(("old", "new"), [
    ("| **Severity** | `P4` |", "| Severity | P4 |"),
    ("| **Severity** | `P4` |", "|Severity|**P4**|"),
    ("| **Severity** | `P4` |", "| **Severity:** | `P4`"),
    ("| **Severity** | `P4` |", "| **Reach** | all of it |\n| **Severity** | `P4` |"),
    ("## Ticket Metadata", "### 1. Metadata:"),
    ("## Ticket Metadata", "## Something else"),
    ("## Ticket Metadata\n", ""),
    ("## Location", "#### Location"),
    ("## Location\n", ""),
    ("### What's Wrong", "## What’s wrong"),
    ("### What's Wrong\n", ""),
    ("**Impact:** Not critical", "### Impact\n\nNot critical"),
    ("**Impact:** Not critical", "**Impact**: Not critical"),
    ("**One-line summary:** ", ""),
    ("**One-line summary:** ", "**Summary**: "),
    ("## Verification\n\n### How to Verify the Fix", "### How to Verify"),
    ("- [x] torch.compile", "* [X] torch.compile"),
    ("## Related Findings\n\nNone.", "## Unknown section\n\nwith text"),
    ("### Original Report Reference\n", ""),
    ("## Recommended Fix", "## Recommended fix:"),
])
def test_other_forms_of_a_ticket_read_the_same(old: str, new: str) -> None:
    assert with_change("B7-PT-07", old, new).ticket == seed("B7-PT-07").ticket


def test_sections_may_come_in_any_order() -> None:
    head, *parts = seed_text("B5-PT-06").split("\n---\n\n")
    text = "\n---\n\n".join([head, *reversed([part.rstrip("\n") + "\n" for part in parts])])
    ticket = seed("B5-PT-06").ticket
    assert parsed(text).ticket == ticket.with_(reviews=ticket.reviews[::-1])


@pytest.mark.parametrize(("line", "relation"), [
    ("- B8-PT-05", Relation(ticket_id="B8-PT-05")),
    ("* `B8-PT-05` - why", Relation(ticket_id="B8-PT-05", note="why")),
    ("- Duplicate of B8-PT-05", Relation(ticket_id="B8-PT-05", kind="duplicate")),
    ("- **Blocked by:** B8-PT-05 (soon)", Relation(ticket_id="B8-PT-05", kind="blocked-by", note="(soon)")),
    ("- B8-PT-05 (blocks): why", Relation(ticket_id="B8-PT-05", kind="blocks", note="why")),
    ("- B8-PT-05: why\n  and how", Relation(ticket_id="B8-PT-05", note="why and how")),
])
def test_relations_are_read_in_several_forms(line: str, relation: Relation) -> None:
    assert with_change("B7-PT-07", "None.", line).ticket.related == (relation,)


def test_a_review_without_a_label_keeps_its_text() -> None:
    text = "# Finding Ticket: t\n\n## Cross-Review\n\n| Verdict | OBJECT |\n|---|---|\n\nNo.\n\nNever.\n"
    assert parsed(text).ticket.reviews == (Review(role="", verdict="OBJECT", evaluation="No.\n\nNever."),)


def test_a_malformed_part_is_reported_with_its_line() -> None:
    assert [str(p) for p in with_change("B7-PT-07", "| `P4` |", "| `P4` | high |").problems] == [
        "x.md:10: the row 'Severity' has 3 cells instead of 2; write a | inside a value as \\|",
    ]
    assert [str(p) for p in with_change("B7-PT-07", "None.", "- something or other").problems] == [
        "x.md:108: no ticket ID in this item: '- something or other'",
    ]


@pytest.mark.parametrize(("old", "new", "kind"), [
    ("| **Severity** | `P4` |", "| **Severity** |", "broken-table"),
    ("| **Severity** | `P4` |", "| **Severity** | `P4` |\n| **Severity** | `P3` |", "broken-table"),
    ("|-------|-------|\n", "", "broken-table"),
    ("- [x] torch.compile compatibility", "- [x] Bad luck", "unknown-category"),
    ("## Recommended Fix", "## Recommended Fix\n\none\n\n## Recommended Fix", "repeated-section"),
    ("| **Status** | `open` |\n", "", "missing-status"),
    ("# Finding Ticket: Dynamic Tensor Size May Cause Recompilation\n", "", "missing-title"),
    ("**Section:**", "<<<<<<< HEAD\na\n=======\nb\n>>>>>>> other\n**Section:**", "merge-conflict"),
    ("**Section:**", "```python\n**Section:**", "unclosed-block"),
])
def test_malformed_parts_are_problems(old: str, new: str, kind: str) -> None:
    assert [p.kind for p in with_change("B7-PT-07", old, new).problems] == [kind]


def test_headings_in_code_and_comments_are_not_sections() -> None:
    text = "# Finding Ticket: t\n\n## Recommended Fix\n\n```\n## Impact\n```\n\n<!--\n## Impact\n-->\n"
    assert parsed(text).ticket.impact == ""
    assert parsed(text).ticket.fix == "```\n## Impact\n```\n\n<!--\n## Impact\n-->"


def test_an_unclosed_fence_does_not_hide_the_rest() -> None:
    file = with_change("B7-PT-07", "Or add explicit guard:\n```python", "Or add explicit guard:\n````python")
    assert len(file.ticket.reviews) == 3
    assert [p.kind for p in file.problems] == ["unclosed-block", "unclosed-block"]


@given(st.text() | st.lists(st.sampled_from(PIECES) | st.text(max_size=5)).map("\n".join))
def test_any_text_can_be_read(text: str) -> None:
    assert parsed(text).text == text


@given(st.sampled_from(TICKETS), st.data())
def test_any_damaged_seed_can_be_read(name: str, data: st.DataObject) -> None:
    text = seed_text(name)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 200)))
        text = text[:start] + data.draw(st.sampled_from(PIECES) | st.text(max_size=5)) + text[end:]
    assert parsed(text).text == text


def test_reading_time_is_not_quadratic() -> None:
    """A careless reader is quadratic in each of these."""
    for piece in ("```a\n", "<!--\n", "`" * 9, "|" * 9, "**a", "a" * 9, " " * 9, "- [ ] \n", "\\" * 9, "~~~~\n~~~\n"):
        start = time.process_time()
        parsed(piece * 20_000)
        assert time.process_time() - start < 5.0, piece
