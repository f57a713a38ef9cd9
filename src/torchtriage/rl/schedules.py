"""How a setting moves over a training, and whether compiling what is left of it pays."""

from dataclasses import dataclass

# Evidence: torch 2.13.0, two cores. A cold compile of policy and update took 20 to 23 s (MLP, LSTM in C), with a warm cache 9 s; a
# minibatch step then took 0.80 to 0.93 ms where eager took 1.95 (MLP), and 2.3 where eager took 3.0 (LSTM).
COLD_COMPILE_SECONDS = 25.0
WARM_COMPILE_SECONDS = 9.0
COMPILED_SHARE = {False: 0.5, True: 0.77}       # of the eager time that is left once compiled, without and with an LSTM


def scheduled(start: float, schedule: str, progress: float) -> float:
    """A setting at a share of the training: linear to 0, or constant."""
    return start * (1.0 - min(1.0, progress)) if schedule == "linear" else start


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileChoice:
    """Whether to compile, and the reason in words."""

    compiles: bool
    reason: str


def compile_choice(setting: str, eager_seconds: float, num_left: int, *, lstm: bool, known_seconds: float | None) -> CompileChoice:
    """`eager_seconds`: of one update, measured; `num_left`: updates to go; `known_seconds`: of the last compile with this cache, if any."""
    if setting != "auto":
        return CompileChoice(compiles=setting == "yes", reason=f"--compile {setting}")
    cost = COLD_COMPILE_SECONDS if known_seconds is None else known_seconds
    kind = "a cold compile takes about" if known_seconds is None else "with the cache of an earlier run a compile takes about"
    left = eager_seconds * num_left
    saved = left * (1.0 - COMPILED_SHARE[lstm])
    compiles = saved > cost
    verdict = "which pays back" if compiles else "which does not pay back"
    return CompileChoice(compiles=compiles, reason=(
        f"{num_left} updates are left, {left:.0f} s eager at {1e3 * eager_seconds:.1f} ms each; compiled they would take about "
        f"{saved:.0f} s less, {kind} {cost:.0f} s, {verdict}"
    ))
