"""Whether compiling pays off for the rest of a training."""

from dataclasses import dataclass

from torchtriage.text import counted, duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """The one-time cost of compiling, and the compiled time as a share of the eager time."""

    cold_seconds: float
    warm_seconds: float  # with a warm inductor cache
    share: float


# Evidence: benchmarks/ppo.py and benchmarks/growth.py, torch 2.13.0, two cores. Warm seconds are the extra time of a
# process with a warm cache beyond its steps. The share of growth is computed: its steps are 86 % of the eager time and
# fall from 13.4 to 1.8 ms; the rest behaves like an MLP.
BILLS = {
    "mlp": Bill(cold_seconds=15.0, warm_seconds=3.0, share=0.47),
    "lstm": Bill(cold_seconds=22.0, warm_seconds=4.0, share=0.55),
    "growth": Bill(cold_seconds=49.0, warm_seconds=7.0, share=0.2),  # the environment is compiled as well
}
ESTIMATED = "estimated from runs on two cores"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileChoice:
    """Whether to compile, with the reason as text."""

    compiles: bool
    reason: str


def choice_by_flag(setting: str) -> CompileChoice:
    """The choice of `--compile yes` or `--compile no`."""
    return CompileChoice(compiles=setting == "yes", reason=f"--compile {setting}")


def compile_choice(
    kind: str, eager_seconds: float, num_left: int, *, is_cached: bool, warm_seconds: float | None = None
) -> CompileChoice:
    """Compile if that saves time over the remaining updates.

    `kind` is a key of BILLS, `eager_seconds` the measured time of one update, `num_left` the number of updates left;
    `is_cached`: an earlier run compiled the same; `warm_seconds`: the known compile time with that cache.
    """
    bill = BILLS[kind]
    eager, compiled = eager_seconds * num_left, eager_seconds * num_left * bill.share
    if warm_seconds is not None:
        cost, basis = warm_seconds, f"{ESTIMATED}; compile time as in an earlier run with this cache"
    elif is_cached:
        cost, basis = bill.warm_seconds, f"{ESTIMATED}, warm cache"
    else:
        cost, basis = bill.cold_seconds, f"{ESTIMATED}, cold cache"
    compiles = compiled + cost < eager
    return CompileChoice(
        compiles=compiles,
        reason=(
            f"{counted(num_left, 'update')} left: {duration(eager)} eager ({duration(eager_seconds)} each, measured) "
            f"or about {duration(compiled)} plus {duration(cost)} to compile ({basis})"
        ),
    )
