"""Changes of a file by libcst: the edit is made, and everything else keeps its form."""

import pytest

from torchtriage.findings.model import Change, ChangeKind
from torchtriage.remedies.rewriting import rewritten
from torchtriage.remedies.tree import UneditableError, plain

K = ChangeKind
SOURCE = '''\
"""Doc."""
import torch  # the library
from torch import nn


class Net(nn.Module):

    # forward
    def forward( self, x, k = 1 ):   # go
        y = self.lin( x )
        # explain
        if y.sum() > 0:  # positive
            y = y * 2   # twice
        else:
            # minus
            y = -y
        print("y",  y)  # show
        with self.lock:   # hold
            # inside
            y = y + 1
        return y.sum().item() * 2


m = torch.compile(Net(),
    backend="eager",   # kept
    dynamic=False,
)
# the call
m(torch.ones(2))
'''


def change(kind: ChangeKind, line: int, old: str = "", new: str = "", within: str = "") -> Change:
    return Change(kind=kind, path="net.py", line=line, old=old, new=new, within=within)


def edited(*changes: Change, source: str = SOURCE) -> str:
    return rewritten(source.encode(), changes).decode()


@pytest.mark.parametrize(("made", "removed", "added"), [
    (change(K.REPLACE, 21, "y.sum().item()", "y.sum().detach()"),
     ["        return y.sum().item() * 2"], ["        return y.sum().detach() * 2"]),
    (change(K.REPLACE, 21, "y.sum().item()", "a + b"),
     ["        return y.sum().item() * 2"], ["        return (a + b) * 2"]),
    (change(K.REPLACE, 29, "torch.ones(2)", "torch.ones(2).contiguous()", within="m(torch.ones(2))"),
     ["m(torch.ones(2))"], ["m(torch.ones(2).contiguous())"]),
    (change(K.WRAP, 17, "print('y', y)", "if not torch.compiler.is_compiling()"),
     ['        print("y",  y)  # show'],
     ["        if not torch.compiler.is_compiling():", '            print("y",  y)  # show']),
    (change(K.REMOVE, 17, "print('y', y)"), ['        print("y",  y)  # show'], ["        # show"]),
    (change(K.UNWRAP, 18, "with self.lock"),
     ["        with self.lock:   # hold", "            # inside", "            y = y + 1"],
     ["        # hold", "        # inside", "        y = y + 1"]),
    (change(K.INSERT, 29, new="torch._dynamo.maybe_mark_dynamic(x, 0)"), [],
     ["torch._dynamo.maybe_mark_dynamic(x, 0)"]),
    (change(K.APPEND, 29, new="done()"), [], ["done()"]),
    (change(K.DROP_ARGUMENT, 26, "dynamic"), ["    dynamic=False,"], []),
    (change(K.ADD_ARGUMENT, 29, "m(torch.ones(2))", "noise=3"), ["m(torch.ones(2))"], ["m(torch.ones(2), noise=3)"]),
    (change(K.ADD_PARAMETER, 9, new="noise"),
     ["    def forward( self, x, k = 1 ):   # go"], ["    def forward( self, x, k = 1, noise=None ):   # go"]),
    (change(K.SET, 9, new="torch._dynamo.config.allow_rnn = True"), [],
     ["", "torch._dynamo.config.allow_rnn = True"]),
], ids=lambda value: value.kind if isinstance(value, Change) else "")
def test_only_the_lines_of_the_edit_change(made: Change, removed: list[str], added: list[str]) -> None:
    before, after = SOURCE.splitlines(), edited(made).splitlines()
    for line in removed:
        before.remove(line)
    for line in added:
        after.remove(line)
    if made.kind is K.DROP_ARGUMENT:    # the comment of the argument before it stays
        assert any("# kept" in line for line in after)
    assert before == after


def test_a_replaced_branch_keeps_its_comments_above_the_new_line() -> None:
    old = plain("if y.sum() > 0:\n    y = y * 2\nelse:\n    y = -y")
    text = edited(change(K.REWRITE, 12, old, "y = torch.where(y.sum() > 0, y * 2, -y)"))
    assert (
        "        # explain\n        # positive\n        # twice\n        # minus\n"
        "        y = torch.where(y.sum() > 0, y * 2, -y)\n        print" in text
    )


def test_a_branch_is_replaced_with_the_return_that_follows_it() -> None:
    source = "import torch\n\ndef f(x):\n    if x > 0:\n        return x  # a\n    return -x  # b\n"
    new = "return torch.where(x > 0, x, -x)"
    text = edited(change(K.REWRITE, 4, "if x > 0: return x\nreturn -x", new), source=source)
    assert text == f"import torch\n\ndef f(x):\n    # a\n    # b\n    {new}\n"


def test_a_decorator_is_dropped() -> None:
    source = "@torch.compile( backend='eager' )\n@other\ndef f(x):   # f\n    return x\n"
    text = edited(change(K.DROP_DECORATOR, 3, "torch.compile(backend='eager')"), source=source)
    assert text == "@other\ndef f(x):   # f\n    return x\n"


@pytest.mark.parametrize("ending", ["\r\n", "\n"])
@pytest.mark.parametrize("indent", ["\t", "  "])
def test_line_endings_and_indentation_are_those_of_the_file(ending: str, indent: str) -> None:
    source = SOURCE.replace("    ", indent).replace("\n", ending)
    content = rewritten(source.encode(), [
        change(K.WRAP, 17, "print('y', y)", "if not torch.compiler.is_compiling()"),
        change(K.SET, 1, new="torch._dynamo.config.allow_rnn = True"),
    ])
    assert content.count(b"\n") == content.count(ending.encode())
    assert f"{indent * 3}print".encode() in content


def test_another_encoding_and_a_byte_order_mark_are_kept() -> None:
    latin = "# -*- coding: latin-1 -*-\nname = 'Müller'\nprint(name)\n".encode("latin-1")
    content = rewritten(latin, [change(K.REMOVE, 3, "print(name)")])
    assert content == "# -*- coding: latin-1 -*-\nname = 'Müller'\n".encode("latin-1")
    with_mark = b"\xef\xbb\xbfname = 1\nprint(name)\n"
    assert rewritten(with_mark, [change(K.REMOVE, 2, "print(name)")]) == b"\xef\xbb\xbfname = 1\n"


def test_torch_is_imported_where_the_file_does_not_import_it() -> None:
    source = "from torch import nn\n\nx = nn.Linear(1, 1)\n"
    text = edited(change(K.REPLACE, 3, "nn.Linear(1, 1)", "torch.compile(nn.Linear(1, 1))"), source=source)
    assert text == "from torch import nn\nimport torch\n\nx = torch.compile(nn.Linear(1, 1))\n"


def test_a_setting_needs_the_module_that_it_names() -> None:
    source = "import torch\n\nf()\n"
    new = "torch._dynamo.config.ignore_logging_functions.add(logging.Logger.info)"
    assert edited(change(K.SET, 3, new=new), source=source) == f"import torch\nimport logging\n\n{new}\n\nf()\n"


@pytest.mark.parametrize(("made", "message"), [
    (change(K.REPLACE, 21, "z.item()", "z"), "does not read as recorded"),
    (change(K.REMOVE, 17, "print('z')"), "does not read as recorded"),
    (change(K.ADD_PARAMETER, 10, new="z"), "does not begin a function"),
    (change(K.DROP_ARGUMENT, 26, "mode"), "its argument mode= is missing"),
    (change(K.REMOVE, 99, "print('z')"), "holds no statement"),
])
def test_an_edit_that_does_not_fit_is_refused(made: Change, message: str) -> None:
    with pytest.raises(UneditableError, match=message):
        edited(made)


def test_two_edits_of_one_statement_are_refused() -> None:
    print_at = change(K.REMOVE, 17, "print('y', y)")
    with pytest.raises(UneditableError, match="another edit"):
        edited(print_at, change(K.WRAP, 17, "print('y', y)", "if x"))


def test_a_setting_that_is_made_already_is_refused() -> None:
    setting = change(K.SET, 1, new="torch._dynamo.config.allow_rnn = True")
    with pytest.raises(UneditableError, match="made already"):
        edited(setting, source=edited(setting))


@pytest.mark.parametrize(("source", "message"), [
    (b"def f(:\n", "not valid Python any more"),
    (b"x = '\xff'\n", "encoding cannot be read"),
    (b"# -*- coding: nonsense -*-\nx = 1\n", "encoding cannot be read"),
])
def test_a_file_that_cannot_be_parsed_is_refused(source: bytes, message: str) -> None:
    with pytest.raises(UneditableError, match=message):
        rewritten(source, [change(K.REMOVE, 1, "x = 1")])


def test_statements_on_one_line_are_not_taken_apart() -> None:
    with pytest.raises(UneditableError, match="does not read as recorded"):
        edited(change(K.REMOVE, 1, "print(x)"), source="print(x); y = 1\n")


def test_an_argument_is_not_added_to_one_call_of_several() -> None:
    source = "import torch\n\ndef f(x):\n    return g(x)\n\nrun = torch.compile(f)\nrun(1)\n"
    changes = (change(K.ADD_PARAMETER, 3, new="y"), change(K.ADD_ARGUMENT, 7, "run(1)", "y=g(1)"))
    assert "run(1, y=g(1))" in edited(*changes, source=source)
    for other in ("run(2)", "run(1)"):
        with pytest.raises(UneditableError, match="line 8 calls run too"):
            edited(*changes, source=f"{source}{other}\n")


def test_the_name_of_an_attribute_or_keyword_is_not_replaced() -> None:
    source = "self.net = net\nf(net=net)\n"
    changes = (change(K.REPLACE, 1, "net", "g(net)"), change(K.REPLACE, 2, "net", "g(net)"))
    assert edited(*changes, source=source) == "self.net = g(net)\nf(net=g(net))\n"


def test_a_parameter_that_the_function_has_is_refused() -> None:
    with pytest.raises(UneditableError, match="duplicate argument"):
        edited(change(K.ADD_PARAMETER, 9, new="k"))


def test_a_comment_beside_a_dropped_argument_stays_in_its_column() -> None:
    source = "f = torch.compile(\n    g,\n    fullgraph=True,\n    dynamic=False,  # faster\n)\n"
    expected = source.replace("dynamic=False,  # faster", "# faster")
    assert edited(change(K.DROP_ARGUMENT, 4, "dynamic"), source=source) == expected


def test_new_code_has_the_quotes_of_the_file() -> None:
    for source, expected in (('x = "a"\nf(x)\n', 'f("b")'), ("x = 'a'\nf(x)\n", "f('b')")):
        assert expected in edited(change(K.REPLACE, 2, "f(x)", "f('b')"), source=source)


def test_one_line_for_another_keeps_the_comment_behind_it() -> None:
    text = edited(change(K.REWRITE, 17, "print('y', y)", "show(y)"))
    assert "        show(y)  # show\n" in text


def test_the_comment_of_a_dropped_decorator_stays_above_the_function() -> None:
    source = "x = 1\n\n\n@torch.compile  # fast\ndef f():\n    pass\n"
    text = edited(change(K.DROP_DECORATOR, 5, "torch.compile"), source=source)
    assert text == "x = 1\n\n\n# fast\ndef f():\n    pass\n"
