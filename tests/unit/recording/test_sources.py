"""The source lines around a place and its qualified name, for files of any layout."""

import linecache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchtriage.recording.sources import CONTEXT, MAX_FUNCTION, MAX_LINE, TOP_LEVEL, qualname_at, source_around

SOURCE = '''\
import torch

LIMIT = 3

def top(x):
    y = x + 1

    def inner(z):
        return z
    return inner(y)


class Policy(torch.nn.Module):
    """A policy."""

    scale = 2

    def __init__(self):
        super().__init__()

    @torch.compile
    @torch.no_grad()
    def forward(self, x):
        f = lambda v: v * 2
        for i in range(3):
            if x.sum() > 0:
                x = f(x)
        return x

    class Head:
        async def act(self, x):
            return await x

    async  def later(self): pass

if True:
    def conditional():
        return 1
else:
    class Other:
        def method(self):
            return 2
print(top(1))'''
LINES = SOURCE.splitlines(keepends=True)


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(LINES, start=1) if text in line)


@pytest.mark.parametrize(("text", "name"), [
    ("LIMIT = 3", ""),
    ("def top", "top"),
    ("y = x + 1", "top"),
    ("def inner", "top.inner"),
    ("return z", "top.inner"),
    ("return inner(y)", "top"),
    ("class Policy", "Policy"),
    ("scale = 2", "Policy"),
    ("super()", "Policy.__init__"),
    ("@torch.compile", "Policy.forward"),
    ("@torch.no_grad", "Policy.forward"),
    ("def forward", "Policy.forward"),
    ("f = lambda", "Policy.forward"),
    ("x = f(x)", "Policy.forward"),
    ("return x\n", "Policy.forward"),
    ("class Head", "Policy.Head"),
    ("async def act", "Policy.Head.act"),
    ("return await x", "Policy.Head.act"),
    ("async  def later", "Policy.later"),
    ("return 1", "conditional"),
    ("return 2", "Other.method"),
    ("print(top(1))", ""),
])
def test_a_line_has_the_name_of_its_function(text: str, name: str) -> None:
    assert qualname_at(LINES, line_of(text)) == name


def test_a_decorator_over_several_lines_names_the_function_below_it() -> None:
    lines = [
        "class A:\n", "    @torch.compile(\n", "        dynamic=True,\n", "    )\n", "    def f(self):\n",
        "        pass\n",
    ]
    assert qualname_at(lines, 2) == "A.f"


def test_a_signature_over_several_lines_is_not_the_end_of_its_class() -> None:
    lines = [
        "class A:\n", "    def f(\n", "        self,\n", "    ) -> int:\n", "# a note at the margin\n",
        "        return 1\n",
    ]
    assert qualname_at(lines, 6) == "A.f"


@pytest.mark.parametrize(("lines", "line", "name"), [
    (["def f():\n", "\treturn 1\n"], 2, "f"),
    (["class A:\n", "\tdef f(self):\n", "\t\treturn 1\n"], 3, "A.f"),
    (["class A:\n", " def f(self):\n", "  return 1\n"], 3, "A.f"),
    (["    def f():\n", "        return 1\n"], 2, "f"),
    (["@dec\n"], 1, ""),
    (["    @dec\n", "    @dec\n"], 1, ""),
    (["\n"], 1, ""),
    (["x"], 1, ""),
    (["default = 1\n", "definition = 2\n", "    class_ = 3\n"], 3, ""),
])
def test_unusual_layouts_have_the_right_name(lines: list[str], line: int, name: str) -> None:
    assert qualname_at(lines, line) == name


pieces = st.sampled_from(
    ["    ", "\t", " ", "def f():", "class A:", "@dec", "@dec(", "async def g():", "x = 1", "", "'''", ")", "\x0c"]
)


source_lines = st.lists(pieces, max_size=4).map(lambda parts: "".join(parts) + "\n")


@given(st.lists(source_lines | st.text(max_size=20), min_size=1, max_size=15), st.data())
def test_no_file_content_raises(lines: list[str], data: st.DataObject) -> None:
    name = qualname_at(lines, data.draw(st.integers(1, len(lines))))
    assert all(part.isidentifier() or part.replace("_", "a").isalnum() for part in name.split(".") if part)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "model.py"
    path.write_text(SOURCE)
    return str(path)


def test_the_function_at_a_place_is_kept_with_its_name(file: str) -> None:
    number = line_of("x = f(x)")
    source = source_around(file, number)
    assert source is not None
    assert source.line(source.first_line) == "    @torch.compile"
    assert source.line(number + 1) == "        return x"
    assert source.line(number) == "                x = f(x)"
    assert source.qualname == "Policy.forward"


def test_outside_a_function_the_lines_around_a_place_are_kept(file: str) -> None:
    first, last = source_around(file, 1), source_around(file, len(LINES))
    assert first is not None
    assert last is not None
    assert (first.first_line, first.line(1), len(first.lines)) == (1, "import torch", min(1 + TOP_LEVEL, len(LINES)))
    assert (last.line(len(LINES)), len(last.lines)) == ("print(top(1))", min(1 + TOP_LEVEL, len(LINES)))


def test_of_an_installed_file_only_a_few_lines_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "site-packages" / "lib.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    source = source_around(str(path), line_of("x = f(x)"))
    assert source is not None
    assert len(source.lines) == 2 * CONTEXT + 1


def test_of_a_long_function_the_lines_around_the_place_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    path.write_text("def f(x):\n" + "    x = x + 1\n" * (2 * MAX_FUNCTION))
    source = source_around(str(path), MAX_FUNCTION)
    assert source is not None
    assert len(source.lines) == 2 * TOP_LEVEL + 1


def test_a_line_outside_of_the_source_is_empty(file: str) -> None:
    source = source_around(file, 1)
    assert source is not None
    assert (source.line(0), source.line(100)) == ("", "")


@pytest.mark.parametrize("line", [0, -1, len(LINES) + 1, 10**9])
def test_a_line_that_the_file_does_not_have_has_no_source(file: str, line: int) -> None:
    assert source_around(file, line) is None


@pytest.mark.parametrize(
    "path", ["unknown", "", "/no/such/file.py", "<string>", "<frozen runpy>", "a\x00b.py", "/tmp", "mod\udce9.py"],
)
def test_a_file_that_cannot_be_read_has_no_source(path: str) -> None:
    assert source_around(path, 1) is None


def test_a_very_long_line_is_cut(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text("x = '" + "a" * 10_000 + "'\n")
    source = source_around(str(tmp_path / "long.py"), 1)
    assert source is not None
    assert len(source.lines[0]) == MAX_LINE


def test_windows_line_ends_are_not_part_of_a_line(tmp_path: Path) -> None:
    (tmp_path / "dos.py").write_bytes(b"def f():\r\n    return 1\r\n")
    source = source_around(str(tmp_path / "dos.py"), 2)
    assert source is not None
    assert source.lines == ("def f():", "    return 1")


def test_the_source_of_a_notebook_cell_is_found() -> None:
    text = "def f():\n    return 1\n"
    linecache.cache["/tmp/ipykernel_1/2.py"] = (
        len(text), None, text.splitlines(keepends=True), "/tmp/ipykernel_1/2.py",
    )
    try:
        source = source_around("/tmp/ipykernel_1/2.py", 2)
    finally:
        del linecache.cache["/tmp/ipykernel_1/2.py"]
    assert source is not None
    assert source.qualname == "f"
