"""The protocols of a host: registered by plugins, read together, and told to models."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.protocols import ParserOptions
from tavern_host.contracts.settings import SettingsChange
from tavern_tools.protocols.registered import Protocols, protocols_of

TEXT = """One <ACTION><tool_id>info</tool_id><inputs><input name="name">a</input></inputs></ACTION>
two <|[REQUEST_TOOL]|>
command:「始」info「末」
name:「始」b「末」
<|[END_TOOL]|> three <tool_call name="info"><param name="name">c</param></tool_call>
!info name=d
"""


def protocols(bench: Any) -> Protocols:
    return protocols_of(bench.host._manager.active["tavern-tools"].context)


async def test_the_host_ships_four_protocols(bench: Any) -> None:
    infos = await protocols(bench).infos()
    assert [(info.name, info.source) for info in infos] == [
        ("tam", "text"),
        ("action", "text"),
        ("tool_call", "text"),
        ("native", "native"),
    ]


async def test_all_protocols_for_text_read_a_text_and_calls_keep_their_order(stocked: Any) -> None:
    parsed = await stocked.tools.parse_text(TEXT)
    assert [(call.protocol, call.arguments["name"], call.block) for call in parsed.calls] == [
        ("action", "a", 0),
        ("tam", "b", 1),
        ("tool_call", "c", 2),
        ("lines", "d", 3),
    ]
    assert parsed.text.split() == ["One", "two", "three"]


async def test_only_the_named_protocols_read_a_text(bench: Any) -> None:
    parsed = await bench.tools.parse_text(TEXT, protocols=["tool_call", "tam"])
    assert [call.protocol for call in parsed.calls] == ["tam", "tool_call"]
    assert "<ACTION>" in parsed.text


async def test_native_is_no_protocol_for_text(bench: Any) -> None:
    with pytest.raises(InvalidInput, match="the action protocol 'native' is not for text"):
        await bench.tools.parse_text("", protocols=["native"])


async def test_warnings_say_who_found_what_and_where(bench: Any) -> None:
    parsed = await bench.tools.parse_text("Well, <ACTION></ACTION>")
    assert parsed.warnings == ["action: it names no tool; nothing is called (at character 6)"]
    assert parsed.text == "Well, <ACTION></ACTION>"


async def test_a_stream_is_read_while_it_comes(bench: Any) -> None:
    fed: list[str] = []

    async def chunks() -> AsyncIterator[str]:
        for piece in ("Hello ", TEXT[:100], TEXT[100:]):
            fed.append(piece)
            yield piece

    seen = [(event.kind, len(fed)) async for event in protocols(bench).parse_stream(chunks(), None, ParserOptions())]
    assert seen[0] == ("text", 1)
    assert ("call", 2) in seen
    assert [kind for kind, _ in seen].count("call") == 3


async def test_native_calls_are_read_with_the_names_that_the_model_was_given(bench: Any) -> None:
    function = {"name": "kb_Query", "arguments": json.dumps({"q": 1})}
    calls: list[Any] = [{"id": "c1", "type": "function", "function": function}, "nonsense"]
    parsed = await protocols(bench).parse_native(calls, {"kb_Query": "kb:Query"})
    (call,) = parsed.calls
    assert (call.tool_id, call.arguments, call.request_id, call.protocol) == ("kb:Query", {"q": 1}, "c1", "native")
    assert parsed.warnings == ["native: expected a call, got 'nonsense'"]
    assert parsed.text == ""


async def test_models_are_told_of_one_protocol_unless_asked_otherwise(stocked: Any) -> None:
    told = protocols(stocked).instructions
    assert "<|[REQUEST_TOOL]|>" in await told()
    assert "!tool" not in await told()
    assert await told([]) == await told(["native"]) == ""
    both = await told(["tool_call", "lines"])
    assert both.endswith("\n\nWrite !tool key=value.")
    assert "<ACTION>" in await told(["action"])
    with pytest.raises(InvalidInput, match=r'there is no action protocol "actions" \(did you mean action\?\)'):
        await told(["actions"])


async def test_a_setting_names_the_protocol_that_models_are_told_of(stocked: Any) -> None:
    await stocked.host.settings.save(SettingsChange(plugin="tavern-tools", values={"protocol": "lines"}))
    assert await protocols(stocked).instructions() == "Write !tool key=value."


async def test_what_models_are_told_holds_calls_that_can_be_read(bench: Any) -> None:
    for name in ("tam", "action", "tool_call"):
        parsed = await bench.tools.parse_text(await protocols(bench).instructions([name]))
        assert {call.protocol for call in parsed.calls} == {name}
        assert parsed.warnings == []


HOSTILE = "<|[REQUEST_TOOL]|>a:" + "「始」" * 60_000


async def pieces(size: int) -> AsyncIterator[str]:
    for begin in range(0, len(HOSTILE), size):
        yield HOSTILE[begin : begin + size]


async def test_a_hostile_text_leaves_the_loop_to_others(bench: Any) -> None:
    async def times_let_go(reading: Any) -> int:
        task = asyncio.ensure_future(reading)
        times = 0
        while not task.done():
            await asyncio.sleep(0.001)
            times += 1
        await task
        return times

    async def streamed(size: int) -> list[Any]:
        return [event async for event in protocols(bench).parse_stream(pieces(size), None, ParserOptions())]

    await bench.tools.parse_text("")  # the protocols are collected
    assert await times_let_go(bench.tools.parse_text(HOSTILE)) > 10
    assert await times_let_go(streamed(len(HOSTILE))) > 10
    assert await times_let_go(streamed(90_000)) > 10


LOOKED_AT: list[str] = []


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "os.scandir":
        LOOKED_AT.append(str(arguments[0]))


async def test_texts_do_not_look_at_tool_files(stocked: Any) -> None:
    sys.addaudithook(_look)  # there is no way to take it away
    await stocked.tools.parse_text(TEXT)
    LOOKED_AT.clear()
    for _ in range(100):
        await stocked.tools.parse_text(TEXT)
    assert sum(path.endswith("/tools") for path in LOOKED_AT) < 20
    assert await stocked.ids()
    assert any(path.endswith("/tools") for path in LOOKED_AT)
