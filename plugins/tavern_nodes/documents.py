"""Reads JSON and YAML that anybody may have written: bounded in size, depth and references, plain data only."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from tavern_host import InvalidInput
from tavern_nodes.values import MAX_INTEGER, MAX_NESTING, MAX_TEXT, MIN_INTEGER, check_size, kind_of

if TYPE_CHECKING:
    import yaml

MAX_YAML = 1_000_000
"""The longest YAML text that is read, in characters; reading it is slow."""


def read_json(text: str, where: str) -> Any:
    """Return the value that a JSON text holds. Raises `InvalidInput` beginning with `where`."""
    if len(text) > MAX_TEXT:
        raise InvalidInput(f"{where} has {len(text):,} characters; at most {MAX_TEXT:,} are read")
    try:
        value = json.loads(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{where} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise InvalidInput(f"{where} is nested more than {MAX_NESTING} deep") from None
    except ValueError:  # Python refuses to read integers of some thousand digits
        raise InvalidInput(f"{where} holds a number with too many digits") from None
    return plain(value, where)


def read_yaml(text: str, where: str) -> Any:
    """Return the value that a YAML text holds: texts, numbers, booleans, lists, objects. Keys become text.

    References (`*name`) and tags (`!name`) are refused. Raises `InvalidInput` beginning with `where`.
    """
    import yaml

    if len(text) > MAX_YAML:
        raise InvalidInput(f"{where} has {len(text):,} characters; of YAML at most {MAX_YAML:,} are read")
    try:
        _check_events(text, where)
        value = yaml.load(text, Loader=_plain_loader())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InvalidInput(f"{where} is not YAML: {error.problem or error.context}{place}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInput(f"{where} is not YAML that can be read: {reason}") from None
    return plain(value, where)


def decode(data: bytes, where: str) -> str:
    """Return the text of a UTF-8 file. Raises `InvalidInput` beginning with `where`."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{where} is not UTF-8 text (byte {error.start})") from None


def plain(value: Any, where: str) -> Any:
    """Return `value` with its keys as text; whole numbers that 64 bits cannot hold become floats.

    Raises `InvalidInput` for what edges cannot carry: too large, too deep, infinite, or no JSON at all.
    """
    check_size(value, where)
    return _plain(value, where)


def _plain(value: Any, where: str) -> Any:
    if isinstance(value, dict):
        return {_key(key, where): _plain(item, where) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, where) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and not MIN_INTEGER <= value <= MAX_INTEGER:
        value = float(value) if value.bit_length() < 1000 else math.inf
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(f"{where} holds a number that is not finite or too large")
    if value is not None and not isinstance(value, bool | int | float | str):
        raise InvalidInput(f"{where} holds {kind_of(value)}, which is no JSON")
    return value


def _key(key: Any, where: str) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool | int):
        return json.dumps(key)
    raise InvalidInput(f"{where} has a key that is {kind_of(key)}, not text")


def _check_events(text: str, where: str) -> None:
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=_fast_loader()):
        if isinstance(event, yaml.AliasEvent):
            raise InvalidInput(f"{where}: references such as *{event.anchor} are not read; write the part out")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_NESTING:
                raise InvalidInput(f"{where} is nested more than {MAX_NESTING} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if isinstance(event, yaml.NodeEvent) and getattr(event, "tag", None) not in (None, "!"):
            raise InvalidInput(f"{where}: tags such as {getattr(event, 'tag', '')} are not read")


def _fast_loader() -> type[yaml.SafeLoader]:
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _plain_loader() -> type[yaml.SafeLoader]:
    """Return a loader that leaves dates as text."""
    global _loader  # noqa: PLW0603 - made once, since YAML is imported only where it is read
    if _loader is None:
        base = _fast_loader()
        resolvers = {
            first: [entry for entry in entries if entry[0] != "tag:yaml.org,2002:timestamp"]
            for first, entries in base.yaml_implicit_resolvers.items()
        }
        _loader = type("PlainLoader", (base,), {"yaml_implicit_resolvers": resolvers})
    return _loader


_loader: type[yaml.SafeLoader] | None = None
