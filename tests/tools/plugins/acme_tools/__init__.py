"""A plugin for tests: nodes to make tools of, tools from code, and two small action protocols."""

from __future__ import annotations

from tavern_host.contracts.tools import ToolDefinition, ToolImplementation
from tavern_host.sdk.decorator import hookimpl
from tavern_tools.api.protocols import ActionProtocolInfo, ParseEvent, ParserOptions
from tavern_tools.api.toolcalls import ToolCallRequest


@hookimpl
def tavern_discover_tools() -> list[ToolDefinition]:
    node = ToolImplementation(kind="node", node_type="acme-tools:Repeat")
    bad = {"type": "object", "properties": {"a": {"type": "nonsense"}}}
    return [
        ToolDefinition(id="acme:repeat", description="Repeats text.", implementation=node),
        ToolDefinition(id="acme:bad", implementation=node, parameters=bad),
    ]


@hookimpl
def tavern_register_action_protocols() -> list[ActionProtocolInfo]:
    return [
        ActionProtocolInfo(name="lines", handler=f"{__name__}:LineParser", instructions="Write !tool key=value."),
        ActionProtocolInfo(name="broken", handler=f"{__name__}:BrokenParser"),
    ]


class LineParser:
    """`!tool key=value,key=value` lines are calls; neighbouring ones are a block; `!?tool` goes on after an error."""

    def __init__(self, options: ParserOptions) -> None:
        self._text = ""
        self._known = options.parameters

    def feed(self, text: str) -> list[ParseEvent]:
        self._text += text
        return []

    def finish(self) -> list[ParseEvent]:
        events, index, block = [], 0, 0
        for line in self._text.splitlines(keepends=True):
            if not line.startswith("!"):
                index, block = 0, block + 1
                events.append(ParseEvent(kind="text", text=line))
                continue
            tool_id, _, rest = line[1:].strip().partition(" ")
            arguments = dict(part.split("=", 1) for part in rest.split(",") if part)
            goes_on, tool_id = tool_id.startswith("?"), tool_id.lstrip("?")
            index += 1
            if tool_id not in self._known:
                events.append(ParseEvent(kind="warning", text=f"{tool_id} is not known", offset=0))
            call = ToolCallRequest(
                tool_id=tool_id,
                arguments=arguments,
                index=index,
                block=block,
                request_id=f"block-{block}",
                on_error="continue" if goes_on else "stop",
            )
            events.append(ParseEvent(kind="call", call=call))
        return events


class BrokenParser:
    """Raises on text with the word `crash`, which no parser may."""

    def __init__(self, options: ParserOptions) -> None:
        self._text = ""

    def feed(self, text: str) -> list[ParseEvent]:
        if "crash" in text:
            raise RuntimeError("I give up")
        return [ParseEvent(kind="text", text=text)]

    def finish(self) -> list[ParseEvent]:
        return []
