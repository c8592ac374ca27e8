"""Nodes that look into the items of a list: they change, keep, order, group and join them.

What is done to an item is named in the node's configuration; nobody's code runs here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypedDict, TypeVar, get_args

from tavern_host import Config, InvalidInput, Slot, node
from tavern_host.contracts.documents import to_thread_if_large
from tavern_nodes.comparing import Operator, identity, is_number, is_same, order, test_for
from tavern_nodes.documents import read_json
from tavern_nodes.paths import JsonPath, Missing, read_path, select
from tavern_nodes.templates import fill
from tavern_nodes.values import (
    MAX_TEXT,
    as_text,
    bounded,
    check_size,
    choose_from,
    finite,
    join,
    kind_of,
    to_json,
    unescape,
)

T = TypeVar("T")

ListIn = Annotated[list[Any], Slot("The list.")]
ListOut = Annotated[list[Any], Slot("The list.", key="items")]
ItemPath = Annotated[str, Slot("Which part of each item is looked at, such as user.name; empty means the whole item.")]
Operation = Literal[
    "template", "path", "text", "upper case", "lower case", "trim", "length", "number", "to JSON", "parse JSON"
]

_QUICK = 200
"""Up to how many items, short texts and numbers, are worked on without a thread."""


class Filtered(TypedDict):
    """The outputs of `FilterList`."""

    items: Annotated[list[Any], Slot("The items for which the comparison holds.")]
    rest: Annotated[list[Any], Slot("The other items.")]


class Position(TypedDict):
    """The outputs of `FindInList`."""

    found: Annotated[bool, Slot("Whether the comparison holds for an item.")]
    item: Annotated[Any, Slot("The first such item; null where there is none.")]
    index: Annotated[int, Slot("Its position, from 0; -1 where there is none.")]


class Statistics(TypedDict):
    """The outputs of `ListStatistics`. Those of an empty list are 0."""

    sum: Annotated[float, Slot("All numbers added.")]
    mean: Annotated[float, Slot("The sum, divided by the count.")]
    min: Annotated[float, Slot("The smallest number.")]
    max: Annotated[float, Slot("The largest number.")]
    count: Annotated[int, Slot("How many numbers there are.")]


@node(category="Lists", display_name="Map list")
async def map_list(
    items: ListIn,
    argument: Annotated[
        str,
        Slot(
            "For a template, the text with {item}, {item.name} and {index}; for a path, the way to the part.",
            multiline=True,
        ),
    ] = "{item}",
    operation: Annotated[Operation, Config("What is done to each item.")] = "template",
    on_error: Annotated[
        Literal["fail", "skip", "null"], Config("What becomes of an item with which it cannot be done.")
    ] = "fail",
) -> ListOut:
    """Make a list of what becomes of each item."""
    choose_from(dict.fromkeys(get_args(Operation)), operation, "MapList: operation")
    choose_from(dict.fromkeys(("fail", "skip", "null")), on_error, "MapList: on_error")
    change = _change(operation, argument)

    def work() -> list[Any]:
        result: list[Any] = []
        size = 0
        for index, item in enumerate(items):
            try:
                value = change(index, item)
            except InvalidInput:
                if on_error == "fail":
                    raise
                if on_error == "skip":
                    continue
                value = None
            size += check_size(value, f"MapList: item {index}")
            bounded(size, MAX_TEXT, "MapList", "characters as JSON")
            result.append(value)
        return result

    return await _away(work, items)


@node(category="Lists", display_name="Filter list")
async def filter_list(
    items: ListIn,
    value: Annotated[Any, Slot("What the items are compared with.")] = None,
    path: ItemPath = "",
    operator: Annotated[Operator, Config("How an item is compared with the value.")] = "=",
) -> Filtered:
    """Keep the items for which a comparison holds. Text that is a number equals that number."""
    holds, part = test_for(operator, value, "FilterList"), _part(path, "FilterList")

    def work() -> Filtered:
        found: Filtered = {"items": [], "rest": []}
        for item in items:
            found["items" if holds(part(item)) else "rest"].append(item)
        return found

    return await _away(work, items)


@node(category="Lists", display_name="Find in list")
async def find_in_list(
    items: ListIn,
    value: Annotated[Any, Slot("What the items are compared with.")] = None,
    path: ItemPath = "",
    operator: Annotated[Operator, Config("How an item is compared with the value.")] = "=",
) -> Position:
    """Find the first item for which a comparison holds."""
    holds, part = test_for(operator, value, "FindInList"), _part(path, "FindInList")

    def work() -> Position:
        for index, item in enumerate(items):
            if holds(part(item)):
                return {"found": True, "item": item, "index": index}
        return {"found": False, "item": None, "index": -1}

    return await _away(work, items)


@node(category="Lists", display_name="Join list")
async def join_list(
    items: ListIn,
    separator: Annotated[str, Slot(r"What stands between the items; \n is a new line, \t a tab.")] = ", ",
    last_separator: Annotated[str, Slot("What stands before the last item, such as ` and `; empty for the same.")] = "",
    path: ItemPath = "",
) -> Annotated[str, Slot("The text.", key="text")]:
    """Make one text of a list, or of one part of each item. What is not text is written as JSON."""
    part = _part(path, "JoinList")

    def work() -> str:
        texts = []
        size = 0
        for index, item in enumerate(items):
            texts.append(as_text(part(item), f"JoinList: item {index}"))
            size += len(texts[-1])
            bounded(size, MAX_TEXT, "JoinList", "characters")
        between = unescape(separator)
        if not last_separator or len(texts) < 2:
            return join(between, texts, "JoinList")
        return join(unescape(last_separator), [join(between, texts[:-1], "JoinList"), texts[-1]], "JoinList")

    return await _away(work, items)


@node(category="Lists", display_name="Sort list")
async def sort_list(
    items: ListIn,
    path: ItemPath = "",
    descending: Annotated[bool, Slot("Begin with the largest.")] = False,
    ignore_case: Annotated[bool, Config("Take capital and small letters as the same.")] = False,
) -> ListOut:
    """Order a list of numbers or texts, or by such a part of each item; items without one come last."""
    part = _part(path, "SortList")

    def key(item: Any) -> Any:
        value = part(item)
        return value.casefold() if ignore_case and isinstance(value, str) else value

    def work() -> list[Any]:
        keyed = [(key(item), item) for item in items]
        have = [pair for pair in keyed if pair[0] is not None]
        if all(is_number(value) for value, _ in have) or all(isinstance(value, str) for value, _ in have):
            have.sort(key=lambda pair: pair[0], reverse=descending)
        else:
            compare = functools.cmp_to_key(lambda a, b: order(a, b, "SortList"))
            have.sort(key=lambda pair: compare(pair[0]), reverse=descending)
        return [item for _, item in have] + [item for value, item in keyed if value is None]

    return await _away(work, items)


@node(category="Lists", display_name="Unique items")
async def unique_list(items: ListIn, path: ItemPath = "") -> ListOut:
    """Keep the first of all items that are equal, or equal in a part of theirs."""
    part = _part(path, "UniqueList")

    def work() -> list[Any]:
        first: dict[Any, Any] = {}
        for item in items:
            first.setdefault(identity(part(item)), item)
        return list(first.values())

    return await _away(work, items)


@node(category="Lists", display_name="Group list")
async def group_list(
    items: ListIn,
    path: ItemPath = "",
) -> Annotated[dict[str, Any], Slot("A list of items for each value, under its text.", key="groups")]:
    """Put items that are equal in a part of theirs into a list each."""
    part = _part(path, "GroupList")

    def work() -> dict[str, Any]:
        groups: dict[str, Any] = {}
        for index, item in enumerate(items):
            groups.setdefault(as_text(part(item), f"GroupList: item {index}"), []).append(item)
        check_size(groups, "GroupList: the groups")
        return groups

    return await _away(work, items)


@node(category="Lists", display_name="List statistics")
async def list_statistics(items: ListIn, path: ItemPath = "") -> Statistics:
    """Add up a list of numbers, or such a part of each item, and find its smallest, largest and mean."""
    part = _part(path, "ListStatistics")

    def work() -> Statistics:
        total, smallest, largest = 0.0, 0.0, 0.0
        for index, item in enumerate(items):
            value = part(item)
            if not is_number(value):
                raise InvalidInput(f"ListStatistics: item {index} must be a number, not {kind_of(value)}")
            number = _float(value, f"ListStatistics: item {index}")
            total = finite(total + number, "ListStatistics: the sum")
            smallest = number if index == 0 else min(smallest, number)
            largest = number if index == 0 else max(largest, number)
        mean = total / len(items) if items else 0.0
        return {"sum": total, "mean": mean, "min": smallest, "max": largest, "count": len(items)}

    return await _away(work, items)


@node(category="Lists", display_name="List contains")
async def list_contains(
    items: ListIn,
    value: Annotated[Any, Slot("The value to look for.")],
) -> Annotated[bool, Slot("Whether it is in the list.", key="result")]:
    """Say whether a value is in a list. Text that is a number equals that number."""
    return await _away(lambda: any(is_same(item, value) for item in items), items)


async def _away(work: Callable[[], T], items: list[Any]) -> T:
    """Return `work()`, done on a thread where there may be much of it."""
    quick = len(items) <= _QUICK and all(map(_is_quick, items))
    return await to_thread_if_large(not quick, work)


def _is_quick(item: Any) -> bool:
    return len(item) <= _QUICK if isinstance(item, str) else not isinstance(item, list | dict)


def _part(path: str, who: str) -> Callable[[Any], Any]:
    """Return the function that selects an item's part at `path`, None where it has none. Raises `InvalidInput`."""
    steps = read_path(path, who)

    def part(item: Any) -> Any:
        try:
            return select(item, steps, who)
        except Missing:
            return None

    return part if steps else lambda item: item


def _change(operation: str, argument: str) -> Callable[[int, Any], Any]:
    if operation == "template":
        return lambda index, item: _filled(argument, index, item)
    if operation == "path":
        steps = read_path(argument, "MapList")
        return lambda index, item: _selected(steps, index, item)
    change = _OPERATIONS[operation]
    return lambda index, item: change(item, f"MapList: item {index}")


def _filled(template: str, index: int, item: Any) -> str:
    values = {"item": item, "index": index}

    def find(path: str) -> str:
        try:
            found = select(values, read_path(path, "MapList"), "MapList")
        except Missing as problem:
            raise InvalidInput(f"MapList: item {index}: {{{path}}}: {problem}") from None
        return as_text(found, f"MapList: item {index}: {path}")

    return fill(template, find, "MapList")


def _selected(steps: JsonPath, index: int, item: Any) -> Any:
    try:
        return select(item, steps, "MapList")
    except Missing as problem:
        raise InvalidInput(f"MapList: item {index}: {problem}") from None


def _length(item: Any, where: str) -> int:
    if isinstance(item, str | list | dict | bytes):
        return len(item)
    raise InvalidInput(f"{where} is {kind_of(item)}, which has no length")


def _number(item: Any, where: str) -> float:
    text = item.strip() if isinstance(item, str) else item
    if isinstance(text, str) and (len(text) > 400 or "_" in text):
        raise InvalidInput(f"{where} cannot be read as a number")
    if not isinstance(text, str | bool | int | float):
        raise InvalidInput(f"{where} is {kind_of(item)}, not a number")
    return _float(text, where)


def _float(value: Any, where: str) -> float:
    try:
        return finite(float(value), where)
    except (ValueError, OverflowError):
        raise InvalidInput(f"{where} cannot be read as a number") from None


def _parsed(item: Any, where: str) -> Any:
    if not isinstance(item, str):
        raise InvalidInput(f"{where} is {kind_of(item)}, not text")
    return read_json(item, where)


_OPERATIONS: dict[str, Callable[[Any, str], Any]] = {
    "text": as_text,
    "upper case": lambda item, where: as_text(item, where).upper(),
    "lower case": lambda item, where: as_text(item, where).lower(),
    "trim": lambda item, where: as_text(item, where).strip(),
    "length": _length,
    "number": _number,
    "to JSON": to_json,
    "parse JSON": _parsed,
}
