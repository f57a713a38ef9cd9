"""The policy step and the update are one graph each, without a recompile, and agree with eager."""

import copy
import signal
import subprocess
from collections.abc import Iterator

import pytest
import torch
import torch._dynamo

import torchtriage
from tests.unit.rl.minibatches import CONTINUOUS, DISCRETE, minibatch
from torchtriage.errors import TriageError
from torchtriage.rl.compile import compiled as compiling
from torchtriage.rl.compile.compiled import Compiled
from torchtriage.rl.policy.policy import CompiledAct, Policy
from torchtriage.rl.ppo.losses import LossSettings
from torchtriage.rl.ppo.rollout import Minibatch
from torchtriage.rl.ppo.update import Update, UpdateSettings

pytestmark = pytest.mark.thorough

N = 8
SETTINGS = UpdateSettings(loss=LossSettings(entropy_coef=0.01, clip_value=0.2), target_kl=0.5)
policies = pytest.mark.parametrize("make", [
    lambda: Policy(DISCRETE), lambda: Policy(DISCRETE, hidden=(16,), lstm_size=8),
    lambda: Policy(CONTINUOUS, hidden=(16,), lstm_size=8, critic_lstm=False),
], ids=["mlp", "lstm", "lstm-continuous-actor-only"])


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    compiling._shared_function.cache_clear()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
    compiling._shared_function.cache_clear()


def act_some(policy: Policy, act, steps: int) -> list[torch.Tensor]:
    """Steps in which episodes sometimes begin; also in another grad mode, as when a caller forgets no_grad."""
    generator = torch.Generator().manual_seed(1)
    state_NS = policy.initial_state(N)
    done = []
    for step in range(steps):
        observation_NO = torch.randn(N, 4, generator=generator)
        keep_N = (torch.rand(N, generator=generator) > 0.2).float()
        with torch.set_grad_enabled(step % 2 == 0):
            action, log_prob_N, value_N, state_NS = act(
                observation_NO, state_NS, keep_N, policy.noise(N, generator=generator)
            )
        done += [action, log_prob_N, value_N, state_NS]
    return done


def learn(update: Update, batches: list[Minibatch], epochs: int) -> dict[str, float]:
    """Epochs over minibatches of which the last is ragged, with a learning rate and a clipping range that change."""
    metrics = {}
    for epoch in range(epochs):
        generator = torch.Generator().manual_seed(epoch)
        update.begin(*torch.randn(4, 4, 2, generator=generator), torch.ones(4, 2, dtype=torch.bool))
        for number, batch in enumerate(batches):
            update.run(batch, 3e-3 / (1 + epoch + number), torch.tensor(0.2 - 0.01 * epoch))
        metrics = update.read()
        assert not update.is_stopped()
    return metrics


def ragged(policy: Policy) -> list[Minibatch]:
    steps = 4 if policy.num_states else 1
    sick = minibatch(policy, steps=steps, seed=1)
    sick.advantage_TB[0, 3] = torch.nan         # a skipped minibatch uses the same graph
    return [minibatch(policy, steps=steps), sick, minibatch(policy, steps=steps, live=11, seed=2)]


def compare(policy: Policy, backend: str, epochs: int, tolerance: float) -> None:
    eager = copy.deepcopy(policy)
    batches = ragged(policy)
    update, act = Update(policy, SETTINGS, compile=True, backend=backend), CompiledAct(policy, backend)
    with torchtriage.watch() as seen:
        found, acted = learn(update, batches, epochs), act_some(policy, act, 10)
    totals = seen.report.totals
    assert (totals["compiles"], totals["graph_breaks"], totals["recompiles"]) == (2, 0, 0)
    wanted = learn(Update(eager, SETTINGS), batches, epochs)
    torch.testing.assert_close(policy.flat_P, eager.flat_P, rtol=tolerance, atol=tolerance)
    for mine, theirs in zip(acted, act_some(eager, eager.act, 10), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance)
    assert found["ppo/minibatches_skipped"] == 1
    assert found == pytest.approx(wanted, rel=10 * tolerance, abs=10 * tolerance, nan_ok=True)
    assert update.compiled is not None
    assert update.compiled.first_seconds > 0


@policies
def test_policy_step_and_update_are_one_graph_each(make) -> None:
    compare(make(), "eager", epochs=8, tolerance=1e-4)


@pytest.mark.parametrize("lstm_size", [0, 8])
def test_inductor_updates_agree_with_eager(lstm_size: int) -> None:
    compare(Policy(DISCRETE, hidden=(16,), lstm_size=lstm_size), "inductor", epochs=3, tolerance=1e-4)


def test_only_equal_networks_share_a_graph() -> None:
    """Many trainings in one process: only tensors are checked, so a graph must not be used for another policy."""
    with torchtriage.watch() as seen:
        for activation in (
            *["tanh"] * 9,
            "relu",
            "tanh",
        ):  # the same tensors, another computation; 8 recompiles are Dynamo's limit
            policy = Policy(DISCRETE, activation=activation)
            eager = copy.deepcopy(policy)
            batch = minibatch(policy)
            for update in (Update(policy, SETTINGS, compile=True, backend="eager"), Update(eager, SETTINGS)):
                learn(update, [batch], epochs=1)
            torch.testing.assert_close(policy.flat_P, eager.flat_P, rtol=1e-4, atol=1e-5)
    totals = seen.report.totals
    assert (totals["compiles"], totals["recompiles"]) == (2, 0)


def test_a_different_number_of_environments_compiles_once_more() -> None:
    policy = Policy(DISCRETE)
    act = CompiledAct(policy, "eager")
    with torchtriage.watch() as seen:
        for rows in (8, 16, 8, 16):
            said = act(torch.ones(rows, 4), policy.initial_state(rows), torch.ones(rows), policy.noise(rows))
            assert said.action.shape == (rows,)
    assert len(seen.recompiles) == 1


def break_of(flag: int):
    def function(x: torch.Tensor) -> torch.Tensor:
        if BREAKS:
            torch._dynamo.graph_break()
        return x + flag
    return function


BREAKS: list[int] = []


def test_a_graph_break_is_an_error_with_advice_and_is_retried() -> None:
    compiled = Compiled(break_of, 3, name="the function", backend="eager")
    BREAKS.append(1)
    try:
        for _ in range(2):
            with pytest.raises(TriageError, match=r"the function does not compile as one graph: .*--no-compile"):
                compiled(torch.ones(2))
        assert compiled.first_seconds is None
    finally:
        BREAKS.clear()
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 4.0))
    assert compiled.first_seconds > 0


def test_shapes_that_keep_changing_are_an_error_with_advice() -> None:
    compiled = Compiled(break_of, 1, name="the function", backend="eager")
    with torch._dynamo.config.patch(recompile_limit=3):
        for size in range(2, 5):
            compiled(torch.ones(size))
        with pytest.raises(TriageError, match="tensors of one shape"):
            compiled(torch.ones(5))


@pytest.mark.parametrize(
    ("deaths", "status", "comes_through"), [(1, -signal.SIGINT, True), (2, -signal.SIGINT, False), (1, 1, False)]
)
def test_a_compile_interrupted_by_ctrl_c_is_retried_once(deaths: int, status: int, comes_through: bool) -> None:
    left = [subprocess.CalledProcessError(status, "g++") for _ in range(deaths)]

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor], **options: object) -> object:
        if left:
            raise RuntimeError("C++ compile error") from left.pop()
        return graph.forward

    compiled = Compiled(break_of, 5, name="the function", backend=backend)
    if comes_through:
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 6.0))
    else:
        with pytest.raises(TriageError, match="the function does not compile as one graph"):
            compiled(torch.ones(2))


def test_a_missing_compiler_is_named() -> None:
    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor], **options: object) -> object:
        raise RuntimeError(
            "InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx: (None, 'g++')"
        )

    compiled = Compiled(break_of, 9, name="the function", backend=backend)
    with pytest.raises(TriageError, match="install a C\\+\\+ compiler"):
        compiled(torch.ones(2))


def test_only_the_first_of_equal_functions_measures_the_compile_time() -> None:
    first, second, other = (Compiled(break_of, flag, name="the function", backend="eager") for flag in (7, 7, 8))
    for compiled in (first, second, other):
        compiled(torch.ones(2))
    assert (first.is_first, second.is_first, other.is_first) == (True, False, True)


def test_with_the_compiler_turned_off_a_function_runs_eager() -> None:
    def make():
        return lambda x: x + 1

    with torch._dynamo.config.patch(disable=True):      # as TORCH_COMPILE_DISABLE=1 does
        assert Compiled(make, name="a step", backend="eager")(torch.ones(2)).tolist() == [2.0, 2.0]
