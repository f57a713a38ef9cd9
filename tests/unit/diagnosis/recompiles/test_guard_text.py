"""The reasons are as torch 2.13 and 2.9 print them, taken from real runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchtriage.diagnosis.recompiles.guard_text import Kind, Reason, parse_reason, readable, type_name

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}(\.[a-z]{1,5})?(\['[a-z]{1,5}'\])?", fullmatch=True)
ENTRIES = st.from_regex(r"[0-9]{1,2}/[0-9]{1,2}", fullmatch=True)
SIZES = st.integers(0, 10**9)
INT_HINT = (
    "(HINT: torch.compile considers integer attributes of the nn.Module to be static. If you are observing "
    "recompilation, you might want to make this integer dynamic using "
    "torch._dynamo.config.allow_unspec_int_on_nn_module = True, or convert this integer into a tensor.)"
)


def keys(*names: str) -> str:
    return f"DispatchKeySet({', '.join(names)})"


@pytest.mark.parametrize(("raw", "kind", "source", "old", "new"), [
    ("0/0: tensor 'x' size mismatch at index 0. expected 4, actual 5", Kind.SIZE, "x", "4", "5"),
    ("tensor 'key' size mismatch at index 2. expected 100, actual 101", Kind.SIZE, "key", "100", "101"),
    ("0/1: tensor 'x' rank mismatch. expected 1, actual 0. Guard failed on a parameter, consider using"
     " torch._dynamo.config.force_parameter_static_shapes = False to allow dynamism on parameters.",
     Kind.RANK, "x", "1", "0"),
    ("0/1: tensor 'kwargs['input_ids']' size mismatch at index 1. expected 16, actual 24",
     Kind.SIZE, "input_ids", "16", "24"),
    ("0/0: tensor 'x' stride mismatch at index 0. expected 4, actual 1", Kind.STRIDE, "x", "4", "1"),
    ("3/3: tensor 'tensor' rank mismatch. expected 1, actual 2", Kind.RANK, "tensor", "1", "2"),
    ("12/0: tensor 'a.buckets' dtype mismatch. expected Float, actual Long",
     Kind.DTYPE, "a.buckets", "torch.float32", "torch.int64"),
    ("0/0: tensor 'x' dtype mismatch. expected Float8_e5m2, actual Float",
     Kind.DTYPE, "x", "Float8_e5m2", "torch.float32"),
    ("14/0: tensor 'self._buffers['zero']' requires_grad mismatch. expected requires_grad=0",
     Kind.REQUIRES_GRAD, "self.zero", "False", "True"),
    ("0/0: tensor 'x' Tensor device index mismatch. Expected device index to be 0, actual 1",
     Kind.DEVICE, "x", "device 0", "device 1"),
    (f"0/0: tensor 'x' dispatch key set mismatch. "
     f"expected {keys('CPU', 'BackendSelect', 'ADInplaceOrView', 'AutogradCPU')}, "
     f"actual {keys('Meta', 'BackendSelect', 'ADInplaceOrView', 'AutogradMeta')}", Kind.DEVICE, "x", "cpu", "meta"),
    (f"0/1: tensor 'x' dispatch key set mismatch. "
     f"expected {keys('CPU', 'BackendSelect', 'ADInplaceOrView', 'AutogradCPU')}, "
     f"actual {keys('CPU', 'BackendSelect')}", Kind.GLOBAL_STATE, "inference_mode", None, None),
    (f"0/1: tensor 'x' dispatch key set mismatch. expected {keys('CPU', 'AutocastCPU')}, actual {keys('CPU')}",
     Kind.GLOBAL_STATE, "autocast", None, None),
    ("0/0: expected type of 'm' to be a tensor type, ' but found <class 'NoneType'>",
     Kind.NONE, "m", "a tensor", "None"),
    ("6/0: expected type of 'args[0]' to be a tensor type, ' but found <class 'gpytorch.lazy.Lazy'>",
     Kind.TYPE, "args[0]", "Tensor", "Lazy"),
    ("2/0: GLOBAL_STATE changed: grad_mode ", Kind.GLOBAL_STATE, "grad_mode", None, None),
    ("0/2: GLOBAL_STATE changed: autocast(cpu)_dtype autocast_cache_enabled ",
     Kind.GLOBAL_STATE, "autocast", None, None),
    ("0/3: GLOBAL_STATE changed: deterministic_algorithms num_threads ",
     Kind.GLOBAL_STATE, "deterministic_algorithms, num_threads", None, None),
    ("0/0: ___check_torch_function_mode_stack()", Kind.GLOBAL_STATE, "torch_function_mode", None, None),
    ("0/0: utils_device.CURRENT_DEVICE == None        # _dynamo/output_graph.py:676 in init",
     Kind.GLOBAL_STATE, "default_device", "None", None),
    ("0/0: k == 2                                                   # def f(x,k): return x*k  # mp/p.py:22 in f",
     Kind.EQUALS, "k", "2", None),
    ("2/0: self.param_groups[0]['lr'] == 0.1  # for group in self.param_groups:  # optim/sgd.py:118 in step",
     Kind.EQUALS, "self.param_groups[0]['lr']", "0.1", None),
    ("3/2: pattern == 'n -> 1 n'", Kind.EQUALS, "pattern", "'n -> 1 n'", None),
    ("3/2: pattern == 'a  # b'  # f(pattern)  # p.py:1 in f", Kind.EQUALS, "pattern", "'a  # b'", None),
    ("0/0: (type(k) is float and __math_isnan(k))   # return x*k  # p.py:3 in f", Kind.EQUALS, "k", "nan", None),
    ("0/0: __math_isnan(k)", Kind.EQUALS, "k", "nan", None),
    ("0/0: int(c) == 3", Kind.EQUALS, "c", "3", None),
    ("0/0: ___normalize_range_iter(i) == (2, 5, 1)", Kind.EQUALS, "i", "(2, 5, 1)", None),
    ("0/0: G['G1'] == 3", Kind.EQUALS, "G1", "3", None),
    ("1/3: dev == device(type='cpu')", Kind.EQUALS, "dev", "device(type='cpu')", None),
    ("0/0: len(xs) == 1  # def f(xs): return sum(xs)  # p.py:46 in f", Kind.LENGTH, "xs", "1", None),
    ("0/0: len(model._modules) != 1", Kind.LENGTH, "model._modules", "1", None),
    ("0/0: not args", Kind.LENGTH, "args", "0", None),
    ("0/0: ___tuple_iterator_len(i) == 2", Kind.LENGTH, "i", "2", None),
    ("0/0: IndexError on xs[2]", Kind.LENGTH, "xs[2]", None, None),
    ("0/0: list(dict.keys(d))[0] == (0, 0)  # for k,v in d.items():  # p.py:12 in f", Kind.KEYS, "d", "(0, 0)", None),
    ("0/0: not ___dict_contains('b', d)", Kind.KEYS, "d", "without 'b'", "with 'b'"),
    ("0/0: set.__contains__(s, 'a')", Kind.KEYS, "s", "with 'a'", "without 'a'"),
    ("0/0: KeyError on d['a']", Kind.KEYS, "d['a']", None, None),
    ("4/0: x2 is None", Kind.NONE, "x2", "None", "not None"),
    ("4/0: x2 is not None", Kind.NONE, "x2", "not None", "None"),
    ("0/0: not hasattr(o, 'k')", Kind.ATTRIBUTE, "o.k", None, None),
    ("1/0: getattr failed on source o", Kind.ATTRIBUTE, "o", None, None),
    ("2/1: ___check_type_id(inputs[0], 94388011423104), type=<class 'a.b.Normal'>",
     Kind.TYPE, "inputs[0]", "Normal", None),
    ("2/1: ___check_type_id(m, 94388011423104)  # m(x)  # p.py:3 in f (HINT: type Linear)", Kind.TYPE, "m", None, None),
    ("0/2: TYPE_MISMATCH(d)", Kind.TYPE, "d", None, None),
    ("0/0: ___check_obj_id(fn.__code__, 139793586335984), type=<class 'code'>", Kind.IDENTITY, "fn", None, None),
    ("0/0: __check_obj_id(list(dict.keys(d))[0], 139793586335984)", Kind.IDENTITY, "list(d)[0]", None, None),
    ("0/1: CodeGuardAccessor: Not a function on fn.__code__", Kind.IDENTITY, "fn", None, None),
    ("0/0: Cache line invalidated because L['m'] got deallocated", Kind.IDENTITY, "m", None, "deallocated"),
    ("0/0: x is y", Kind.IDENTITY, "x", "the same object as y", "another object"),
    ('0/0: Duplicate tensors found: ["x", "y"]',
     Kind.IDENTITY, "x", "a separate tensor", "the same tensor as another argument"),
    ("0/0: BACKEND_MATCH failure: torch.compile detected different backend callables. "
     "Cached backend: a. New backend: b.",
     Kind.IDENTITY, "the backend", None, None),
    ("0/2: 2 <= x.size()[0]  # x*2  # p.py:6 in f (user code shown is first use of this value--the guard itself is not "
     "due user code but due to 0/1 specialization in the framework)", Kind.ZERO_ONE, "x", None, None),
    ("0/2: 2 <= k", Kind.ZERO_ONE, "k", None, None),
    ("0/2: x.size()[0] == 1", Kind.ZERO_ONE, "x", "1", None),
    ("0/0: (x.size()[0] % 8) == 0  # if x.size(0)%8==0:  # p.py:28 in f", Kind.SYMBOLIC, "x", None, None),
    ("0/1: 2 <= x.size()[0] <= 512  # if ...  # p.py:28 in f", Kind.SYMBOLIC, "x", None, None),
    ("0/0: y.size()[0] == x.size()[0]  # duck sizing added this equality", Kind.SYMBOLIC, "y", None, None),
    ("1/1: math.trunc(___stack1) >= 0 and math.trunc(___stack1) <= 3", Kind.SYMBOLIC, "___stack1", None, None),
    ("0/0: s0 <= 512", Kind.SYMBOLIC, "s0", None, None),
    ("0/0: _has_dynamo_dim_marking is present on runtime tensor but was absent at compile time",
     Kind.MARKING, "", None, None),
    ("0/0: hasattr(x, '_dynamo_dynamic_indices') == False", Kind.MARKING, "x", None, None),
    ("0/0: ", Kind.EMPTY, "", None, None),
    ("", Kind.EMPTY, "", None, None),
    ("0/0: Unexpected recompilation: runtime guards failed even though they passed", Kind.UNPARSED, "", None, None),
])
def test_a_reason_gives_kind_source_and_values_of_its_guard(
    raw: str, kind: Kind, source: str, old: str | None, new: str | None,
) -> None:
    reason = parse_reason(raw)
    assert (kind, source, old, new) == (reason.kind, reason.source, reason.old, reason.new)
    assert raw == reason.raw


def test_entry_line_hint_and_stack_are_separated() -> None:
    reason = parse_reason(
        f"0/3: self.n == 3      # self.n += 1  # mp/probe/p1.py:43 in forward {INT_HINT}\n"
        'User stack trace:\n  File "/home/u/net.py", line 9, in outer\n    self.block(x)\n'
        '  File "/home/u/net.py", line 43, in forward\n    self.n += 1'
    )
    assert (reason.entry, reason.guard, reason.code, reason.place) == (
        "0/3", "self.n == 3", "self.n += 1", "/home/u/net.py:43",
    )
    assert "allow_unspec_int_on_nn_module" in reason.hint


def test_the_comment_gives_the_line_if_there_is_no_stack() -> None:
    reason = parse_reason("0/3: k == 3      # y = x * k  # mp/probe/p1.py:43 in forward")
    assert (reason.code, reason.place) == ("y = x * k", "mp/probe/p1.py:43")


def test_a_log_line_keeps_its_dash_and_has_no_entry() -> None:
    reason = parse_reason("- tensor 'key' size mismatch at index 2. expected 100, actual 101")
    assert (reason.entry, reason.kind, reason.dim) == (None, Kind.SIZE, 2)


def test_a_closure_variable_is_shown_by_its_name() -> None:
    reason = parse_reason(
        '0/0: fn.__closure__[0].cell_contents == 2  # y*k  # p.py:94 in <lambda> (HINT: guard on "k")'
    )
    assert reason.source == "k"


def test_a_tuple_element_used_for_a_lookup_is_a_dict_key() -> None:
    reason = parse_reason("0/0: pair[1] == 0  # return accums[pair] + x  # p.py:6 in f")
    assert (reason.kind, reason.source, reason.dim, reason.old) == (Kind.KEYS, "pair", 1, "0")
    assert parse_reason("0/0: pair[1] == 0  # return x * pair[1]  # p.py:6 in f").kind is Kind.EQUALS


def test_compiled_autograd_entries_are_read() -> None:
    assert parse_reason("!1/0/2: k == 3").entry == "!1/0/2"


@pytest.mark.parametrize(("path", "name"), [
    ("L['self']._modules['layers']._modules['0'].idx", "self.layers[0].idx"),
    ("self._modules['a']._parameters['weight']", "self.a.weight"),
    ("L['kwargs']['input_ids']", "input_ids"),
    ("L['self'].kwargs['n']", "self.kwargs['n']"),
    ("G['CFG'].lr", "CFG.lr"),
    ("G['__import_my_dot_mod'].LIMIT", "my.mod.LIMIT"),
    ("dict.__getitem__(___stack0, list(dict.keys(___stack0))[0])", "list(___stack0.values())[0]"),
    ("___from_numpy(L['k'])", "k"),
    ("___as_tensor(L['lr']).item()", "lr"),
    ("self.__dict__['n']", "self.n"),
    ("L['fn'].__self__.num_updates", "self.num_updates"),
    ("G['__main__'].Layer.num_built", "Layer.num_built"),
    ("unpack_one.__closure__[1].cell_contents[0][1]", "unpack_one[0][1]"),
])
def test_sources_read_as_the_user_writes_them(path: str, name: str) -> None:
    assert name == readable(path)


@pytest.mark.parametrize(("text", "name"), [
    ("2", "int"), ("-2", "int"), ("0.5", "float"), ("nan", "float"), ("-inf", "float"), ("True", "bool"),
    ("'a'", "str"), ("(0, 1)", "other"), ("torch.float32", "other"), ("", "other"),
])
def test_types_of_constants(text: str, name: str) -> None:
    assert name == type_name(text)


@given(st.text())
def test_no_text_makes_the_parser_raise_or_lose_it(text: str) -> None:
    assert text == parse_reason(text).raw


@given(st.lists(st.sampled_from([
    "0/1: ", "tensor '", "x", "' size mismatch", " at index ", "0", ". expected ", "4", ", actual ", "len(", ")",
    " == ", " != ", "not ", "  # ",
    "'", '"', "[", "]", "G['", "___dict_contains(", " is ", "None", "DispatchKeySet(", "CPU", "\nUser stack trace:\n",
    "(HINT: ", "2 <= ",
    ".size()[", "GLOBAL_STATE changed:", "___check_obj_id(", ", 123456)", "list(dict.keys(", "dict.__getitem__(",
    "___as_tensor(", "\\",
])))
def test_no_mixture_of_known_pieces_makes_the_parser_raise(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert text == parse_reason(text).raw


@given(ENTRIES, NAMES, st.sampled_from(["size", "stride"]), st.integers(0, 7), SIZES, SIZES)
def test_size_and_stride_reasons_round_trip(entry: str, name: str, what: str, dim: int, old: int, new: int) -> None:
    reason = parse_reason(f"{entry}: tensor '{name}' {what} mismatch at index {dim}. expected {old}, actual {new}")
    assert (entry, what, name, dim, str(old), str(new)) == (
        reason.entry, reason.kind, reason.path, reason.dim, reason.old, reason.new)


@given(
    ENTRIES, NAMES, st.one_of(st.integers(), st.floats(allow_nan=False), st.text(max_size=20), st.booleans()),
    st.booleans(),
)
def test_constants_round_trip(entry: str, name: str, value: object, commented: bool) -> None:
    comment = f"  # use({name})  # p.py:3 in f" if commented else ""
    reason = parse_reason(f"{entry}: {name} == {value!r}{comment}")
    assert (entry, Kind.EQUALS, name, repr(value)) == (reason.entry, reason.kind, reason.path, reason.old)


@given(ENTRIES, NAMES, st.integers(1, 10**6), st.sampled_from(["==", "!="]))
def test_lengths_round_trip(entry: str, name: str, length: int, sign: str) -> None:
    reason = parse_reason(f"{entry}: len({name}) {sign} {length}")
    assert (entry, Kind.LENGTH, name, str(length)) == (reason.entry, reason.kind, reason.path, reason.old)


def test_a_size_of_one_counts_as_zero_or_one() -> None:
    assert parse_reason("0/0: tensor 'x' size mismatch at index 0. expected 1, actual 5").is_zero_one
    assert not parse_reason("0/0: tensor 'x' stride mismatch at index 0. expected 1, actual 5").is_zero_one
    assert not Reason(kind=Kind.SIZE, raw="", old="4", new="5").is_zero_one


def test_a_condition_on_a_remainder_is_not_a_zero_one_specialisation() -> None:
    assert parse_reason("0/0: (x.size()[0] % 8) != 0").kind is Kind.SYMBOLIC
    assert parse_reason("0/0: x.size()[0] != 1").kind is Kind.ZERO_ONE


def test_a_guard_that_failed_on_a_parameter_is_marked_as_such() -> None:
    reason = "0/1: tensor 'x' size mismatch at index 0. expected 1, actual 2"
    assert parse_reason(f"{reason}. Guard failed on a parameter, consider using x = False to allow it.").is_parameter
    assert not parse_reason(reason).is_parameter


def test_a_guard_set_by_torch_itself_has_no_line_of_the_user() -> None:
    guard = "0/0: x.size()[0] > 4096  # "
    ours = parse_reason(f"{guard}(_inductor/codegen/cpp.py:2273 in need_use_acc_helper)")
    assert (ours.code, ours.place, ours.by_torch) == ("", "", "_inductor/codegen/cpp.py:2273")
    users = parse_reason(f"{guard}if n > 4096:  # p.py:28 in f (_dynamo/variables/tensor.py:9 in evaluate_expr)")
    assert (users.code, users.place, users.by_torch) == ("if n > 4096:", "p.py:28", "")
