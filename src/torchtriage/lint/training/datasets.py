"""TT729: random numbers that all workers of a DataLoader share."""

import ast
from collections.abc import Iterator

from torchtriage.findings.model import Finding
from torchtriage.lint.index.project_files import is_test
from torchtriage.lint.index.syntax import keyword, last_name, targets, text
from torchtriage.lint.project import SourceTree
from torchtriage.lint.rule import source_finding, tree_rule
from torchtriage.lint.source import SourceFile

_GENERATORS = ("numpy.random.default_rng", "numpy.random.RandomState", "random.Random", "numpy.random.Generator")


@tree_rule
def shared_worker_seed(tree: SourceTree) -> Iterator[Finding]:
    """Every worker of a DataLoader draws the same random numbers."""
    loaders = [
        (file, call) for file in tree.files for call in file.of_type(ast.Call)
        if file.dotted(call.func) == "torch.utils.data.DataLoader" and not is_test(file, tree)
    ]
    loaded = {name for _, call in loaders if _has_workers(call) for name in _dataset_names(call)}
    if loaded:
        yield from _generators_in_datasets(tree, loaded)
    for file, call in loaders:
        yield from _constant_seeds(file, call, tree)


def _has_workers(call: ast.Call) -> bool:
    workers = keyword(call, "num_workers")
    is_zero = workers is None or (isinstance(workers, ast.Constant) and workers.value == 0)
    return not is_zero and keyword(call, "worker_init_fn") is None


def _dataset_names(call: ast.Call) -> set[str]:
    """The names in the dataset argument; `data` stands for whatever was assigned to it."""
    argument = call.args[0] if call.args else keyword(call, "dataset")
    return {last_name(node) for node in ast.walk(argument)} - {""} if argument is not None else set()


def _generators_in_datasets(tree: SourceTree, loaded: set[str]) -> Iterator[Finding]:
    for file in tree.files:
        for class_ in file.of_type(ast.ClassDef):
            methods = {node.name: node for node in class_.body if isinstance(node, ast.FunctionDef)}
            if is_test(file, tree) or "__getitem__" not in methods or not _is_loaded(tree, class_.name, loaded):
                continue
            read = text(methods["__getitem__"])
            for node in ast.walk(methods.get("__init__", class_)):
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                    name = text(targets(node)[0])
                    if file.dotted(node.value.func) in _GENERATORS and name.startswith("self.") and name in read:
                        yield _generator_finding(file, tree, node, name, class_.name)


def _generator_finding(file: SourceFile, tree: SourceTree, node: ast.AST, name: str, dataset: str) -> Finding:
    return source_finding(
        "TT729", file, node, tree,
        title=f"all workers draw the same numbers from {name}",
        cause=f"{dataset} makes the generator before its DataLoader starts workers; each worker gets a copy in the "
              "same state, and torch seeds only the global generators of each worker",
        fix="make the generator in the worker: in worker_init_fn, or at the first __getitem__, from "
            "torch.initial_seed(), which differs by worker and epoch",
    )


def _is_loaded(tree: SourceTree, class_name: str, loaded: set[str]) -> bool:
    if class_name in loaded:
        return True
    for file in tree.files:
        for node in file.of_type(ast.Assign):
            if (
                isinstance(node.value, ast.Call)
                and last_name(node.value) == class_name
                and any(last_name(target) in loaded for target in targets(node))
            ):
                return True
    return False


def _constant_seeds(file: SourceFile, call: ast.Call, tree: SourceTree) -> Iterator[Finding]:
    """A worker_init_fn that gives each worker the same seed."""
    function = keyword(call, "worker_init_fn")
    definition = tree.resolve(function, file) if isinstance(function, ast.Name) else None
    node = function if isinstance(function, ast.Lambda) else (definition.node if definition else None)
    where = definition.file if definition else file
    if not isinstance(node, (ast.Lambda, ast.FunctionDef)):
        return
    for seed in ast.walk(node):
        if (
            isinstance(seed, ast.Call)
            and where.dotted(seed.func) in ("numpy.random.seed", "random.seed", "torch.manual_seed")
            and seed.args
            and isinstance(seed.args[0], ast.Constant)
        ):
            yield source_finding(
                "TT729", where, seed, tree,
                title=f"{text(seed)} gives every worker the same numbers",
                cause="the function runs in each worker of the DataLoader, with the same constant",
                fix="leave the seeding to torch, or seed with torch.initial_seed() % 2**32, which differs by "
                    "worker",
            )
            return
