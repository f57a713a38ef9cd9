"""The JSON of TORCHTRIAGE_OPERATIONS: what is read, and which problem is named."""

import json

import pytest

from torchtriage.capture.operations.request import OperationsRequest, parse_request


def test_a_request_is_read() -> None:
    text = json.dumps({"mode": "eager stream", "folder": "out", "step": 3, "save_state": "state"})
    assert parse_request(text) == OperationsRequest(mode="eager stream", folder="out", step=3, save_state="state")


@pytest.mark.parametrize(("text", "problem"), [
    ("{", "it is not JSON"), ("[]", "it must be a JSON object"), ('{"mode": "graphs"}', '"folder" is missing'),
    ('{"mode": "all", "folder": "out"}', '"mode" must be one of graphs, eager stream, traced stream'),
    ('{"mode": "graphs", "folder": "out", "step": 0}', '"step" must be an integer above 0'),
    ('{"mode": "graphs", "folder": "out", "step": true}', '"step" must be an integer above 0'),
    ('{"mode": "graphs", "folder": 1}', '"folder" must be a path'),
    ('{"mode": "graphs", "folder": "out", "stpe": 1}', '"stpe" is not a field of a request'),
])
def test_the_first_problem_is_named(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem.replace("(", r"\(")):
        parse_request(text)
