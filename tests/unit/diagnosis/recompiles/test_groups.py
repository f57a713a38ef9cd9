from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from torchtriage.diagnosis.compiles.frames import frame_key
from torchtriage.diagnosis.compiles.resume_frames import breaks_of_resume_frames
from torchtriage.diagnosis.recompiles.groups import RecompileGroup, recompile_groups
from torchtriage.recording.events import CompileCall, CompileStart, Event, GraphBreak, GuardValue, LimitHit, Recompile
from torchtriage.recording.recording import Process

PLACE: dict[str, Any] = {"path": "/p/net.py", "line": 5, "function": "forward"}


def recompile(compile_id: str | None, *reasons: str, **fields: Any) -> Recompile:
    return Recompile(**{**PLACE, "compile_id": compile_id, "reasons": reasons, **fields})


def size(entry: str, dim: int, old: int, new: int, name: str = "x") -> str:
    return f"{entry}: tensor '{name}' size mismatch at index {dim}. expected {old}, actual {new}"


def groups_of(*events: Event, **facts: Any) -> list[RecompileGroup]:
    return recompile_groups(Process(events=events, facts=facts))


def values(group: RecompileGroup) -> list[str]:
    return [value for _, value in group.values]


def test_recompiles_with_one_cause_are_one_group() -> None:
    [group] = groups_of(
        recompile("0/1", size("0/0", 0, 4, 5)),
        recompile("0/2", size("0/1", 0, 5, 6), size("0/0", 0, 4, 6)),
    )
    assert (len(group.recompiles), group.key, values(group)) == (2, ("size", "x"), ["4", "5", "6"])


def test_dimensions_of_one_tensor_are_one_group() -> None:
    [group] = groups_of(recompile("0/1", size("0/0", 0, 4, 5)), recompile("0/2", size("0/1", 1, 7, 8)))
    assert group.dims == (0, 1)
    assert group.values == ((0, "4"), (0, "5"), (1, "7"), (1, "8"))


def test_other_sources_and_kinds_are_other_groups() -> None:
    groups = groups_of(
        recompile("0/1", size("0/0", 0, 4, 5)),
        recompile("0/2", size("0/1", 0, 4, 5, "y")),
        recompile("0/3", "0/2: tensor 'x' rank mismatch. expected 1, actual 2"),
    )
    assert [group.key for group in groups] == [("size", "x"), ("size", "y"), ("rank", "x")]


def test_the_first_reason_decides_the_group() -> None:
    [group] = groups_of(recompile("0/2", "0/1: k == 3", "0/0: mode == 'a'"))
    assert group.key == ("equals", "k")


def test_older_entries_give_earlier_values() -> None:
    [group] = groups_of(recompile("0/3", "0/2: k == 7", "0/1: mode == 'a'", "0/0: k == 2"))
    assert values(group) == ["2", "7"]


def test_the_new_value_comes_from_the_guards_of_the_same_compile() -> None:
    [group] = groups_of(
        recompile("0/1", "0/0: self.n == 0"), GuardValue(compile_id="0/1", source="L['self'].n", value="1"),
        recompile("0/2", "0/1: self.n == 1", "0/0: self.n == 0"),
        GuardValue(compile_id="0/2", source="L['self'].n", value="2"),
    )
    assert values(group) == ["0", "1", "2"]


def test_guard_values_before_a_reset_do_not_belong_to_the_same_compile_id() -> None:
    other: dict[str, Any] = {"path": "/p/other.py"}
    first, second = groups_of(
        recompile("0/1", "0/0: k == 2"), GuardValue(compile_id="0/1", source="L['k']", value="3"),
        recompile("0/1", "0/0: k == 8", **other), GuardValue(compile_id="0/1", source="L['k']", value="9"),
    )
    assert (values(first), values(second)) == (["2", "3"], ["8", "9"])


def test_the_new_value_of_a_flag_is_the_opposite_of_the_old() -> None:
    [group] = groups_of(recompile("0/1", "0/0: self._modules['drop'].training == True"))
    assert values(group) == ["True", "False"]


def test_training_flags_of_all_children_are_one_group() -> None:
    [group] = groups_of(
        recompile("0/1", "0/0: self._modules['a'].training == True"),
        recompile("0/2", "0/1: self._modules['b'].training == False"),
    )
    assert len(group.recompiles) == 2


def test_sizes_zero_and_one_are_separate_if_the_other_sizes_settled() -> None:
    groups = groups_of(
        recompile("0/1", size("0/0", 0, 4, 5)), recompile("0/2", "0/1: 2 <= x.size()[0]", size("0/0", 0, 4, 1)),
    )
    assert [len(group.recompiles) for group in groups] == [1, 1]
    assert [group.reasons[0].is_zero_one for group in groups] == [False, True]


def test_sizes_zero_and_one_belong_to_a_size_that_keeps_changing() -> None:
    [group] = groups_of(*(recompile(f"0/{n}", size(f"0/{n - 1}", 0, n, n + 1)) for n in range(1, 6)))
    assert len(group.recompiles) == 5


def test_a_range_guard_is_zero_or_one_if_the_new_size_is_zero_or_one() -> None:
    [group] = groups_of(
        recompile("0/2", "0/1: 2 <= x.size()[0] <= 512"),
        GuardValue(compile_id="0/2", source="L['x'].size()[0]", value="1"),
    )
    assert group.reasons[0].is_zero_one


def test_a_value_that_returns_reveals_a_second_cause() -> None:
    [group] = groups_of(
        recompile("0/1", size("0/0", 0, 4, 5)),
        recompile("0/2", size("0/1", 0, 5, 4), "0/0: self.n == 0"),
    )
    assert [(reason.source, reason.old) for reason in group.hidden] == [("self.n", "0")]


def test_guards_of_variants_for_other_values_are_not_a_second_cause() -> None:
    [_, group] = groups_of(recompile("0/1", "0/0: k == 2"), recompile("0/2", size("0/1", 0, 5, 6), "0/0: k == 2"))
    assert group.hidden == ()


def test_a_log_without_place_and_ids_gives_a_group() -> None:
    reason = "tensor 'key' size mismatch at index 2. expected 100, actual 101"
    [group] = groups_of(Recompile(function="flex_attention", reasons=(reason,)))
    assert (values(group), group.in_one_step) == (["100", "101"], None)


def test_the_limit_belongs_to_the_group_that_its_reason_names() -> None:
    limit = LimitHit(**PLACE, compile_id="0/3", limit=2, reasons=(size("0/2", 0, 6, 7), size("0/1", 0, 5, 7)))
    dtype, sizes = groups_of(
        recompile("0/1", "0/0: tensor 'x' dtype mismatch. expected Float, actual Long"),
        recompile("0/2", size("0/1", 0, 5, 6)), limit,
    )
    assert (None, limit) == (dtype.limit, sizes.limit)
    assert values(sizes) == ["5", "6", "7"]


def test_a_limit_without_a_reason_belongs_to_the_largest_group() -> None:
    limit = LimitHit(**PLACE, compile_id="0/4")
    short, long = groups_of(
        recompile("0/1", "0/0: k == 1"), recompile("0/2", "0/1: n == 1"), recompile("0/3", "0/2: n == 2"), limit,
    )
    assert (None, limit) == (short.limit, long.limit)


def test_the_compile_call_is_matched_by_line_then_name_then_as_the_only_one() -> None:
    event = recompile("0/1", size("0/0", 0, 4, 5))
    exact = CompileCall(
        path="/p/train.py", line=31, target="Net.forward", target_path="/p/net.py", target_line=5, dynamic=False,
    )
    named = CompileCall(path="/p/train.py", line=32, target="Net.forward", target_path="/p/net.py", target_line=90)
    other = CompileCall(path="/p/train.py", line=33, target="g", target_path="/p/g.py", target_line=1)
    another = CompileCall(path="/p/train.py", line=34, target="h", target_path="/p/h.py", target_line=1)
    assert [exact] == [group.call for group in groups_of(named, exact, other, event)]
    assert [named] == [group.call for group in groups_of(named, other, event)]
    assert [other] == [group.call for group in groups_of(other, event)]
    assert [group.call for group in groups_of(other, another, event)] == [None]


def test_variants_compiled_before_the_second_step_are_of_one_step() -> None:
    start = CompileStart(**PLACE, compile_id="0/0")
    within = (start, recompile("0/1", "0/0: self.idx == 0"), recompile("0/2", "0/1: self.idx == 1"))
    later = (start, recompile("0/1", "0/0: self.idx == 0", step=7))
    assert [group.in_one_step for group in groups_of(*within, num_steps=50)] == [True]
    assert [group.in_one_step for group in groups_of(*later, num_steps=50)] == [False]
    assert [group.in_one_step for group in groups_of(*within)] == [None]


RESUME: dict[str, Any] = {"path": "/p/net.py", "line": 12, "function": "torch_dynamo_resume_in_forward_at_11"}


def test_a_resume_frame_of_a_break_gives_no_group() -> None:
    graph_break = GraphBreak(path="/p/net.py", line=11, function="forward", type="print")
    event = recompile("1/1", "1/0: ___stack0 == 0.0", **RESUME)
    assert groups_of(graph_break, event) == []
    assert len(groups_of(event)) == 1


REASONS = st.sampled_from([
    "0/0: k == 2", "0/1: k == 3", "0/0: tensor 'x' size mismatch at index 0. expected 4, actual 5", "0/0: len(xs) == 1",
    "0/1: 2 <= x.size()[0]", "0/0: tensor 'x' size mismatch at index 1. expected 1, actual 9", "0/0: nobody knows this",
    "0/0: ", "",
    "0/0: ___stack0 == 4.0", "0/0: GLOBAL_STATE changed: grad_mode ", "0/0: self.training == True", "0/0: m is None",
])
PLACES = st.sampled_from(
    [PLACE, RESUME, {}, {"path": "/p/net.py", "line": 20, "function": "torch_dynamo_resume_in_other_at_21"}]
)
RECOMPILES = st.builds(
    lambda place, compile_id, reasons, step: Recompile(
        **place, compile_id=compile_id, reasons=tuple(reasons), step=step,
    ),
    PLACES, st.one_of(st.none(), st.from_regex(r"[0-3]/[0-9]", fullmatch=True)), st.lists(REASONS, max_size=4),
    st.one_of(st.none(), st.integers(0, 99)),
)
OTHERS = st.one_of(
    st.just(GraphBreak(path="/p/net.py", line=11, function="forward", type="print")),
    st.builds(lambda place, reasons: LimitHit(**place, reasons=tuple(reasons)), PLACES, st.lists(REASONS, max_size=2)),
    st.builds(
        lambda cid, value: GuardValue(compile_id=cid, source="L['k']", value=value),
        st.from_regex(r"[0-3]/[0-9]", fullmatch=True), st.text(),
    ),
)


@given(st.lists(st.one_of(RECOMPILES, OTHERS), max_size=25))
def test_every_recompile_is_in_one_group_or_folded_into_a_break(events: list[Event]) -> None:
    process = Process(events=tuple(events), facts={"num_steps": 100})
    made_by = breaks_of_resume_frames(process)
    in_groups = Counter(id(event) for group in recompile_groups(process) for event in group.recompiles)
    for event in process.of(Recompile):
        assert in_groups[id(event)] in ((0, 1) if made_by.get(frame_key(event)) else (1,))


def test_two_dataclasses_at_the_same_line_of_string_are_two_groups() -> None:
    init = {"path": "<string>", "function": "__init__", "line": 2}
    groups = groups_of(
        recompile("4/1", size("4/0", 0, 2, 3, "h"), **init), recompile("7/1", size("7/0", 0, 2, 3, "h"), **init),
    )
    assert [values(group) for group in groups] == [["2", "3"], ["2", "3"]]


def test_a_bound_takes_the_new_size_from_an_older_entry() -> None:
    [group] = groups_of(recompile("0/2", "0/1: 2 <= x.size()[0]", size("0/0", 0, 4, 1)))
    assert values(group) == ["4", "1"]


# torch._dynamo.reset() restarts compile ids

def a_start(compile_id: str) -> CompileStart:
    return CompileStart(**PLACE, compile_id=compile_id)


def test_values_of_two_generations_are_listed_in_sequence() -> None:
    [group] = groups_of(
        a_start("0/0"), recompile("0/1", size("0/0", 0, 8, 4)), a_start("0/1"),
        a_start("0/0"), recompile("0/1", size("0/0", 0, 5, 9)), a_start("0/1"),
    )
    assert [compile_.generation for compile_ in group.compiles] == [0, 1]
    assert values(group) == ["8", "4", "5", "9"]


def test_a_variant_dropped_by_a_reset_has_no_second_cause() -> None:
    """Size 8 was compiled as 0/0 before the reset; after it, 0/0 is the variant for size 5."""
    [group] = groups_of(
        a_start("0/0"), recompile("0/1", size("0/0", 0, 8, 4)), a_start("0/1"),
        a_start("0/0"), recompile("0/1", size("0/0", 0, 5, 9)), a_start("0/1"),
        recompile("0/2", size("0/1", 0, 9, 8), "0/0: tensor 'x' dtype mismatch. expected Float, actual Half"),
        a_start("0/2"),
    )
    assert group.hidden == ()


def test_guard_values_belong_to_the_recompile_of_their_generation() -> None:
    [group] = groups_of(
        a_start("0/0"), recompile("0/1", "0/0: k == 1"), a_start("0/1"),
        GuardValue(compile_id="0/1", source="L['k']", value="2"),
        a_start("0/0"), recompile("0/1", "0/0: k == 7"), a_start("0/1"),
        GuardValue(compile_id="0/1", source="L['k']", value="8"),
    )
    assert values(group) == ["1", "2", "7", "8"]


def flip(entry: str) -> str:
    return f"{entry}: GLOBAL_STATE changed: grad_mode"


def test_a_flag_explains_one_recompile_and_a_counter_the_others() -> None:
    groups = groups_of(
        recompile("0/1", flip("0/0")),
        recompile("0/2", flip("0/1"), "0/0: self.steps == 0"),
        recompile("0/3", flip("0/2"), "0/1: self.steps == 1", flip("0/0")),
        recompile("0/4", flip("0/3"), "0/2: self.steps == 2", flip("0/1"), "0/0: self.steps == 0"),
    )
    assert [(group.source, len(group.recompiles)) for group in groups] == [("grad_mode", 1), ("self.steps", 3)]


def test_the_limit_belongs_to_the_cause_that_can_still_recompile() -> None:
    refused = LimitHit(**PLACE, compile_id="0/3", limit=2, reasons=(flip("0/2"), "0/1: self.steps == 1"))
    groups = groups_of(recompile("0/1", flip("0/0")), recompile("0/2", flip("0/1"), "0/0: self.steps == 0"), refused)
    assert [(group.source, group.limit is not None) for group in groups] == [("grad_mode", False), ("self.steps", True)]


def test_other_guarded_values_that_change_are_listed_with_the_cause() -> None:
    [group] = groups_of(
        recompile("0/1", size("0/0", 0, 2, 3)), GuardValue(compile_id="0/1", source="L['offset']", value="1.5"),
        recompile("0/2", size("0/1", 0, 3, 4)), GuardValue(compile_id="0/2", source="L['offset']", value="2.5"),
    )
    assert dict(group.also) == {"offset": ("1.5", "2.5")}


def test_a_value_that_is_a_symbol_in_the_graph_is_not_a_further_cause() -> None:
    events: list[Event] = []
    for number in (1, 2):
        events.append(recompile(f"0/{number}", size(f"0/{number - 1}", 0, number + 4, number + 5)))
        value = GuardValue(compile_id=f"0/{number}", source="L['n']", value=str(number), is_dynamic=True)
        events.append(value)
    [group] = groups_of(*events)
    assert not group.also
