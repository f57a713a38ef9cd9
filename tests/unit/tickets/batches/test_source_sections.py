"""The parts of a batch report that follow from the reviewed source."""

from torchtriage.tickets.batches.source_facts import ReviewedFile, SourceFacts
from torchtriage.tickets.batches.source_sections import OTHERS, source_parts
from torchtriage.tickets.model import Ticket

FILES = (ReviewedFile(path="src/kit/a.py"), ReviewedFile(path="src/kit/b.py"), ReviewedFile(path="src/rim/b.py"))


def others(*paths: str) -> str:
    tickets = [Ticket(id=f"B1-TT-{number}", title="t", files=(path,)) for number, path in enumerate(paths)]
    return source_parts(SourceFacts(files=FILES), tickets)[OTHERS]


def test_a_path_of_another_machine_names_the_reviewed_file() -> None:
    assert others("/home/me/repo/src/kit/a.py").startswith("2 reviewed files without a finding")


def test_a_path_that_two_reviewed_files_could_be_names_none() -> None:
    assert others("b.py").startswith("3 reviewed files without a finding")
