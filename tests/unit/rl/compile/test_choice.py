"""`--compile auto` decides by measured times and earlier compile times, and gives its reason."""

from pathlib import Path

import pytest

from torchtriage.rl.compile import compile_times
from torchtriage.rl.compile.choice import choice_by_flag, compile_choice


@pytest.mark.parametrize(
    ("kind", "seconds", "num_left", "is_cached", "compiles"),
    [
        (
            "mlp",
            0.045,
            389,
            False,
            False,
        ),  # 100,000 steps of CartPole, two cores: 18.7 s eager, 26.7 s with a cold compile
        ("mlp", 0.045, 389, True, True),  # 14.2 s with a warm cache
        ("mlp", 0.045, 3904, False, True),
        ("lstm", 0.092, 389, False, False),  # without velocities: 37.6 s eager, 45.2 s cold
        ("lstm", 0.092, 389, True, True),  # 27.2 s warm
        ("growth", 0.6, 148, False, True),
        ("mlp", 0.045, 0, True, False),
    ],
)
def test_auto_chooses_the_mode_that_was_measured_to_be_faster(
    kind: str,
    seconds: float,
    num_left: int,
    is_cached: bool,
    compiles: bool,
) -> None:
    assert compile_choice(kind, seconds, num_left, is_cached=is_cached).compiles is compiles


def test_a_measured_compile_time_overrides_the_estimate() -> None:
    assert not compile_choice("mlp", 0.045, 389, is_cached=True, warm_seconds=60.0).compiles
    assert compile_choice("mlp", 0.045, 389, is_cached=True, warm_seconds=0.5).compiles


def test_the_reason_marks_measured_and_estimated_numbers() -> None:
    cold = compile_choice("mlp", 0.1, 100, is_cached=False).reason
    assert (
        cold == "100 updates left: 10.0 s eager (100 ms each, measured) or about 4.70 s plus 15.0 s to compile "
        "(estimated from runs on two cores, cold cache)"
    )
    assert "warm cache" in compile_choice("mlp", 0.1, 100, is_cached=True).reason
    known = compile_choice("mlp", 0.1, 100, is_cached=True, warm_seconds=7.0).reason
    assert "plus 7.00 s to compile" in known
    assert "as in an earlier run with this cache" in known


def test_an_explicit_flag_decides_without_an_estimate() -> None:
    assert [(choice_by_flag(word).compiles, choice_by_flag(word).reason) for word in ("yes", "no")] == [
        (True, "--compile yes"),
        (False, "--compile no"),
    ]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.usefixtures("cache")
def test_a_cold_compile_only_shows_that_the_next_is_warm() -> None:
    key = compile_times.key_of("a shape")
    assert compile_times.load(key) is None
    compile_times.save(key, 20.0)
    assert compile_times.load(key) == compile_times.CompileTime(warm_seconds=None)
    assert compile_times.load(compile_times.key_of("another shape")) is None


@pytest.mark.usefixtures("cache")
def test_the_shortest_warm_compile_is_kept() -> None:
    for seconds in (20.0, 4.0, 60.0, 3.0):
        compile_times.save("key", seconds)
    assert compile_times.load("key") == compile_times.CompileTime(warm_seconds=3.0)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"warm_seconds": "x"}'])
def test_a_damaged_file_counts_as_missing(text: str, cache: Path) -> None:
    compile_times.save("key", 20.0)
    (path,) = (cache / "torchtriage").iterdir()
    path.write_text(text)
    assert compile_times.load("key") is None


def test_a_cache_that_cannot_be_written_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "file"))
    compile_times.save("key", 1.0)
    assert compile_times.load("key") is None
