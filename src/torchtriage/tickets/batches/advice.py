"""What a batch report advises for each of its findings, in its own words."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from torchtriage.findings.model import Category
from torchtriage.tickets.batches.parse import BatchReport, FindingRow, Recommendation
from torchtriage.tickets.checks.matching import base_name, code_names, words_of
from torchtriage.tickets.checks.report import Subjects, row_texts

MIN_SHARED_WORDS = 3        # between a recommendation that names a file and the one finding of it that it means
_ADVICE = re.compile(
    r"\b(?:consider|should|could benefit|either|instead|would be just|prefer|replace|remove)\b", re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*])")
# The first pattern that matches decides; a text that none matches has no category.
_CATEGORIES = (
    (r"test coverage|no tests|untested", Category.TEST_GAP),
    (r"torch\.compile|recompil|graph break", Category.COMPILE),
    (r"gpu syncs?|\bsyncs\b", Category.PERFORMANCE),
    (r"\bnan\b|overflow|\binf\b|epsilon|division by|divide by zero|underflow", Category.NUMERICS),
    (r"memory|allocat|\boom\b|leak", Category.RESOURCE),
    (r"slow|performance|bottleneck", Category.PERFORMANCE),
    (r"exception|traceback|\btry/except|swallow", Category.DEFENSIVE),
    (r"unused|never (?:called|used|checked)|orphan|not integrated|dead code|unwired", Category.DEAD_CODE),
    (r"race|deadlock|concurren|thread", Category.CONCURRENCY),
    (r"private api|duplicat|contract|signature", Category.CONTRACT),
    (r"deprecated|legacy", Category.LEGACY),
    (r"incorrect|wrong|\bbug\b|non-standard", Category.CORRECTNESS),
    (r"document|naming|clarity|non-obvious|default values|style|decorator", Category.DOCUMENTATION),
    (r"only adds|missing", Category.CONTRACT),
)


def fixes(report: BatchReport) -> Mapping[str, str]:
    """The fix of each finding, by ID: the advice in its own text and the recommendations about it.

    A finding about which the report advises nothing is not among them.
    """
    texts, subjects_of = row_texts(report), Subjects(report)
    found: dict[str, list[str]] = {}
    for item in report.recommendations:
        about = subjects_of(item) or _named_by_file(item, report, texts)
        for row in about:
            found.setdefault(row.id, []).append(f"{item.text}\n\n{item.code}".strip())
    named = {finding_id for item in report.recommendations for finding_id in item.ids}
    for finding_id, text in texts.items():
        advice = _advice_in(text)
        if advice and finding_id not in named:      # what it says of itself comes before what is found by its place
            found[finding_id] = [advice, *found.get(finding_id, [])]
    return {finding_id: "\n\n".join(dict.fromkeys(parts)) for finding_id, parts in found.items()}


def _named_by_file(item: Recommendation, report: BatchReport, texts: Mapping[str, str]) -> list[FindingRow]:
    """The finding of the file that a recommendation names, itself or by a class that the file is named for."""
    words = words_of(item.text)
    for file in {row.file for row in report.findings}:
        rows = [row for row in report.findings if row.file == file]
        stem_words = words_of(base_name(file).removesuffix(".py"))
        if any(words_of(name) == stem_words for name in code_names(item.text)) and len(rows) == 1:
            return rows
        if base_name(file) in item.text:
            shared = Counter({row.id: len(words & words_of(texts[row.id]) - stem_words) for row in rows})
            (best, count), *others = shared.most_common(2)
            if count >= MIN_SHARED_WORDS and not any(number == count for _, number in others):
                return [row for row in rows if row.id == best]
    return []


def _advice_in(text: str) -> str:
    """The sentences of a finding that say what to do."""
    sentences = _SENTENCE.split(" ".join(text.split("\n")[-1].split()))
    return " ".join(sentence for sentence in sentences if _ADVICE.search(sentence))


def category_of(texts: Iterable[str]) -> frozenset[Category]:
    """The category that the words of a finding name; of several texts, the first that names one decides."""
    for text in texts:
        for pattern, category in _CATEGORIES:
            if re.search(pattern, text, re.IGNORECASE):
                return frozenset({category})
    return frozenset()
