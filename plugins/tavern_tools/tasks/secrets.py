"""Hides the secrets in a call's arguments, and puts them back where an edited copy still has the mask.

It judges by names: a secret under a harmless name is seen only where the tool's schema marks it (`writeOnly`, or the
format `password`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from typing import Any

from pydantic import JsonValue

from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.settings import MASK

_ANYWHERE = re.compile(
    "passw|passphrase|passcode|pwd|secret|token|apikey|accesskey|privatekey|signingkey|encryptionkey|authorization"
    "|credential|cookie|sessionid|sessionkey|bearer|jwt|密码|密钥|令牌|口令"
)
_WHOLE = frozenset({"pass", "pw", "pin", "otp", "auth", "sid"})
_COUNTS = re.compile(r"tokens|token(s?)(count|limit|usage|budget)")


def masked(arguments: dict[str, JsonValue], hidden: Collection[str] = ()) -> dict[str, JsonValue]:
    """Return arguments with `MASK` in the place of each secret; `hidden` are names of whole arguments."""
    return {
        name: MASK if name in hidden and item not in (None, "") else _shown(name, item)
        for name, item in _object(arguments).items()
    }


def unmasked(
    edited: dict[str, JsonValue], real: dict[str, JsonValue], hidden: Collection[str] = ()
) -> dict[str, JsonValue]:
    """Return `edited` with the secrets of `real` where `MASK` is still in their place.

    Raises `InvalidInput` where it replaces none.
    """
    shown = masked(real, hidden)
    return {name: _restored(item, shown.get(name), real.get(name), name) for name, item in edited.items()}


def _shown(name: str, item: Any) -> Any:
    secrecy = _secrecy(name)
    is_none = item is None or isinstance(item, bool) or item == ""
    is_count = secrecy == 2 and isinstance(item, int | float)
    return MASK if secrecy and not (is_none or is_count) else _value(item)


def _value(item: Any) -> Any:
    if isinstance(item, dict):
        return {name: _shown(name, inner) for name, inner in _object(item).items()}
    return [_value(inner) for inner in item] if isinstance(item, list) else item


def _object(item: dict[str, Any]) -> dict[str, Any]:
    """Return an object, without the value of one that names a secret: `{"key": "apiKey", "value": …}`."""
    named = any(isinstance(item.get(key), str) and _secrecy(str(item[key])) for key in ("key", "name"))
    return {**item, "value": MASK} if named and item.get("value") not in (None, "") else item


def _restored(edited: Any, shown: Any, real: Any, where: str) -> Any:
    if edited == MASK:
        if shown != MASK:
            raise InvalidInput(f"{where} is {MASK}, where no secret stands: give the value itself")
        return real
    if isinstance(edited, dict):
        seen, known = (shown, real) if isinstance(shown, dict) and isinstance(real, dict) else ({}, {})
        return {
            name: _restored(item, seen.get(name), known.get(name), f"{where}.{name}") for name, item in edited.items()
        }
    if isinstance(edited, list):
        alike = isinstance(shown, list) and isinstance(real, list) and len(shown) == len(edited)
        seen_items, known_items = (shown, real) if alike else ([None] * len(edited), [None] * len(edited))
        return [
            _restored(item, seen_items[index], known_items[index], f"{where}[{index}]")
            for index, item in enumerate(edited)
        ]
    return edited


def _secrecy(name: str) -> int:
    """Return 1 where a secret stands under a name, 2 where it may also be how many there are, else 0."""
    plain = re.sub(r"[\W_]", "", unicodedata.normalize("NFKC", name[:200]).lower())
    if plain not in _WHOLE and not _ANYWHERE.search(plain):
        return 0
    return 2 if _COUNTS.search(plain) else 1
