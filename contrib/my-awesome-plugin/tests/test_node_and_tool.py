"""The node and the tool that is made of it."""

from __future__ import annotations

from typing import Any

import pytest

from tavern_host import TOOL_MANAGER, Host
from tavern_tools.api.toolcalls import ToolCallRequest, ToolErrorType

pytestmark = pytest.mark.tavern(plugins=["../my_awesome_plugin"])

TOOL = "MyAwesomePlugin:splitItems"


async def call(host: Host, **arguments: Any) -> Any:
    return await host.services.get(TOOL_MANAGER).call(ToolCallRequest(tool_id=TOOL, arguments=arguments))


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("bread\nmilk", ["bread", "milk"]),
        ("- bread\n* milk\n• tea", ["bread", "milk", "tea"]),
        ("\n  bread  \n\n", ["bread"]),
        ("", []),
    ],
)
async def test_a_text_becomes_its_items(host: Host, text: str, items: list[str]) -> None:
    result = await call(host, input=text)
    assert result.status == "done", result.error
    assert result.structured == {"items": items, "left_out": 0}


@pytest.mark.tavern(settings={"extensions.my-awesome-plugin.maxItems": 2})
async def test_no_more_items_are_given_than_the_setting_says(host: Host) -> None:
    assert (await call(host, input="a\nb\nc")).structured == {"items": ["a", "b"], "left_out": 1}


async def test_the_tool_asks_for_its_input(host: Host) -> None:
    assert (await call(host)).error.type is ToolErrorType.PARAMETER_VALIDATION


async def test_the_tool_is_the_plugins_own(host: Host) -> None:
    tool = await host.services.get(TOOL_MANAGER).get(TOOL)
    assert (tool.plugin, tool.kind, tool.unavailable) == ("my-awesome-plugin", "node", None)
