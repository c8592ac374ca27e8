"""Steps of a chain: what they refer to, where a chain stops, and what its results are."""

from __future__ import annotations

from typing import Any

from helpers.repetition import Failures

from tavern_tools.api.toolcalls import ToolCallRequest, ToolErrorType, ToolResult
from tavern_tools.calls.chains import blocks, carry_out
from tavern_tools.calls.references import Names
from tavern_tools.calls.results import failed
from tavern_tools.catalog.failures import ToolFailure


def step(index: int, *, block: int = 0, protocol: str | None = "tam", **more: Any) -> ToolCallRequest:
    return ToolCallRequest(tool_id=f"t{index}", index=index, block=block, protocol=protocol, **more)


class Calls:
    """Makes calls: what tools give by id, an exception type for one that fails; keeps what it was asked for."""

    def __init__(self, **outputs: Any) -> None:
        self.outputs = outputs
        self.arguments: list[dict[str, Any]] = []

    async def __call__(self, request: ToolCallRequest) -> ToolResult:
        self.arguments.append(request.arguments)
        output = self.outputs.get(request.tool_id, {"ok": True})
        if output is ToolFailure:
            return failed(request, ToolFailure(ToolErrorType.EXECUTION, "broken"))
        return ToolResult(tool_id=request.tool_id, index=request.index, status="done", structured=output)


FIRST = {"items": [{"name": "ä"}], "n": 3}
REFERENCES: Any = [
    # what is written in the second step, what the tool gets, the warnings
    ("@{step1.result}", FIRST),
    ("@{step1.result.items[0].name}", "ä"),
    ("n=@{ step_1.result.n }!", "n=3!"),
    (["@{STEP1.result.items.0}"], [{"name": "ä"}]),
    ("@{step1.status}", "done"),
    # variables, and the request, by name
    *(("@{common_output_dir}/a", "fam://x/a"), ("@{CommonOutputDir}", "fam://x"), ("@{request_id}", "req-1")),
    # a name that nobody knows is left
    (
        *("@{timestmp} and @{nobody}", "@{timestmp} and @{nobody}"),
        "nothing is called @{timestmp}, in text (did you mean timestamp?); left as it is",
        "nothing is called @{nobody}, in text; left as it is",
    ),
    # what is put in is not looked through again
    ("<@{tricky}>", "<@{timestamp} @{step1.result}>"),
    # two signs write a reference as text
    ("@@{step1.result}", "@{step1.result}"),
    ("x @@{timestamp} @{x} @@{x}", "x @{timestamp} X @{x}"),
    *(("@@@{x}", "@@{x}"), ("@@{no\nname}", "@@{no\nname}")),
]
NOWHERE: Any = [
    ("step2.result", "but no step 2 comes before this one"),
    ("step1.result.itms", "but there is no 'itms' (did you mean items?)"),
    ("step1.result.items[9]", "but there is no 9"),
    ("step1.results", "a step has result, status and error, not results"),
    ("step1.result..x", "which is no path"),
]


async def test_references_are_filled_in() -> None:
    variables = {"common_output_dir": "fam://x", "x": "X", "tricky": "@{timestamp} @{step1.result}"}
    with Failures() as failures:
        for written, expected, *warnings in REFERENCES:
            with failures.row(written):
                calls = Calls(t1=FIRST)
                known = {"variables": variables, "request_id": "req-1"}
                results = await carry_out([step(1, **known), step(3, arguments={"text": written}, **known)], calls)
                assert (calls.arguments[1], results[1].warnings) == ({"text": expected}, warnings)
    calls = Calls()
    await carry_out([step(1, arguments={"t": "@{timestamp}"})], calls)
    assert calls.arguments[0]["t"].endswith("+00:00")


async def test_a_reference_to_what_is_absent_fails() -> None:
    with Failures() as failures:
        for reference, said in NOWHERE:
            with failures.row(reference):
                calls = Calls(t1=FIRST)
                _, second = await carry_out([step(1), step(2, arguments={"a": f"@{{{reference}}}"})], calls)
                assert (second.error.type, len(calls.arguments)) == (ToolErrorType.PARAMETER_VALIDATION, 1)
                assert said in second.error.message


async def test_a_chain_stops_at_a_failed_step() -> None:
    results = await carry_out([step(1), step(2), step(3), step(4, block=1)], Calls(t2=ToolFailure))
    assert [(r.tool_id, r.status) for r in results] == [("t1", "done"), ("t2", "error"), ("t4", "done")]
    asks = [step(2, arguments={"a": "@{step1.error.type}"}), step(3, arguments={"a": "@{step1.result}"})]
    calls = Calls(t1=ToolFailure)
    results = await carry_out([step(1, on_error="continue"), *asks], calls)
    assert calls.arguments[1] == {"a": ToolErrorType.EXECUTION}
    assert [r.status for r in results] == ["error", "done", "error"]
    assert "step 1 gave no result" in results[2].error.message


def test_the_steps_of_one_block_belong_together() -> None:
    steps = [step(1), step(2), step(3, block=1), step(1, block=2), step(4, block=2)]
    steps += [step(1, block=2, protocol="lines"), step(1, block=3, protocol="lines")]
    assert [[s.index for s in block] for block in blocks(steps)] == [[1, 2], [3], [1, 4], [1], [1]]


async def test_structured_calls_mean_what_they_say() -> None:
    calls = Calls()
    for protocol in (None, "native"):
        await carry_out([step(1, protocol=protocol, arguments={"text": "@{timestamp}"})], calls)
    assert calls.arguments == [{"text": "@{timestamp}"}] * 2


def test_many_references_take_linear_time() -> None:
    text = "@{" * 200_000 + "@{timestamp}" * 20_000
    resolved, _ = Names().resolved({"a": text})
    assert str(resolved["a"]).startswith("@{@{")
