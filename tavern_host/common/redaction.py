"""What is secret, and what stands in its place wherever something leaves the host: the one owner of both questions.

A secret is known by its *name* (`apiKey`, `Authorization`, `password`: `secrecy`), by a *mark* (of a setting, of a
tool's schema), or by its *value*: what is set as a secret is masked in every text that has it, whoever wrote that.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic import JsonValue

from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.settings import MASK, SettingItem

SHORT = 8
"""A secret of fewer characters stands in many words: it is masked as a whole value only."""

_ANYWHERE = re.compile(
    "passw|passphrase|passcode|pwd|secret|token|apikey|accesskey|privatekey|signingkey|encryptionkey|authorization"
    "|credential|cookie|sessionid|sessionkey|bearer|jwt|密码|密钥|令牌|口令"
)
_WHOLE = frozenset({"pass", "pw", "pin", "otp", "auth", "sid"})
_COUNTS = re.compile(r"tokens|token(s?)(count|limit|usage|budget)")
_ORDINARY = re.compile(r"[A-Za-z _.-]{1,15}|(/[\w.~-]+)+/?")
"""Words and paths that somebody set as a secret, and that answers have for other reasons."""
_CREDENTIALS = re.compile(r"(?<=://)[^\s/?#@'\"]+(?=@)")


# --- by name ----------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def secrecy(name: str) -> int:
    """Return 1 where a secret stands under a name, 2 where it may also be how many there are, else 0."""
    plain = re.sub(r"[\W_]", "", unicodedata.normalize("NFKC", name[:200]).lower())
    if plain not in _WHOLE and not _ANYWHERE.search(plain):
        return 0
    return 2 if _COUNTS.search(plain) else 1


def is_hidden(name: str, item: Any) -> bool:
    """Return whether what stands under a name is a secret: not where it says that there is none, or counts."""
    if item is None or isinstance(item, bool) or (isinstance(item, str) and not item):
        return False
    found = secrecy(name)
    return found == 1 or (found == 2 and not isinstance(item, int | float))


def names_secret(item: Mapping[Any, Any]) -> bool:
    """Return whether an object is a secret's name and its value: `{"key": "apiKey", "value": …}`."""
    named = (item.get(key) for key in ("key", "name")) if "value" in item else ()
    return any(isinstance(name, str) and secrecy(name[:200]) for name in named)


def masked(arguments: dict[str, JsonValue], hidden: Collection[str] = ()) -> dict[str, JsonValue]:
    """Return values by name with `MASK` in the place of each secret; `hidden` are names of whole values."""
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
    return MASK if is_hidden(name, item) else _value(item)


def _value(item: Any) -> Any:
    if isinstance(item, dict):
        return {name: _shown(name, inner) for name, inner in _object(item).items()}
    return [_value(inner) for inner in item] if isinstance(item, list) else item


def _object(item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "value": MASK} if names_secret(item) and item.get("value") not in (None, "") else item


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


# --- by value ---------------------------------------------------------------------------------------------


def redacted(text: str, secrets: Collection[str]) -> str:
    """Return a text with `MASK` for each of the secrets: wherever it stands, but one that is `SHORT` only as a whole
    value: the whole text, in quotation marks, or after `=`, `:`, `Bearer` or `Basic`."""
    for secret in _longest_first(frozenset(secrets)):
        if len(secret) >= SHORT:
            for one in _spellings(secret):
                text = text.replace(one, MASK)
        elif secret in text:
            text = _whole(secret).sub(MASK, text)
    return text


def without_credentials(text: str) -> str:
    """Return a text with `MASK` for the name and password within each address that has some."""
    return _CREDENTIALS.sub(MASK, text)


def redacted_json(content: bytes, secrets: frozenset[str]) -> bytes:
    """Return JSON, or text, with `MASK` for each of the secrets, in each spelling of them.

    What is short, a plain word or a path stays: who wrote it cannot be known. Quick where there is none.
    """
    for form in _forms(secrets):
        if form in content:
            content = content.replace(form, MASK.encode())
    return content


def restored(edited: JsonValue, stored: Sequence[JsonValue], secrets: frozenset[str]) -> JsonValue:
    """Return a document that somebody edited, who was shown a `stored` one through `redacted_json`: what is still as it
    was shown, in the same place, is what is stored. Items of lists with an `id` have their place by that and their
    `type`, others by their number where none was added or taken away.

    Raises `InvalidInput` with the place of a mask that stands for nothing there: no secret gets to another place.
    """
    return _kept(edited, stored, _Shown(stored, secrets), "$") if has_mask(edited) else edited


def has_mask(document: JsonValue) -> bool:
    """Return whether `MASK` stands in a text of a document, or in a key."""
    if isinstance(document, dict):
        return any(MASK in key or has_mask(item) for key, item in document.items())
    if isinstance(document, list):
        return any(map(has_mask, document))
    return isinstance(document, str) and MASK in document


class _Shown:
    """What readers of documents are shown of the texts in them."""

    def __init__(self, documents: Iterable[JsonValue], secrets: frozenset[str]) -> None:
        self._secrets = _recognised(secrets)
        self.masked = {shown for text in _texts(documents) if (shown := self.of(text)) != text}

    def of(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text


def _texts(items: Iterable[JsonValue]) -> Iterator[str]:
    for item in items:
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict | list):
            yield from _texts(item.values() if isinstance(item, dict) else item)


def _kept(edited: JsonValue, stored: Sequence[JsonValue], shown: _Shown, where: str) -> JsonValue:
    if isinstance(edited, str):
        before = [text for text in stored if isinstance(text, str)]
        for text in before if MASK in edited else ():
            if edited in (text, shown.of(text)):
                return text
        is_moved = edited in shown.masked or any(shown.of(text) != text for text in before)
        if edited == MASK or (MASK in edited and is_moved):
            raise InvalidInput(f"{where} has {MASK}, which keeps a secret only where it was: give the value itself")
        return edited
    if isinstance(edited, dict):
        known = [item for item in stored if isinstance(item, dict)]
        if new := next((key for key in edited if MASK in key and not any(key in item for item in known)), None):
            raise InvalidInput(f"{where} has the key {new}, in which {MASK} stands for a secret: give the key itself")
        return {
            key: _kept(item, [one[key] for one in known if key in one], shown, f"{where}.{key}")
            for key, item in edited.items()
        }
    if isinstance(edited, list):
        same = [dict(zip(_places(item), item, strict=True)) for item in stored if isinstance(item, list)]
        return [
            _kept(item, [one.pop(place) for one in same if place in one], shown, f"{where}[{index}]")
            for index, (place, item) in enumerate(zip(_places(edited), edited, strict=True))
        ]
    return edited


def _places(items: list[JsonValue]) -> list[tuple[object, ...]]:
    """Return where each item of a list stands, whatever their order where they have ids."""
    ids = [(item.get("id"), str(item.get("type"))) if isinstance(item, dict) else (None, "") for item in items]
    return [one if isinstance(one[0], str) else (number, len(items)) for number, one in enumerate(ids)]


def secrets_of(item: SettingItem, value: Any) -> Iterator[str]:
    """Yield the texts and numbers that are secret in a value: itself, or those within a `json` value. In the place of
    the name of an environment variable (`api_key_env`, `{"env": NAME}`) it is what stands in that."""
    keys = item.secret_keys or ()
    if item.is_secret:
        yield from _leaves(value)
    elif isinstance(value, list):
        for inner in value:
            yield from secrets_of(item, inner)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key.removesuffix("_env") in keys and key not in keys:
                yield from _leaves({"env": inner})
            else:
                yield from _leaves(inner) if key in keys else secrets_of(item, inner)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and value.keys() == {"env"} and isinstance(value["env"], str):
        value = os.environ.get(value["env"])
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    elif value not in (None, "") and not isinstance(value, bool):
        yield str(value)
        yield from (
            str(value).removeprefix(scheme) for scheme in ("Bearer ", "Basic ") if str(value).startswith(scheme)
        )


def short_note(secrets: Iterable[str]) -> str:
    """Return the warning to the operator about secrets of which some are `SHORT`, or ""."""
    lengths = [len(secret) for secret in secrets if 0 < len(secret) < SHORT]
    if not lengths:
        return ""
    return (
        f"The secret is short ({min(lengths)} of at least {SHORT} characters): it is masked where it is a whole value, "
        "not within texts. Use a longer one."
    )


@lru_cache(maxsize=16)
def _longest_first(secrets: frozenset[str]) -> tuple[str, ...]:
    return tuple(sorted(filter(None, secrets), key=lambda one: (-len(one), one)))


@lru_cache(maxsize=256)
def _whole(secret: str) -> re.Pattern[str]:
    whole, before = re.escape(secret), r"(?:(?<=['\"`=:])|(?<=[=:] )|(?<=[Bb]earer )|(?<=[Bb]asic ))"
    return re.compile(rf"\A{whole}\Z|{before}{whole}(?=['\"`&;,.\s)]|\Z)(?!\.\w)")


@lru_cache(maxsize=256)
def _spellings(secret: str) -> tuple[str, ...]:
    """Return how others write a secret, the longest first: in Python, in an address, on a page, in base64, and each of
    these in JSON and in JSON within JSON."""
    from base64 import b64encode, urlsafe_b64encode
    from html import escape
    from urllib.parse import quote, quote_plus

    raw = secret.encode("utf-8", "replace")
    bare = [secret, repr(secret)[1:-1], ascii(secret)[1:-1], escape(secret)]
    bare += [quote(raw), quote(raw, safe=""), quote_plus(raw)]
    bare += [b64encode(raw).decode().rstrip("="), urlsafe_b64encode(raw).decode().rstrip("=")]
    found = {one for text in bare for once in _in_json(text) for one in (once, *_in_json(once))} | {*bare}
    return tuple(sorted(found, key=lambda one: (-len(one), one)))


def _in_json(text: str) -> tuple[str, str]:
    return json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]


@lru_cache(maxsize=16)
def _recognised(secrets: frozenset[str]) -> tuple[str, ...]:
    """Return the secrets that are known in an answer wherever they stand."""
    return tuple(one for one in _longest_first(secrets) if len(one) >= SHORT and not _ORDINARY.fullmatch(one))


@lru_cache(maxsize=16)
def _forms(secrets: frozenset[str]) -> tuple[bytes, ...]:
    known = _recognised(secrets)
    return tuple(dict.fromkeys(form.encode("utf-8", "replace") for one in known for form in _spellings(one)))
