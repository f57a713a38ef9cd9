"""What a run leaves in its copy of a folder: read as results, and removed before the next run."""

from pathlib import Path

from torchtriage.proof.runs.surroundings import paths_below, remove_new, written_text


def test_a_run_finds_no_file_or_folder_of_the_run_before(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.csv").write_text("1")
    known = paths_below(tmp_path)
    (tmp_path / "out" / "deep").mkdir(parents=True)
    (tmp_path / "out" / "deep" / "model.pt").write_bytes(b"w")
    (tmp_path / "data" / "y.csv").write_text("2")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_bytes(b"c")
    remove_new(tmp_path, known)
    left = {str(path.relative_to(tmp_path)) for path in paths_below(tmp_path)}
    assert left == {"data", "data/x.csv", "__pycache__", "__pycache__/a.pyc"}


def test_the_lines_of_text_files_that_a_run_wrote_are_results(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"lr": 0.1}')
    known, began = paths_below(tmp_path), (tmp_path / "config.json").stat().st_mtime + 1
    (tmp_path / "metrics.json").write_text('{"loss": 0.5}\n')
    (tmp_path / "model.bin").write_bytes(b"\x00")
    (tmp_path / "large.txt").write_text("1\n" * (1 << 20))
    assert written_text(tmp_path, known, began) == 'metrics.json: {"loss": 0.5}'
    assert written_text(tmp_path, known, began - 2) == 'config.json: {"lr": 0.1}\nmetrics.json: {"loss": 0.5}'
