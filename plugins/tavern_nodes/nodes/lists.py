"""Nodes that make lists and take them apart. Positions count from 0; negative ones from the end.

What looks into the items is in `listwork`.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Annotated, Any, Literal

from tavern_host import Config, InvalidInput, Slot, node
from tavern_nodes.values import MAX_ITEMS, bounded, check_size, choose_from, fits_64_bits, kind_of

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
    _require_lists(lists, "ConcatenateLists")
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


@node(category="Lists", display_name="First item")
def first_item(
    items: ListIn,
    default: Annotated[Any, Slot("The value where the list is empty.")] = None,
) -> Annotated[Any, Slot("The item.", key="item")]:
    """Take the first item of a list."""
    return items[0] if items else default


@node(category="Lists", display_name="Last item")
def last_item(
    items: ListIn,
    default: Annotated[Any, Slot("The value where the list is empty.")] = None,
) -> Annotated[Any, Slot("The item.", key="item")]:
    """Take the last item of a list."""
    return items[-1] if items else default


@node(category="Lists", display_name="Append to list", bypass={"items": "items"})
def append_to_list(
    item: Annotated[Any, Slot("The item.")],
    items: Annotated[list[Any] | None, Slot("The list to start from; empty where there is none.")] = None,
    position: Annotated[int | None, Slot("Where it is put in; empty means at the end.")] = None,
) -> ListOut:
    """Give a list with one more item; the list that came in stays as it is."""
    existing = items or []
    at = len(existing) if position is None else position
    if not -len(existing) <= at <= len(existing):
        raise InvalidInput(f"AppendToList: there is no position {at}; the list has {len(existing)} items")
    result = list(existing)
    result.insert(at, item)
    bounded(len(result), MAX_ITEMS, "AppendToList", "items")
    check_size(result, "AppendToList: the list")
    return result


@node(category="Lists", display_name="Reverse list")
def reverse_list(items: ListIn) -> ListOut:
    """Turn a list around."""
    return items[::-1]


@node(category="Lists", display_name="Flatten list")
def flatten_list(
    items: ListIn,
    depth: Annotated[int, Slot("How many levels of lists within the list are opened.", min=1)] = 1,
) -> ListOut:
    """Put the items of the lists within a list in their place."""
    check_size(items, "FlattenList: the list")
    result = list(items)
    for _ in range(depth):
        if not any(isinstance(item, list) for item in result):
            break
        result = [part for item in result for part in (item if isinstance(item, list) else [item])]
    return result


@node(category="Lists", display_name="Cut list into chunks")
def chunk_list(
    items: ListIn,
    size: Annotated[int, Slot("How many items a chunk has; the last may have fewer.", min=1)] = 10,
) -> Annotated[list[Any], Slot("The chunks.", key="chunks")]:
    """Cut a list into lists of equal length."""
    if size < 1:
        raise InvalidInput(f"ChunkList: size must be at least 1, it is {size}")
    return [items[start : start + size] for start in range(0, len(items), size)]


@node(category="Lists", display_name="Zip lists")
def zip_lists(
    lists: Annotated[list[list[Any]], Slot("The lists, in the order of their connections.", multi=True)],
    length: Annotated[
        Literal["shortest", "longest", "equal"],
        Config(
            "How far to go: to the end of the shortest, of the longest (with null for what is missing), or all "
            "must be equally long."
        ),
    ] = "shortest",
) -> Annotated[list[Any], Slot("A list of the first items, one of the second items, and so on.", key="rows")]:
    """Put together what is at the same position of several lists."""
    choose_from(dict.fromkeys(("shortest", "longest", "equal")), length, "ZipLists: length")
    _require_lists(lists, "ZipLists")
    sizes = {len(each) for each in lists}
    if length == "equal" and len(sizes) > 1:
        raise InvalidInput(f"ZipLists: the lists have {min(sizes)} to {max(sizes)} items; all must have as many")
    bounded(max(sizes, default=0) * len(lists), MAX_ITEMS, "ZipLists", "items")
    rows = zip_longest(*lists) if length == "longest" else zip(*lists, strict=False)
    result = [list(row) for row in rows]
    check_size(result, "ZipLists: the list")
    return result


@node(category="Lists", display_name="Range")
def range_list(
    end: Annotated[int, Slot("The number behind the last one.")],
    start: Annotated[int, Slot("The first number.")] = 0,
    step: Annotated[int, Slot("What is added each time; it may be negative.")] = 1,
) -> Annotated[list[int], Slot("The numbers.", key="items")]:
    """List whole numbers at equal distances: 0, 1, 2 … up to before the end."""
    if step == 0:
        raise InvalidInput("RangeList: step must not be 0")
    numbers = range(fits_64_bits(start, "RangeList"), fits_64_bits(end, "RangeList"), fits_64_bits(step, "RangeList"))
    bounded(max(0, (end - start + step - (1 if step > 0 else -1)) // step), MAX_ITEMS, "RangeList", "items")
    return list(numbers)


def _require_lists(lists: list[Any], who: str) -> None:
    for number, each in enumerate(lists):
        if not isinstance(each, list):
            raise InvalidInput(f"{who}: lists[{number}] must be a list, not {kind_of(each)}")
