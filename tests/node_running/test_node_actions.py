"""What nodes answer outside of a run: whether they have changed, and what their buttons do."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import pytest
from node_runners import RunnerOf, carried

from tavern_host import Config, PluginContext, node
from tavern_host.contracts.errors import InvalidInput, NotFound, PluginFailure
from tavern_nodes.node_runners import InProcessNodeRunner

Values = dict[str, Any]


def stamp(inputs: Values, config: Values) -> Any:
    return [inputs.get("path"), config]


async def stamp_later(inputs: Values, config: Values) -> Any:
    return stamp(inputs, config)


def reroll(inputs: Values, config: Values) -> Values | None:
    return {"value": inputs["value"] + config["step"]}


async def nothing(inputs: Values, config: Values) -> None: ...


def refuse(inputs: Values, config: Values) -> None:
    raise InvalidInput("no dice")


def change(inputs: Values, config: Values) -> None:
    inputs["list"].append(2)
    config["list"].append(2)


def reads(path: str, step: Annotated[int, Config()] = 2) -> str:
    return path


async def test_a_node_says_what_differs_when_it_has_changed(runner_of: RunnerOf) -> None:
    for function in (stamp, stamp_later):
        runner = runner_of(node(is_changed=function)(reads))
        assert await runner.change({"path": "a"}, {}) == ["a", {"step": 2}]
        assert await runner.change({}, {"step": 3}) == [None, {"step": 3}]
    with pytest.raises(NotFound, match="node Reads has no is_changed"):
        await runner_of(node()(reads)).change({}, {})


async def test_a_button_gives_the_input_values_that_it_changes(runner_of: RunnerOf) -> None:
    runner = runner_of(node(actions={"reroll": reroll, "nothing": nothing})(reads))
    assert await runner.act("reroll", {"value": 1}, {}) == {"value": 3}
    assert await runner.act("reroll", {"value": 1}, {"step": 10}) == {"value": 11}
    assert await runner.act("nothing", {}, {}) == {}
    with pytest.raises(NotFound, match=r"node Reads has no action 'rerol' \(did you mean reroll\?\)"):
        await runner.act("rerol", {}, {})


async def test_what_is_no_json_is_the_nodes_failure(runner_of: RunnerOf) -> None:
    results: list[Any] = [b"x", {1}, float("nan"), object(), [object()], 1 << 70]
    go = {"go": lambda inputs, config: {"a": results[0]}, "list": lambda inputs, config: [1]}
    runner = runner_of(node(is_changed=lambda inputs, config: results[0], actions=go)(reads))
    while results:
        with pytest.raises(PluginFailure, match="is_changed of node Reads returned what it may not: "):
            await runner.change({}, {})
        with pytest.raises(PluginFailure, match=r"action 'go' of node Reads returned what it may not: \.a"):
            await runner.act("go", {}, {})
        del results[0]
    with pytest.raises(PluginFailure, match="expected a dict of JSON or None, found list"):
        await runner.act("list", {}, {})


async def test_an_action_that_would_end_the_program_only_fails(runner_of: RunnerOf) -> None:
    runner = runner_of(node(actions={"leave": lambda inputs, config: sys.exit(3), "refuse": refuse})(reads))
    with pytest.raises(PluginFailure, match="action 'leave' of node Reads tried to end the program"):
        await runner.act("leave", {}, {})
    with pytest.raises(InvalidInput, match="no dice"):
        await runner.act("refuse", {}, {})


async def test_an_action_keeps_no_hold_of_the_callers_values_behind_the_boundary() -> None:
    values: Values = {"list": [1]}
    await carried(node(actions={"go": change})(reads)).act("go", values, values)
    assert values == {"list": [1]}


async def test_a_parameter_annotated_with_the_plugins_context_gets_it() -> None:
    context: Any = object()

    def who(inputs: Values, config: Values, *, plugin: PluginContext) -> Values:
        return {"same": plugin is context}

    @node(actions={"who": who}, is_changed=who)
    class Counter:
        def run(self) -> int:
            return 1

    runner = InProcessNodeRunner(Counter.__tavern_node__, context)  # type: ignore[attr-defined]
    assert await runner.act("who", {}, {}) == await runner.change({}, {}) == {"same": True}
