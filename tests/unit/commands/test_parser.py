"""A mistyped word gets the nearest flag or command as a suggestion."""

import pytest

from torchtriage.commands.main import main


@pytest.mark.parametrize(("words", "meant"), [
    (["shapes", "--bugdet", "3m", "x.py"], "unrecognized arguments: --bugdet; did you mean --budget?"),
    (["shapes", "--bugdet=3m", "x.py"], "; did you mean --budget?"),
    (["train", "--evn", "CartPole-v1"], "; did you mean --env?"),
    (["ticket", "new", "--titel", "x"], "; did you mean --title?"),
    (["rnu", "x.py"], "; did you mean run?"),
])
def test_a_mistyped_word_gets_the_nearest_as_a_suggestion(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err.rstrip().endswith(meant)


@pytest.mark.parametrize("words", [["report", "x", "--entirely-else"], ["wxyz"]])
def test_a_word_unlike_any_other_gets_no_suggestion(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert "did you mean" not in capsys.readouterr().err
