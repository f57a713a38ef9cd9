"""Hand-made streams: which operation is named, and which differences are passed over."""

from torchtriage.findings.proof.location import DifferenceKind
from torchtriage.proof.locate import alignment
from torchtriage.proof.locate.alignment import align
from torchtriage.proof.locate.streams import Digest, StreamOperation


def value(number: float, shape: tuple[int, ...] = (4,), dtype: str = "float32") -> Digest:
    return Digest(shape, dtype, f"{number!r}", number, number / 2)


def op(name: str, inputs: list[float], outputs: list[float], line: int = 1, **more: object) -> StreamOperation:
    return StreamOperation(
        name=f"aten.{name}", path="train.py", line=line, inputs=tuple(map(value, inputs)),
        outputs=tuple(map(value, outputs)), **more)     # type: ignore[arg-type]


MUL, ADD, SUM = op("mul", [1, 2], [3], 1), op("add", [3, 1], [4], 2), op("sum", [4], [5], 3)


def test_equal_streams_agree_to_the_end() -> None:
    found = align([MUL, ADD, SUM], [MUL, ADD, SUM])
    assert (found.num_agreeing, found.difference, found.reason) == (3, None, "")


def test_the_first_operation_with_equal_inputs_and_another_output_is_named() -> None:
    found = align([MUL, ADD, SUM], [MUL, op("add", [3, 1], [9], 7), op("sum", [9], [10])])
    assert found.difference is not None
    assert found.difference.kind is DifferenceKind.VALUE
    assert (found.difference.first, found.difference.inputs_equal) == (ADD, True)
    assert found.difference.second is not None
    assert found.difference.second.line == 7
    assert found.num_agreeing == 1


def test_rounding_is_no_difference() -> None:
    found = align([MUL, ADD, SUM], [op("mul", [1, 2], [3.00001]), op("add", [3.00001, 1], [4.00001]), SUM])
    assert found.difference is None
    assert found.num_agreeing == 3


def test_a_discrete_value_has_no_rounding() -> None:
    def index(number: int) -> StreamOperation:
        output = value(100_000 + number, dtype="int64")
        return StreamOperation(name="aten.argmax", inputs=(value(3),), outputs=(output,))

    found = align([MUL, index(1)], [MUL, index(2)])
    assert found.difference is not None
    assert found.difference.first == index(1)


def test_an_inserted_operation_is_named_where_its_value_is_used() -> None:
    extra = op("neg", [3], [-3], 2)
    found = align([MUL, ADD, SUM], [MUL, extra, op("add", [-3, 1], [-2], 3), op("sum", [-2], [-1], 4)])
    assert found.difference is not None
    assert found.difference.kind is DifferenceKind.INSERTED
    assert found.difference.second == extra


def test_a_missing_operation_is_named_where_its_value_is_used() -> None:
    neg = op("neg", [3], [-3], 2)
    found = align([MUL, neg, op("add", [-3, 1], [-2], 3)], [MUL, op("add", [3, 1], [4], 2)])
    assert found.difference is not None
    assert found.difference.kind is DifferenceKind.MISSING
    assert found.difference.first == neg


def test_a_replaced_operation_is_named_with_its_counterpart() -> None:
    old, new = op("relu", [3], [3.5], 2), op("gelu", [3], [2.5], 2)
    found = align([MUL, old, op("sum", [3.5], [8], 3)], [MUL, new, op("sum", [2.5], [6], 3)])
    assert found.difference is not None
    assert found.difference.kind is DifferenceKind.REPLACED
    assert (found.difference.first, found.difference.second) == (old, new)


def test_a_moved_operation_is_passed_over() -> None:
    other, wrong = op("exp", [1], [7], 5), op("sum", [4], [6], 3)
    found = align([other, MUL, ADD, SUM], [MUL, ADD, other, wrong])
    assert found.difference is not None
    assert (found.difference.first, found.difference.second) == (SUM, wrong)


def test_an_extra_operation_whose_value_nobody_uses_is_no_difference() -> None:
    assert align([MUL, ADD, SUM], [MUL, op("neg", [3], [-3]), ADD, SUM]).difference is None


def test_a_lost_write_is_a_difference_although_nothing_reads_it() -> None:
    write = op("add_.Tensor", [1, 1], [2], 8)
    found = align([MUL, write, SUM], [MUL, SUM])
    assert found.difference is not None
    assert (found.difference.kind, found.difference.first) == (DifferenceKind.MISSING, write)


def test_an_input_that_no_recorded_operation_made_is_said() -> None:
    found = align([MUL, op("add", [8, 1], [9])], [MUL, op("add", [7, 1], [8])])
    assert found.difference is None
    assert found.reason == "the inputs of aten.add differ, and no recorded operation made them"


def test_only_a_window_behind_the_first_disagreement_is_aligned() -> None:
    many = [op("add", [number, 1], [number + 1]) for number in range(alignment.WINDOW)]
    first, second = [op("mul", [1, 2], [3]), *many, SUM], [*many, SUM]
    assert align(first, second).difference is None
