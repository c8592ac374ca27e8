"""Steps of a chain: what they refer to, where a chain stops, and what its results are."""

from __future__ import annotations

from typing import Any

from helpers.repetition import Failures

from tavern_host.contracts.toolcalls import ToolCallRequest, ToolErrorType, ToolResult
from tavern_tools.calls.chains import carry_out
from tavern_tools.calls.references import Names
from tavern_tools.calls.results import failed
from tavern_tools.catalog.failures import ToolFailure


def step(index: int, *, block: int = 0, **more: Any) -> ToolCallRequest:
    return ToolCallRequest(tool_id=f"t{index}", index=index, block=block, protocol="tam", **more)


def result_of(request: ToolCallRequest, structured: Any) -> ToolResult:
    return ToolResult(
        tool_id=request.tool_id,
        index=request.index,
        block=request.block,
        request_id=request.request_id,
        status="done",
        structured=structured,
    )


class Calls:
    """Makes calls: what tools give by id, an exception type for one that fails; keeps what it was asked for."""

    def __init__(self, **given: Any) -> None:
        self.given = given
        self.asked: list[ToolCallRequest] = []

    async def __call__(self, request: ToolCallRequest) -> ToolResult:
        self.asked.append(request)
        given = self.given.get(request.tool_id, {"ok": True})
        if given is ToolFailure:
            return failed(request, ToolFailure(ToolErrorType.EXECUTION, "broken"))
        return result_of(request, given)

    @property
    def arguments(self) -> list[dict[str, Any]]:
        return [request.arguments for request in self.asked]


async def test_a_step_gets_the_results_of_earlier_ones_by_path() -> None:
    calls = Calls(t1={"items": [{"name": "ä"}], "n": 3})
    arguments = {
        "whole": "@{step1.result}",
        "name": "@{step1.result.items[0].name}",
        "text": "n=@{ step_1.result.n }!",
        "deep": ["@{STEP1.result.items.0}"],
        "status": "@{step1.status}",
    }
    await carry_out([step(1), step(3, arguments=arguments)], calls)
    assert calls.arguments[1] == {
        "whole": {"items": [{"name": "ä"}], "n": 3},
        "name": "ä",
        "text": "n=3!",
        "deep": [{"name": "ä"}],
        "status": "done",
    }


async def test_variables_the_time_and_the_request_are_known_by_name() -> None:
    calls = Calls()
    request = step(
        1,
        arguments={
            "path": "@{common_output_dir}/a",
            "same": "@{CommonOutputDir}",
            "t": "@{timestamp}",
            "r": "@{request_id}",
        },
        variables={"common_output_dir": "fam://x"},
        request_id="req-1",
    )
    await carry_out([request], calls)
    (arguments,) = calls.arguments
    assert (arguments["path"], arguments["same"], arguments["r"]) == ("fam://x/a", "fam://x", "req-1")
    assert arguments["t"].endswith("+00:00")


async def test_an_unknown_name_is_left_as_it_is_with_a_warning() -> None:
    calls = Calls()
    (result,) = await carry_out([step(1, arguments={"text": "@{timestmp} and @{nobody}"})], calls)
    assert calls.arguments == [{"text": "@{timestmp} and @{nobody}"}]
    assert result.warnings == [
        "nothing is called @{timestmp}, in text (did you mean timestamp?); left as it is",
        "nothing is called @{nobody}, in text; left as it is",
    ]


async def test_what_is_put_in_is_not_looked_through_again() -> None:
    calls = Calls(t1="@{timestamp} @{step1.result}")
    await carry_out([step(1), step(2, arguments={"text": "<@{step1.result}>"})], calls)
    assert calls.arguments[1] == {"text": "<@{timestamp} @{step1.result}>"}


async def test_two_at_signs_write_a_reference_as_text() -> None:
    calls = Calls()
    texts = {"a": "@@{step1.result}", "b": "x @@{timestamp} @{x} @@{x}", "c": "@@@{x}", "d": "@@{no\nname}"}
    await carry_out([step(1, arguments=texts, variables={"x": "X"})], calls)
    assert calls.arguments == [
        {"a": "@{step1.result}", "b": "x @{timestamp} X @{x}", "c": "@@{x}", "d": "@@{no\nname}"}
    ]


async def test_a_step_that_refers_to_what_is_not_there_fails() -> None:
    rows: Any = [
        ("step2.result", "but no step 2 comes before this one"),
        ("step1.result.itms", "but there is no 'itms' (did you mean items?)"),
        ("step1.result.items[9]", "but there is no 9"),
        ("step1.results", "a step has result, status and error, not results"),
        ("step1.result..x", "which is no path"),
    ]
    with Failures() as failures:
        for reference, said in rows:
            with failures.row(reference):
                calls = Calls(t1={"items": [1]})
                _, second = await carry_out([step(1), step(2, arguments={"a": f"@{{{reference}}}"})], calls)
                assert second.error.type is ToolErrorType.PARAMETER_VALIDATION
                assert said in second.error.message
                assert len(calls.asked) == 1


async def test_a_chain_stops_at_a_failed_step_and_the_next_chain_begins() -> None:
    calls = Calls(t2=ToolFailure)
    results = await carry_out([step(1), step(2), step(3), step(4, block=1)], calls)
    assert [(r.tool_id, r.status) for r in results] == [("t1", "done"), ("t2", "error"), ("t4", "done")]


async def test_a_chain_goes_on_after_a_step_that_says_so_but_not_with_what_it_did_not_give() -> None:
    calls = Calls(t1=ToolFailure)
    requests = [step(1, on_error="continue"), step(2), step(3, arguments={"a": "@{step1.result}"})]
    results = await carry_out(requests, calls)
    assert [r.status for r in results] == ["error", "done", "error"]
    assert "step 1 gave no result" in results[2].error.message


async def test_structured_calls_mean_what_they_say() -> None:
    calls = Calls()
    arguments = {"text": "@{timestamp}"}
    for protocol in (None, "native"):
        await carry_out([ToolCallRequest(tool_id="t", arguments=dict(arguments), protocol=protocol)], calls)
    assert calls.arguments == [arguments, arguments]


def test_many_references_take_linear_time() -> None:
    text = "@{" * 200_000 + "@{timestamp}" * 20_000
    resolved, _ = Names().resolved({"a": text})
    assert str(resolved["a"]).startswith("@{@{")
