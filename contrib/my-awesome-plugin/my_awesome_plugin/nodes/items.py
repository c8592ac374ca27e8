"""A node that makes a list of a text with one item per line."""

from __future__ import annotations

from typing import Annotated, TypedDict

from tavern_host import NodeContext, Slot, node


class Items(TypedDict):
    """What the node gives."""

    items: Annotated[list[str], Slot("The items, without bullets and empty lines.")]
    left_out: Annotated[int, Slot("How many more items there were.")]


@node(category="text", display_name="Split into items")
def split_items(
    input: Annotated[str, Slot("A text with one item per line; bullets are allowed.", multiline=True)],
    context: NodeContext,
) -> Items:
    """Splits a text into its items; the plugin's setting maxItems says how many it gives at most."""
    most = int(context.plugin.settings.get("maxItems"))
    lines = (line.strip().lstrip("-*•").strip() for line in input.splitlines())
    items = [line for line in lines if line]
    return {"items": items[:most], "left_out": max(0, len(items) - most)}
