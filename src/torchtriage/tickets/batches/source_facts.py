"""What a review says about source beside its findings: purposes, torch APIs, allocations, names without tests."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewedFile:
    """One reviewed file.

    `purpose` is the first paragraph of its docstring, `torch_names` are the names of torch that it uses. `problem` says
    why the file could not be read, or not entirely.
    """

    path: str
    purpose: str = ""
    torch_names: tuple[str, ...] = ()
    num_lines: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchFeature:
    """A name of torch with the first release that has it; `since` is empty for a name that the table does not have."""

    name: str
    since: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAllocation:
    """A call that allocates with the parameters of a model.

    `num_copies` counts tensors of the size of all parameters together; `element_bytes` is None if each has the type of
    its parameter. `is_kept` is False for a temporary of one call.
    """

    path: str
    line: int
    function: str
    call: str
    content: str
    num_copies: int
    element_bytes: int | None = None
    is_kept: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UntestedName:
    """A public class or function that no test names; `has_state` if its state is saved and loaded."""

    name: str
    kind: str
    path: str
    line: int
    has_state: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """The facts about the reviewed source.

    `num_parameters` is the model size to estimate memory for. `tests_read` is False if the project has no tests, or is
    not entirely known, so that nothing can be said about names without tests. `torch_minimum` is the torch that the
    project requires. `num_reached` functions are reached by the `num_compile_calls` calls of torch.compile.
    `recordings` are the names of the runs that were reviewed with the source, `elsewhere` the tickets
    of other batches about findings in it.
    """

    files: tuple[ReviewedFile, ...] = ()
    features: tuple[TorchFeature, ...] = ()
    allocations: tuple[ModelAllocation, ...] = ()
    untested: tuple[UntestedName, ...] = ()
    num_parameters: int | None = None
    tests_read: bool = False
    torch_minimum: str = ""
    num_compile_calls: int = 0
    num_reached: int = 0
    domain: str = ""
    recordings: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
