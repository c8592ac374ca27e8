"""What nodes answer outside of a run: whether they have changed, and what their buttons do."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import pytest
from node_runners import RunnerOf, direct

from tavern_host import Config, PluginContext, node
from tavern_host.contracts.errors import InvalidInput, NotFound, PluginFailure
from tavern_nodes.node_runners import InProcessNodeRunner


def stamp(inputs: dict[str, Any], config: dict[str, Any]) -> Any:
    return [inputs.get("path"), config]


async def stamp_later(inputs: dict[str, Any], config: dict[str, Any]) -> Any:
    return stamp(inputs, config)


def reroll(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, Any] | None:
    return {"value": inputs["value"] + config["step"]}


def reads(path: str, step: Annotated[int, Config()] = 2) -> str:
    return path


@pytest.mark.parametrize("function", [stamp, stamp_later])
async def test_a_node_says_what_differs_when_it_has_changed(runner_of: RunnerOf, function: Any) -> None:
    runner = runner_of(node(is_changed=function)(reads))
    assert await runner.change({"path": "a"}, {}) == ["a", {"step": 2}]
    assert await runner.change({}, {"step": 3}) == [None, {"step": 3}]


async def test_a_button_gives_the_input_values_that_it_changes(runner_of: RunnerOf) -> None:
    async def nothing(inputs: dict[str, Any], config: dict[str, Any]) -> None: ...

    runner = runner_of(node(actions={"reroll": reroll, "nothing": nothing})(reads))
    assert await runner.act("reroll", {"value": 1}, {}) == {"value": 3}
    assert await runner.act("reroll", {"value": 1}, {"step": 10}) == {"value": 11}
    assert await runner.act("nothing", {}, {}) == {}


async def test_an_unknown_button_is_told_with_near_names(runner_of: RunnerOf) -> None:
    with pytest.raises(NotFound, match=r"node Reads has no action 'rerol' \(did you mean reroll\?\)"):
        await runner_of(node(actions={"reroll": reroll})(reads)).act("rerol", {}, {})
    with pytest.raises(NotFound, match="node Reads has no is_changed"):
        await runner_of(node()(reads)).change({}, {})


@pytest.mark.parametrize("result", [b"x", {1}, float("nan"), object(), [object()], 1 << 70])
async def test_what_is_no_json_is_the_nodes_failure(runner_of: RunnerOf, result: Any) -> None:
    target = node(is_changed=lambda inputs, config: result, actions={"go": lambda inputs, config: {"a": result}})(reads)
    with pytest.raises(PluginFailure, match="is_changed of node Reads returned what it may not: "):
        await runner_of(target).change({}, {})
    with pytest.raises(PluginFailure, match=r"action 'go' of node Reads returned what it may not: \.a"):
        await runner_of(target).act("go", {}, {})


async def test_a_button_that_gives_no_dict_is_the_nodes_failure() -> None:
    target = node(actions={"go": lambda inputs, config: [1]})(reads)
    with pytest.raises(PluginFailure, match="expected a dict of JSON or None, found list"):
        await direct(target).act("go", {}, {})


async def test_an_action_that_would_end_the_program_or_refuses_only_fails(runner_of: RunnerOf) -> None:
    def refuse(inputs: dict[str, Any], config: dict[str, Any]) -> None:
        raise InvalidInput("no dice")

    target = node(actions={"leave": lambda inputs, config: sys.exit(3), "refuse": refuse})(reads)
    with pytest.raises(PluginFailure, match="action 'leave' of node Reads tried to end the program"):
        await runner_of(target).act("leave", {}, {})
    with pytest.raises(InvalidInput, match="no dice"):
        await runner_of(target).act("refuse", {}, {})


async def test_an_action_keeps_no_hold_of_the_callers_values_behind_the_boundary() -> None:
    from node_runners import carried

    def change(inputs: dict[str, Any], config: dict[str, Any]) -> None:
        inputs["list"].append(2)
        config["list"].append(2)

    given: dict[str, Any] = {"list": [1]}
    await carried(node(actions={"go": change})(reads)).act("go", given, given)
    assert given == {"list": [1]}


async def test_a_parameter_annotated_with_the_plugins_context_gets_it() -> None:
    context: Any = object()

    def who(inputs: dict[str, Any], config: dict[str, Any], *, plugin: PluginContext) -> dict[str, Any]:
        return {"same": plugin is context}

    @node(actions={"who": who}, is_changed=who)
    class Counter:
        def run(self) -> int:
            return 1

    code = Counter.__tavern_node__  # type: ignore[attr-defined]
    runner = InProcessNodeRunner(code, context)
    assert await runner.act("who", {}, {}) == {"same": True}
    assert await runner.change({}, {}) == {"same": True}
