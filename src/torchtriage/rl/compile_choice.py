"""Whether compiling what is left of a training pays, and the reason in words."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What compiling takes once, and the share of the eager time that is left then."""

    cold_seconds: float
    warm_seconds: float     # with what an earlier run left in inductor's cache
    share: float


# Evidence: benchmarks/ppo.py and benchmarks/growth.py, torch 2.13.0, two cores; warm: what a process with a warm cache took more than its
# steps. The share of growth is worked out: its steps are 86 % of the eager time and fall from 13.4 to 1.8 ms, the rest as in an MLP.
BILLS = {
    "mlp": Bill(cold_seconds=15.0, warm_seconds=3.0, share=0.47),
    "lstm": Bill(cold_seconds=22.0, warm_seconds=4.0, share=0.55),
    "growth": Bill(cold_seconds=49.0, warm_seconds=7.0, share=0.2),     # the environment is compiled as well
}
ESTIMATED = "estimated from runs on two cores"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileChoice:
    """Whether to compile, and the reason in words."""

    compiles: bool
    reason: str


def asked(setting: str) -> CompileChoice:
    """What `--compile yes` and `--compile no` come to."""
    return CompileChoice(compiles=setting == "yes", reason=f"--compile {setting}")


def compile_choice(kind: str, eager_seconds: float, num_left: int, *, is_cached: bool, warm_seconds: float | None = None) -> CompileChoice:
    """`kind`: of BILLS; `eager_seconds`: of one update, measured; `num_left`: updates to go; `is_cached`: an earlier run compiled the same;
    `warm_seconds`: what compiling takes with that cache, if that is known."""
    bill = BILLS[kind]
    eager, compiled = eager_seconds * num_left, eager_seconds * num_left * bill.share
    if warm_seconds is not None:
        cost, basis = warm_seconds, f"{ESTIMATED}; compiling as with this cache before"
    elif is_cached:
        cost, basis = bill.warm_seconds, f"both {ESTIMATED}; inductor's cache has it from an earlier run"
    else:
        cost, basis = bill.cold_seconds, f"both {ESTIMATED}; nothing like it was compiled with this cache before"
    compiles = compiled + cost < eager
    return CompileChoice(compiles=compiles, reason=(
        f"{num_left} updates are left, {eager:.0f} s at the {1e3 * eager_seconds:.1f} ms that the last one took; compiled they would take "
        f"about {compiled:.0f} s, after {cost:.0f} s of compiling ({basis})"
    ))
