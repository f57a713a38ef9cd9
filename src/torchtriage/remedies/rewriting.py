"""Makes the changes of edits in a file with libcst, which preserves its formatting."""

import io
import re
import textwrap
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torchtriage.findings.model import Change, ChangeKind
from torchtriage.remedies.tree import Tree, UneditableError, own_parts, plain, walk

if TYPE_CHECKING:
    import libcst as cst

_BLOCKS = frozenset({ChangeKind.REWRITE, ChangeKind.REMOVE, ChangeKind.WRAP})


def rewritten(content: bytes, changes: Sequence[Change]) -> bytes:
    """The content of a file after these changes; raises UneditableError if one of them does not fit."""
    tree = Tree(content)
    changes = [replace(change, new=_with_quotes_of(content, change.new)) for change in changes]
    plan = _Plan(tree)
    for change in changes:
        if change.kind is not ChangeKind.SET:
            plan.add(change)
    _check_calls(tree, changes)
    module = plan.apply()
    settings = list(dict.fromkeys(change.new for change in changes if change.kind is ChangeKind.SET))
    uses_torch = bool(settings) or any("torch." in change.new for change in changes)
    module = _with_settings(module, settings, uses_torch)
    result = module.bytes
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(result, "<edited>", "exec", dont_inherit=True)      # it also finds a name that is given twice
    except (SyntaxError, ValueError) as error:
        raise UneditableError(f"the edited file would not be valid Python: {error}") from error
    if result == content:
        raise UneditableError("the edit changes nothing: it was made already")
    return result


def _with_quotes_of(content: bytes, text: str) -> str:
    """New code with double quotes if the file has more of them: ast.unparse writes single ones."""
    if content.count(b'"') <= content.count(b"'"):
        return text
    try:
        tokens = [(t.type, t.string) for t in tokenize.generate_tokens(io.StringIO(text).readline)]
    except (tokenize.TokenError, SyntaxError):
        return text
    for kind, string in dict.fromkeys(tokens):
        if kind == tokenize.STRING and re.fullmatch(r"'[^'\"\\]*'", string):
            text = text.replace(string, f'"{string[1:-1]}"')
    return text


class _Plan:
    """What becomes of each node of a tree; every node is changed at most once."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.nodes: dict[Any, Any] = {}         # node -> function of the updated node
        self.before: dict[Any, list[str]] = {}  # statement -> code to insert before it
        self.above: dict[Any, list[Any]] = {}   # statement -> comments to put above it
        self.after: dict[Any, list[str]] = {}   # and after it
        self.taken: list[tuple[int, int]] = []  # lines of the statements that are replaced as a whole
        self.touched: list[int] = []            # lines of the other changes

    def add(self, change: Change) -> None:
        statement = self.tree.statement_at(change.line)
        if statement is None:
            raise UneditableError(f"line {change.line} holds no statement")
        first, last = self.tree.lines(statement)
        if change.kind in _BLOCKS:
            if any(a <= last and first <= b for a, b in self.taken) or any(first <= n <= last for n in self.touched):
                raise UneditableError(f"another edit changes line {change.line} too")
            self._block(change, statement)
            return
        if any(first <= b and a <= first for a, b in self.taken):
            raise UneditableError(f"another edit changes line {change.line} too")
        self.touched.append(first)
        self._inner(change, statement)

    def _block(self, change: Change, statement: Any) -> None:
        import libcst as cst

        nodes, texts = [statement], [plain(self.tree.text(statement))]
        while len(texts) < change.old.count("\n") + 1:
            following = self.tree.following(nodes[-1])
            if following is None:
                break
            nodes.append(following)
            texts.append(plain(self.tree.text(following)))
        if "\n".join(texts) != change.old:
            raise UneditableError(f"line {change.line} does not read as recorded: {texts[0][:80]!r}")
        if isinstance(statement, cst.If) and isinstance(self.tree.parent(statement), cst.If):
            raise UneditableError(f"line {change.line} is an elif")
        self.taken.append((self.tree.lines(nodes[0])[0], self.tree.lines(nodes[-1])[1]))
        if change.kind is ChangeKind.WRAP:
            self.nodes[statement] = lambda updated: _wrapped(updated, change.new)
            return
        comments = [part for node in nodes for part in _inner_comments(node)]
        if change.kind is ChangeKind.REMOVE and (following := self.tree.following(nodes[-1])) is not None:
            below = list(getattr(following, "leading_lines", ()))
            has_blank = bool(below) and below[0].comment is None
            lines = [line for line in statement.leading_lines if line.comment is not None or not has_blank]
            self.above[following] = [*lines, *(cst.EmptyLine(comment=comment) for comment in comments)]
            self.nodes[statement] = lambda _: cst.RemoveFromParent()
            return
        new = change.new if change.kind is ChangeKind.REWRITE else ""
        config = self.tree.module.config_for_parsing
        self.nodes[statement] = lambda updated: _replaced(updated, new, comments, config)
        for node in nodes[1:]:
            self.nodes[node] = lambda _: cst.RemoveFromParent()

    def _inner(self, change: Change, statement: Any) -> None:
        if change.kind is ChangeKind.INSERT:
            self.before.setdefault(statement, []).append(change.new)
        elif change.kind is ChangeKind.APPEND:
            self.after.setdefault(statement, []).append(change.new)
        elif change.kind is ChangeKind.UNWRAP:
            self._unwrap(statement, change)
        elif change.kind is ChangeKind.ADD_PARAMETER:
            self.nodes[self._function(statement, change).params] = lambda updated: _with_parameter(updated, change.new)
        elif change.kind is ChangeKind.DROP_DECORATOR:
            self._drop_decorator(statement, change)
        else:
            self._expression(change, statement)

    def _unwrap(self, statement: Any, change: Change) -> None:
        import libcst as cst

        block = statement.with_changes(body=cst.IndentedBlock(body=[_nothing([])])) if isinstance(
            statement, cst.With) else statement
        if not isinstance(statement.body, cst.IndentedBlock) or (
            plain(self.tree.module.code_for_node(block)) != plain(f"{change.old}:\n    pass")
        ):
            raise UneditableError(f"line {change.line} does not read as recorded: it is not `{change.old}:`")
        self.nodes[statement] = _unwrapped

    def _function(self, statement: Any, change: Change) -> Any:
        import libcst as cst

        if not isinstance(statement, cst.FunctionDef):
            raise UneditableError(f"line {change.line} does not begin a function")
        return statement

    def _drop_decorator(self, statement: Any, change: Change) -> None:
        import libcst as cst

        for decorator in self._function(statement, change).decorators:
            if plain(self.tree.text(decorator.decorator)) == change.old:
                self.nodes[decorator] = lambda _: cst.RemoveFromParent()
                self._keep_comments(statement, _inner_comments(decorator))
                return
        raise UneditableError(f"the function at line {change.line} has no decorator {change.old}")

    def _keep_comments(self, statement: Any, comments: Sequence[Any]) -> None:
        import libcst as cst

        lines = [cst.EmptyLine(comment=comment) for comment in comments]
        if lines:
            self.nodes[statement] = lambda updated: updated.with_changes(leading_lines=[*updated.leading_lines, *lines])

    def _expression(self, change: Change, statement: Any) -> None:
        """Replace an expression, or change the arguments of a call."""
        import libcst as cst

        found = False
        parts = own_parts(statement) if not change.within else self._parts_of_call(statement, change.within)
        for node in parts:
            if not isinstance(node, cst.BaseExpression) or node in self.nodes or self._is_label(node):
                continue
            if change.kind is ChangeKind.DROP_ARGUMENT:
                if isinstance(node, cst.Call) and _keyword(node, change.old) is not None:
                    self.nodes[node] = lambda updated: _without_keyword(updated, change.old)
                    found = True
            elif plain(self.tree.text(node)) == change.old:
                if change.kind is ChangeKind.ADD_ARGUMENT:
                    self.nodes[node] = lambda updated: _with_argument(updated, change.new)
                else:
                    parent = self.tree.parent(node)
                    self.nodes[node] = lambda updated, parent=parent: _expression(updated, change.new, parent)
                found = True
        if not found:
            what = f"its argument {change.old}=" if change.kind is ChangeKind.DROP_ARGUMENT else f"`{change.old}`"
            raise UneditableError(f"line {change.line} does not read as recorded: {what} is missing")

    def _is_label(self, node: Any) -> bool:
        """Whether a name is that of an attribute or of a keyword argument, and no expression."""
        import libcst as cst

        parent = self.tree.parent(node)
        return (isinstance(parent, cst.Attribute) and node is parent.attr) or (
            isinstance(parent, cst.Arg) and node is parent.keyword)

    def _parts_of_call(self, statement: Any, call: str) -> Iterator[Any]:
        """The function and the arguments of each call that reads like this."""
        import libcst as cst

        for node in own_parts(statement):
            if isinstance(node, cst.Call) and plain(self.tree.text(node)) == call:
                yield from (node.func, *(argument.value for argument in node.args))

    def apply(self) -> "cst.Module":
        import libcst as cst

        plan = self

        class Transformer(cst.CSTTransformer):
            def on_leave(self, original_node: Any, updated_node: Any) -> Any:
                updated = super().on_leave(original_node, updated_node)
                if original_node in plan.nodes:
                    updated = plan.nodes[original_node](updated_node)
                if original_node in plan.above:
                    first, *rest = _several(updated)
                    lines = [*plan.above[original_node], *first.leading_lines]
                    updated = cst.FlattenSentinel([first.with_changes(leading_lines=lines), *rest])
                if original_node in plan.before:
                    updated = _preceded(updated, plan.before[original_node], plan.tree.module.config_for_parsing)
                for text in plan.after.get(original_node, ()):
                    config = plan.tree.module.config_for_parsing
                    updated = cst.FlattenSentinel([*_several(updated), *_statements(text, config)])
                return updated

        return self.tree.module.visit(Transformer())


def _check_calls(tree: Tree, changes: Sequence[Change]) -> None:
    """Raise if a function gets an argument at one of its calls, and another call of the file would lack it."""
    import libcst as cst

    added = [change for change in changes if change.kind is ChangeKind.ADD_ARGUMENT]
    names = {change.old.partition("(")[0] for change in added}
    changed = [tree.lines(statement) for change in added if (statement := tree.statement_at(change.line)) is not None]
    for node in walk(tree.module) if any(change.kind is ChangeKind.ADD_PARAMETER for change in changes) else ():
        if isinstance(node, cst.Call) and plain(tree.text(node.func)) in names:
            line = tree.lines(node)[0]
            if not any(first <= line <= last for first, last in changed):
                raise UneditableError(f"line {line} calls {plain(tree.text(node.func))} too, without the new argument")


def _several(updated: Any) -> list[Any]:
    import libcst as cst

    return list(updated) if isinstance(updated, cst.FlattenSentinel) else [updated]


def _statements(text: str, config: Any) -> list[Any]:
    import libcst as cst

    return list(cst.parse_module(textwrap.dedent(text).strip() + "\n", config=config).body)


def _expression(updated: Any, text: str, parent: Any) -> Any:
    """The new expression with the parentheses of the old one, and with its own where it needs them."""
    import libcst as cst

    new: Any = cst.parse_expression(text)
    if updated.lpar and not new.lpar:
        return new.with_changes(lpar=updated.lpar, rpar=updated.rpar)
    binds_loosely = isinstance(
        new, (cst.BinaryOperation, cst.BooleanOperation, cst.Comparison, cst.UnaryOperation, cst.IfExp, cst.Lambda)
    )
    is_operand = isinstance(parent, cst.BaseExpression) and not isinstance(parent, (cst.Tuple, cst.List))
    if binds_loosely and is_operand and not new.lpar:
        return new.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return new


def _inner_comments(statement: Any) -> list[Any]:
    """The comments within a statement, but not those above it."""
    import libcst as cst

    leading = {id(node) for line in getattr(statement, "leading_lines", ()) for node in walk(line)}
    return [node for node in walk(statement) if isinstance(node, cst.Comment) and id(node) not in leading]


def _replaced(updated: Any, text: str, comments: Sequence[Any], config: Any) -> Any:
    """The statements that replace one, below its comments: those above it, then those within it."""
    import libcst as cst

    new = _statements(text, config)
    behind = getattr(updated, "trailing_whitespace", None)
    if len(new) == 1 and behind is not None and hasattr(new[0], "trailing_whitespace"):    # one line for another
        new[0] = new[0].with_changes(trailing_whitespace=behind)
        comments = [comment for comment in comments if comment is not behind.comment]
    kept = [*updated.leading_lines, *(cst.EmptyLine(comment=comment) for comment in comments)]
    if not new:     # what is left of a removed statement is the lines above it
        has_comment = any(line.comment is not None for line in kept)
        return cst.FlattenSentinel([_nothing(kept)]) if has_comment else cst.RemoveFromParent()
    new[0] = new[0].with_changes(leading_lines=kept)
    return cst.FlattenSentinel(new)


def _nothing(lines: Sequence[Any]) -> Any:
    import libcst as cst

    return cst.SimpleStatementLine(body=[cst.Pass()], leading_lines=lines)


def _wrapped(updated: Any, header: str) -> Any:
    import libcst as cst

    inner = updated.with_changes(leading_lines=[])
    block: Any = cst.parse_statement(f"{header}:\n    pass\n")
    return block.with_changes(body=cst.IndentedBlock(body=[inner]), leading_lines=updated.leading_lines)


def _unwrapped(updated: Any) -> Any:
    """The statements of a block, below the comments of its head."""
    import libcst as cst

    body = list(updated.body.body)
    lines = [*updated.leading_lines, *_comment_lines(updated.body.header), *body[0].leading_lines]
    return cst.FlattenSentinel([body[0].with_changes(leading_lines=lines), *body[1:]])


def _comment_lines(header: Any) -> list[Any]:
    import libcst as cst

    return [cst.EmptyLine(comment=header.comment)] if header.comment is not None else []


def _preceded(updated: Any, texts: Sequence[str], config: Any) -> Any:
    """The statement with others before it; blank lines stay above all of them, comments with their statement."""
    import libcst as cst

    updated, *rest = _several(updated)
    own = list(updated.leading_lines)
    blank = []
    while own and own[0].comment is None:
        blank.append(own.pop(0))
    new = [statement for text in texts for statement in _statements(text, config)]
    new[0] = new[0].with_changes(leading_lines=blank)
    return cst.FlattenSentinel([*new, updated.with_changes(leading_lines=own), *rest])


# --- arguments of calls, parameters of functions


def _keyword(call: Any, name: str) -> Any:
    return next((argument for argument in call.args if argument.keyword and argument.keyword.value == name), None)


def _without_keyword(call: Any, name: str) -> Any:
    import libcst as cst

    dropped = _keyword(call, name)
    args = [argument for argument in call.args if argument is not dropped]
    if args and dropped is call.args[-1]:       # the comma before it goes, a comma behind it stays
        args[-1] = _as_last(args[-1], dropped)
    if not args:
        return call.with_changes(args=[], whitespace_before_args=cst.SimpleWhitespace(""))
    return call.with_changes(args=args)


def _as_last(argument: Any, dropped: Any) -> Any:
    """The argument in the place of the dropped one that followed it, with the comments of both."""
    import libcst as cst

    changed = argument.with_changes(comma=dropped.comma, whitespace_after_arg=dropped.whitespace_after_arg)
    between = argument.comma.whitespace_after if isinstance(argument.comma, cst.Comma) else None
    has_comma = isinstance(dropped.comma, cst.Comma)
    behind = dropped.comma.whitespace_after if has_comma else dropped.whitespace_after_arg
    if not isinstance(between, cst.ParenthesizedWhitespace) or not isinstance(behind, cst.ParenthesizedWhitespace):
        return changed
    own = [cst.EmptyLine(indent=between.indent, whitespace=between.last_line, comment=behind.first_line.comment)]
    own = own if behind.first_line.comment else []
    merged = behind.with_changes(first_line=between.first_line, empty_lines=[*own, *behind.empty_lines])
    if has_comma:
        return changed.with_changes(comma=dropped.comma.with_changes(whitespace_after=merged))
    return changed.with_changes(whitespace_after_arg=merged)


def _with_argument(call: Any, text: str) -> Any:
    """The call with one more argument behind the others, before any **kwargs."""
    import libcst as cst

    new = cst.parse_expression(f"f({text})").args[0]  # type: ignore[attr-defined]  # it is a call
    args = list(call.args)
    if not args:
        return call.with_changes(args=[new])
    last = args[-1]
    has_comma = isinstance(last.comma, cst.Comma)
    args[-1] = last if has_comma else last.with_changes(
        comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")), whitespace_after_arg=cst.SimpleWhitespace(""))
    if has_comma:
        new = new.with_changes(comma=last.comma)
        args[-1] = last.with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))
    else:
        new = new.with_changes(whitespace_after_arg=last.whitespace_after_arg)
    if last.star == "**":
        return call.with_changes(args=[*args[:-1], new.with_changes(comma=args[-1].comma), last])
    return call.with_changes(args=[*args, new])


def _with_parameter(parameters: Any, name: str) -> Any:
    """The parameters with one more; it has a default if the one before it has."""
    import libcst as cst

    if parameters.star_kwarg is not None or parameters.kwonly_params or isinstance(parameters.star_arg, cst.Param):
        raise UneditableError("the function takes *args, **kwargs or keyword-only arguments")
    own = list(parameters.params)
    needs_default = bool(own) and own[-1].default is not None
    new = cst.Param(name=cst.Name(name))
    if needs_default:
        bare = cst.SimpleWhitespace("")
        new = new.with_changes(
            default=cst.Name("None"), equal=cst.AssignEqual(whitespace_before=bare, whitespace_after=bare))
    if own:
        comma = own[-1].comma
        is_set = isinstance(comma, cst.Comma)
        separator = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        new = new.with_changes(whitespace_after_param=own[-1].whitespace_after_param)
        own[-1] = own[-1].with_changes(comma=separator, whitespace_after_param=cst.SimpleWhitespace(""))
        new = new.with_changes(comma=comma) if is_set else new
    return parameters.with_changes(params=[*own, new])


# --- settings


def _with_settings(module: "cst.Module", settings: Sequence[str], uses_torch: bool) -> "cst.Module":
    """The module with these lines after its imports, and with `import torch` if they need it."""
    import libcst as cst

    body = list(module.body)
    at = _after_imports(body)
    lines = []
    if uses_torch and not any(_imports(statement, "torch") for statement in body[:at]):
        if any(_imports(statement, "torch") for statement in body[at:]):
            at = 1 + next(number for number, statement in enumerate(body) if _imports(statement, "torch"))
        else:
            lines.append("import torch")
    for name in ("logging", "warnings"):
        used = any(re.search(rf"\b{name}\.", setting) for setting in settings)
        if used and not any(_imports(statement, name) for statement in body[:at]):
            lines.append(f"import {name}")
    present = {plain(module.code_for_node(statement)) for statement in body}
    lines += [setting for setting in settings if plain(setting) not in present]
    if not lines:
        return module
    new = [statement for line in lines for statement in cst.parse_module(line + "\n").body]
    first = next((number for number, line in enumerate(lines) if not line.startswith("import ")), None)
    if first is not None and at:
        new[first] = new[first].with_changes(leading_lines=[cst.EmptyLine(indent=False)])
    return module.with_changes(body=[*body[:at], *new, *body[at:]])


def _after_imports(body: Sequence[Any]) -> int:
    """The position behind the docstring and the imports at the head of a file."""
    import libcst as cst

    at = 0
    for number, statement in enumerate(body):
        parts = statement.body if isinstance(statement, cst.SimpleStatementLine) else []
        if parts and all(isinstance(part, (cst.Import, cst.ImportFrom)) for part in parts):
            at = number + 1
        elif number == 0 and parts and isinstance(parts[0], cst.Expr):
            at = 1
        else:
            break
    return at


def _imports(statement: Any, name: str) -> bool:
    """Whether a statement of a module is an import that binds this name."""
    import libcst as cst

    for part in getattr(statement, "body", ()) if isinstance(statement, cst.SimpleStatementLine) else ():
        for alias in part.names if isinstance(part, cst.Import) else ():
            if alias.asname is None and alias.evaluated_name.partition(".")[0] == name:
                return True
    return False
