"""Hand-made shape studies: a clear win, a refusal, failures, several functions, nothing that varies."""

from typing import Any

from torchtriage.findings.shape_study import (
    Advice,
    Basis,
    Branch,
    Crossover,
    Interval,
    Need,
    PolicyResult,
    Requirement,
    RoundTotal,
    ShapeStudy,
    VaryingSize,
)

SOURCES = "TORCH_COMPILE_DYNAMIC_SOURCES='^L\\[.cache.\\]$' python decode.py --tokens 512"


def near(middle: float, part: float = 0.03) -> Interval:
    return Interval(middle=middle, low=middle * (1 - part), high=middle * (1 + part))


def a_policy(name: str, total: float = 4.0, steady: float = 0.00025, **fields: Any) -> PolicyResult:
    return PolicyResult(**{
        "name": name, "num_runs": 4, "num_compiles": 2, "num_recompiles": 1, "compile_seconds": near(2.9, 0.1),
        "first_call_seconds": near(2.61), "steady_seconds": near(steady, 0.012), "peak_memory_bytes": 612 * 2**20,
        "total_seconds": near(total), "totals": [RoundTotal(round=n, seconds=total) for n in range(1, 5)], **fields,
    })


def a_size(**fields: Any) -> VaryingSize:
    return VaryingSize(**{
        "path": "/app/decode.py", "line": 12, "function": "decode", "source": "L['cache']", "dim": 2,
        "values": {str(n): 1 for n in range(100, 164)}, "num_values": 512, "num_calls": 512, "is_marked": True,
        **fields,
    })


def clear_win(**fields: Any) -> ShapeStudy:
    """One compiled function, a cache that grows; dynamic=False was written by hand and hits its limit."""
    forced = ("decode.py:31 decode: dynamic=False -> True",)
    return ShapeStudy(**{
        "command": ("python", "decode.py", "--tokens", "512"), "unit": "call", "num_units": 512, "num_planned": 100_000,
        "policies": (
            a_policy("as written", 103_676.0, 1.0367, num_compiles=8, num_recompiles=7, num_eager_calls=1504,
                     compile_seconds=near(21.4), still_compiling=True),
            a_policy("dynamic=None", 28.1, 0.000252, overridden=("decode.py:31 decode: dynamic=False -> None",)),
            a_policy("dynamic=True", 27.4, 0.000251, num_compiles=1, num_recompiles=0, overridden=forced),
            a_policy("marked", 29.0, 0.00026, num_compiles=1, num_recompiles=0, setting=(SOURCES,)),
            a_policy("recompile_limit=1024", num_compiles=512, num_runs=1, compile_seconds=Interval(middle=1380.0),
                     first_call_seconds=Interval(middle=2.7), steady_seconds=Interval(middle=0.000203),
                     total_seconds=Interval(middle=1400.0)),
        ),
        "advice": Advice(
            policy="dynamic=True", setting=("decode.py:31: torch.compile(decode, dynamic=True)",),
            text="dynamic=True takes 27.4 s for 100,000 calls, as written about 29 h; it wins up to 28,604,000 calls",
        ),
        "crossovers": (Crossover(units=28_604_167, before="dynamic=True", after="recompile_limit=1024"),),
        "branches": (
            Branch(
                question="Is the tensor shape fixed?", answer="no",
                evidence="L['cache'].size(2) took 512 values in 512 calls",
            ),
            Branch(
                question="Does the shape change frequently?", answer="yes",
                evidence="every call brings a size that none had before",
            ),
            Branch(
                question="What did the measurement say?", answer="dynamic=True",
                evidence="it is the quickest in all 4 rounds",
            ),
        ),
        "sizes": (
            a_size(),
            a_size(source="L['offset']", dim=None, is_marked=False, why_not="a Python number cannot be marked by name"),
        ),
        "by_function": {"decode": "dynamic=True"}, "notes": ("a run without torchtriage may be a little quicker",),
        "seconds_spent": 251.3, "torch": "2.13.0", **fields,
    })


def refusal() -> ShapeStudy:
    """Two policies whose intervals overlap; training steps, one round."""
    return ShapeStudy(
        command=("python", "train.py"), unit="step", num_units=40, num_planned=40,
        policies=(a_policy("as written", 12.0, 0.21, num_runs=3), a_policy("dynamic=True", 11.6, 0.2, num_runs=3)),
        advice=Advice(
            basis=Basis.MEASURED, compared_with="as written", rivals=("dynamic=True",), num_rounds=3,
            requirement=Requirement(kind=Need.ROUNDS, num_rounds=9, seconds=240.0, budget_seconds=840.0),
        ),
        seconds_spent=71.0, torch="2.13.0",
    )


def failures() -> ShapeStudy:
    """One policy under which the program fails, one without its figures, functions that need different policies."""
    return ShapeStudy(
        command=("python", "generate.py"), unit="call", num_units=64, num_planned=1000,
        policies=(
            a_policy("as written", 31.0, 0.02, notes=("ended with a warning on stderr",)),
            a_policy("dynamic=True", num_runs=1, failed=(
                "ConstraintViolationError: L['x'].size()[0] was marked dynamic, but your code specialized it "
                "to be a constant (32); the program ended with status 1 after 3 calls"
            )),
            PolicyResult(
                name="mixed", num_runs=2, num_compiles=3,
                setting=("generate.py:20: torch.compile(prefill, dynamic=False)",),
            ),
        ),
        advice=Advice(policy="mixed", text="prefill and decode want different policies", setting=(
            "generate.py:20: torch.compile(prefill, dynamic=False)",
            "generate.py:21: torch.compile(decode, dynamic=True)",
        )),
        by_function={"prefill": "dynamic=False", "decode": "dynamic=True"},
        sizes=tuple(a_size(source=f"L['x{n}']", dim=0) for n in range(9)), seconds_spent=700.0,
    )


def turning() -> ShapeStudy:
    """One policy starts sooner, the other is quicker in the long run."""
    return ShapeStudy(
        command=("python", "train.py"), unit="step", num_units=2_000, num_planned=100_000,
        policies=(
            a_policy("as written", 118.0, 0.00115),
            a_policy("dynamic=False", 70.0, 0.0003, num_compiles=19, still_compiling=False),
            a_policy("dynamic=True", 123.0, 0.0012, num_compiles=1),
        ),
        advice=Advice(
            policy="dynamic=False", setting=("train.py:9: torch.compile(step, dynamic=False)",), basis=Basis.MEASURED,
            total_seconds=70.0, compared_with="as written", gain=Interval(middle=1.69, low=1.6, high=1.78),
            num_rounds=4,
        ),
        crossovers=(Crossover(units=41_000, before="dynamic=True", after="dynamic=False"),),
        seconds_spent=180.0, torch="2.13.0",
        sizes=(a_size(
            values={"64": 1900, "32": 96, "17": 4}, num_values=3, num_calls=2000, source="L['x']", dim=0,
            is_marked=False,
        ),),
    )


def nothing_varies() -> ShapeStudy:
    return ShapeStudy(
        command=("python", "mlp.py"), unit="step", num_units=200, num_planned=200,
        policies=(
            a_policy("as written", 3.1, 0.0029, num_compiles=1), a_policy("dynamic=True", 4.6, 0.0051, num_compiles=1),
        ),
        advice=Advice(
            policy="as written", text="every size is the same in all 200 steps, and dynamic=True is 1.5x slower",
        ),
        branches=(Branch(question="Is the tensor shape fixed?", answer="yes", evidence="none of 12 sizes varied"),),
        seconds_spent=44.0, torch="2.13.0",
    )


def nothing_compiled() -> ShapeStudy:
    return ShapeStudy(
        command=("python", "eager.py"), unit="call", num_units=0, num_planned=0, policies=(),
        advice=Advice(text="the program never calls torch.compile, so there is no shape policy to choose",
                      needs="compile a function first, then measure again"), seconds_spent=2.0,
    )


ALL = {make.__name__: make for make in (clear_win, refusal, failures, turning, nothing_varies, nothing_compiled)}
