"""The answers of the MCP tools are limited in size, and a report is cut off what a program prints."""

import json

from torchtriage.integrations.mcp.results import MAX_RESULT_BYTES, found, split_report


def report(*findings: dict[str, str]) -> dict[str, object]:
    return {"schema": 1, "findings": list(findings), "totals": {"compiles": 2}, "watched": ["trace"], "not_seen": []}


def test_findings_that_do_not_fit_are_counted() -> None:
    large = {"code": "TT101", "cause": "x" * (MAX_RESULT_BYTES // 2)}
    answer = found(report(large, large, large, large), 3)
    assert (answer["num_findings"], answer["num_left_out"], len(answer["findings"])) == (4, 3, 1)
    assert found(report({"code": "a"}, {"code": "b"}), 1)["num_left_out"] == 1
    assert found(report(), 20)["findings"] == []


def test_the_worst_finding_is_returned_however_long_it_is() -> None:
    assert len(found(report({"cause": "x" * (2 * MAX_RESULT_BYTES)}), 20)["findings"]) == 1


def test_the_report_is_what_comes_last() -> None:
    text = json.dumps(report({"code": "TT101"}), indent=1)
    assert split_report(f"step 1\n{text}\n") == ("step 1\n", json.loads(text))
    assert split_report(f"{text}\nstep 2\n{text}\n") == (f"{text}\nstep 2\n", json.loads(text))


def test_without_a_report_everything_is_of_the_program() -> None:
    for printed in ("", "step 1\n", '{\n "schema": 1,\n "cut', '{\n "schema": 1,\n "other": 2}\n'):
        assert split_report(printed) == (printed, None)
