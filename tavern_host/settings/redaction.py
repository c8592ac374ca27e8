"""Replaces the secrets in a setting's value by `MASK`, and restores them where the mask is sent back.

Knows nothing of where values are stored.
"""

from __future__ import annotations

from typing import Any

from tavern_host.contracts.settings import MASK, SettingItem


class MaskedValue(ValueError):
    """A mask stands where there is no secret that it could mean."""


def is_set(item: SettingItem, value: Any) -> bool:
    """Return whether a value in force counts as one: an empty secret does not."""
    return value is not None and not (item.is_secret and value == "")


def masked(item: SettingItem, value: Any) -> Any:
    """Return a value as it may be shown: a secret that is set as `MASK`, and so those within a `json` value."""
    if item.is_secret:
        return MASK if is_set(item, value) else value
    return _hide(value, frozenset(item.secret_keys)) if item.secret_keys else value


def unmasked(item: SettingItem, value: Any, current: Any) -> Any:
    """Return `value` with the secrets of `current` where `MASK` stands for them.

    Raises `MaskedValue` where there is none: none is set, or the list that it stands in was changed.
    """
    if item.is_secret:
        if value != MASK:
            return value
        if not is_set(item, current):
            raise MaskedValue("is a secret that is not set yet: give the secret itself")
        return current
    return _put_back(value, current, frozenset(item.secret_keys), "") if item.secret_keys else value


def _hide(value: Any, keys: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {
            key: MASK if key in keys and inner not in (None, "") else _hide(inner, keys) for key, inner in value.items()
        }
    return [_hide(inner, keys) for inner in value] if isinstance(value, list) else value


def _put_back(value: Any, current: Any, keys: frozenset[str], where: str) -> Any:
    if isinstance(value, dict):
        known = current if isinstance(current, dict) else {}
        return {
            key: _secret(known.get(key), f"{where}{key}")
            if key in keys and inner == MASK
            else _put_back(inner, known.get(key), keys, f"{where}{key}.")
            for key, inner in value.items()
        }
    if isinstance(value, list):
        if isinstance(current, list) and value == _hide(current, keys):
            return current
        return [_put_back(inner, None, keys, f"{where}{index}.") for index, inner in enumerate(value)]
    return value


def _secret(current: Any, where: str) -> Any:
    if current in (None, ""):
        raise MaskedValue(f"has {MASK} at {where}, where no secret is set: give the secret itself")
    return current
