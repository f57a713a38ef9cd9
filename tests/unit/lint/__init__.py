from pathlib import Path


def review_source_folder() -> Path:
    """The rebuilt source of the reviewed system, with its flaws."""
    return Path(__file__).parent / "review_source"
