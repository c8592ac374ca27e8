"""The platform's nodes that take a stream and give one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from tavern_host import InvalidInput, NodeContext, NodeDefinition, node
from tavern_nodes.platform_slots import slot
from tavern_nodes.values import as_text, kind_of, shorten, show

MAX_LOGGED = 200
"""How many characters of an item are logged."""

STREAM_LOGGER = NodeDefinition(
    type="StreamLogger",
    namespace="core",
    category="实用工具",
    display_name="🧻Stream Logger",
    description="Writes what comes through a stream into the log, and passes it on.",
    inputs={
        "inputStream": slot("WILDCARD", "流输入", "The stream to write down.", required=True, stream=True),
    },
    outputs={"outputStream": slot("WILDCARD", "流输出", "The same stream.", stream=True)},
)


@node(definition=STREAM_LOGGER, cached=False)
async def stream_logger(
    inputs: dict[str, Any], config: dict[str, Any], context: NodeContext
) -> AsyncIterator[dict[str, Any]]:
    """Log each item in one line, shortened, with run and node; the last line says how many there were."""
    log, where = context.plugin.log, f"{context.run_id} {context.node_id}"
    count = 0
    async for item in _stream(inputs, "StreamLogger"):
        shown = repr(shorten(item, MAX_LOGGED)) if isinstance(item, str) else show(item)
        log.info("stream %s, item %d: %s", where, count, shown)
        count += 1
        yield {"outputStream": item}
    log.info("stream %s ended after %d items", where, count)


STREAM_SUFFIX_RELAY = NodeDefinition(
    type="StreamSuffixRelay",
    namespace="core",
    category="实用工具",
    display_name="➡️流后缀接力",
    description="Adds a text to the end of each piece of a stream.",
    inputs={
        "inputStream": slot("STRING", "输入流", "The stream of texts.", required=True, stream=True),
        "suffix": slot(
            "STRING",
            "后缀",
            "What is added to each piece.",
            required=False,
            config={"default": "---", "multiline": False, "placeholder": "输入后缀", "label": "后缀"},
        ),
    },
    outputs={"outputStream": slot("STRING", "输出流", "The pieces with the text added.", stream=True)},
)


@node(definition=STREAM_SUFFIX_RELAY)
async def stream_suffix_relay(inputs: dict[str, Any], config: dict[str, Any]) -> AsyncIterator[dict[str, str]]:
    """Yield each piece with the suffix as soon as it comes. Raises `InvalidInput`."""
    suffix = inputs.get("suffix", "---")
    if suffix is None:
        suffix = ""
    if not isinstance(suffix, str):
        raise InvalidInput(f"StreamSuffixRelay: suffix must be text, not {kind_of(suffix)}")
    async for item in _stream(inputs, "StreamSuffixRelay"):
        yield {"outputStream": as_text(item, "StreamSuffixRelay: an item of the stream") + suffix}


def _stream(inputs: dict[str, Any], who: str) -> AsyncIterator[Any]:
    stream = inputs.get("inputStream")
    if not isinstance(stream, AsyncIterator):
        raise InvalidInput(f"{who}: inputStream must be connected to a stream, it is {kind_of(stream)}")
    return stream
