"""Nodes that make lists and take them apart. Positions count from 0; negative ones from the end."""

from __future__ import annotations

from typing import Annotated, Any

from tavern_host import InvalidInput, Slot, node
from tavern_nodes.values import check_size

ListIn = Annotated[list[Any], Slot("The list.")]
ListOut = Annotated[list[Any], Slot("The list.", key="items")]


@node(category="Lists", display_name="Create list")
def create_list(
    items: Annotated[list[Any], Slot("The items, in the order of their connections.", multi=True)],
) -> ListOut:
    """Make a list of several values."""
    check_size(items, "CreateList: the list")
    return list(items)


@node(category="Lists", display_name="Concatenate lists")
def concatenate_lists(
    lists: Annotated[list[list[Any]], Slot("The lists, in the order of their connections.", multi=True)],
) -> ListOut:
    """Make one list of several."""
    check_size(lists, "ConcatenateLists: the list")
    return [item for part in lists for item in part]


@node(category="Lists", display_name="List item")
def list_item(
    items: ListIn,
    index: Annotated[int, Slot("The position: 0 is the first, -1 the last.")] = 0,
) -> Annotated[Any, Slot("The item.", key="item")]:
    """Take one item out of a list."""
    if not -len(items) <= index < len(items):
        raise InvalidInput(f"ListItem: there is no item {index}; the list has {len(items)}")
    return items[index]


@node(category="Lists", display_name="List slice")
def list_slice(
    items: ListIn,
    start: Annotated[int, Slot("The first position that is taken.")] = 0,
    end: Annotated[int | None, Slot("The first position that is not taken; empty means up to the end.")] = None,
) -> ListOut:
    """Take a part of a list; positions outside of the list are not an error."""
    return items[start:end]


@node(category="Lists", display_name="List length")
def list_length(items: ListIn) -> Annotated[int, Slot("The number of items.", key="length")]:
    """Count the items of a list."""
    return len(items)
