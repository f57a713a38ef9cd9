"""A fingerprint survives edits elsewhere, and changes with the code, the place or the kind of reason."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchtriage.findings.fingerprint import fingerprint, normalised_line, normalised_reason, portable_path

ONE = ("TT204", "app/model.py", "Policy.forward", "y = self.net(x, k)", "k == 3")
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)


def test_a_fingerprint_is_sixteen_hex_digits_on_every_machine() -> None:
    # Committed baselines hold these; another way of making them makes every baseline worthless.
    assert fingerprint(*ONE) == "1baf7406946906af"


@given(numbers, numbers)
def test_the_value_in_a_reason_does_not_count(one: float, other: float) -> None:
    assert fingerprint(*ONE[:4], f"k == {one}") == fingerprint(*ONE[:4], f"k == {other}")


@pytest.mark.parametrize(("one", "other"), [
    ("size mismatch at index 0. expected 4, actual 5", "size mismatch at index 0. expected 128, actual 7"),
    ("check_obj_id(fn, 139872)", "check_obj_id(fn, 7)"), ("<object at 0x7f12ab>", "<object at 0x55ff>"),
    ("lr == 0.001", "lr == 1e-05"), ("k == 3", "k == -3"), ("k  ==\n 3", "k == 3"),
])
def test_these_reasons_differ_only_in_their_values(one: str, other: str) -> None:
    assert normalised_reason(one) == normalised_reason(other)


@pytest.mark.parametrize(("one", "other"), [
    ("k == 3", "m == 3"), ("k == 3", "len(k) == 3"), ("tensor 'x' rank mismatch", "tensor 'x' dtype mismatch"),
    ("x1 == 3", "x2 == 3"), ("layer12 == 3", "layer13 == 3"), ("L['x10'] == 3", "L['x11'] == 3"),
])
def test_these_reasons_differ_in_kind_or_name(one: str, other: str) -> None:
    assert normalised_reason(one) != normalised_reason(other)


@pytest.mark.parametrize("line", [
    "        y = self.net(x, k)", "\ty = self.net(x, k)", "y = self.net(x, k)   ", "y  =  self.net(x, k)",
    "y = self.net(x, k)  # was 3", "y = self.net(x, k) # was 3", "y = self.net(x, k)# noqa", "y = self.net(x, k)\n",
])
def test_indentation_spacing_and_comments_do_not_count(line: str) -> None:
    assert fingerprint(*ONE[:3], line, ONE[4]) == fingerprint(*ONE)


@pytest.mark.parametrize("line", [
    'print("#1", x)', "d['  # not a comment'] = x", 'f"{x}  # {y}"', "s = 'it\\'s # one'", 'if x == "\\\\":  pass',
])
def test_a_hash_inside_a_string_is_code(line: str) -> None:
    assert normalised_line(line) == " ".join(line.split())


def test_lines_that_differ_only_inside_a_string_after_a_hash_differ() -> None:
    assert normalised_line("log('  # a')") != normalised_line("log('  # b')")


@pytest.mark.parametrize("position", range(5))
def test_each_part_changes_the_fingerprint(position: int) -> None:
    changed = list(ONE)
    changed[position] = ("TT205", "app/other.py", "Policy.act", "y = self.other(x, k)", "len(k) == 3")[position]
    assert fingerprint(*changed) != fingerprint(*ONE)


@given(st.lists(st.text(st.characters(), max_size=20), min_size=5, max_size=5))
def test_any_text_has_a_fingerprint(parts: list[str]) -> None:
    assert re.fullmatch(r"[0-9a-f]{16}", fingerprint(*parts))


def test_a_file_name_that_is_not_utf8_has_a_fingerprint() -> None:
    assert fingerprint("TT101", "mod\udce9.py", "f", "\ud800", "\udfff") != fingerprint(
        "TT101", "mode.py", "f", "\ud800", "\udfff"
    )


@pytest.mark.parametrize(("path", "roots", "expected"), [
    ("/home/me/app/model.py", ("/home/me",), "app/model.py"),
    ("/home/me/app/model.py", ("/home/me", "/home/me/app"), "model.py"),
    ("/home/me/app/model.py", ("/home/me/app/",), "model.py"),
    ("/home/me/application/model.py", ("/home/me/app",), "model.py"),
    ("/home/me/app/model.py", (), "model.py"),
    ("/home/me/app/model.py", ("",), "model.py"),
    (r"C:\Users\me\app\net\model.py", (r"C:\Users\me\app",), "net/model.py"),
    ("/v/lib/python3.11/site-packages/timm/layers/drop.py", ("/v",), "timm/layers/drop.py"),
    ("/usr/lib/python3/dist-packages/timm/drop.py", (), "timm/drop.py"),
    (r"C:\v\Lib\site-packages\timm\drop.py", (), "timm/drop.py"),
    ("/site-packages/a/site-packages/b/c.py", (), "b/c.py"),
    ("unknown", ("/home/me",), "unknown"),
    ("", ("/home/me",), ""),
])
def test_a_path_is_shown_below_its_root(path: str, roots: tuple[str, ...], expected: str) -> None:
    assert portable_path(path, roots) == expected


@given(st.text(st.characters(blacklist_characters="/\\"), min_size=1), st.sampled_from(["/a/b", "/x", "C:\\d"]))
def test_the_same_file_below_another_root_is_the_same_path(name: str, root: str) -> None:
    assert portable_path(f"{root}/pkg/{name}", (root,)) == f"pkg/{name}"
