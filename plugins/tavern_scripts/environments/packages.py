"""`package.json` and its lock: only names and ranges of versions. What names a place to install from, or runs something
while it is installed, is refused; nothing is installed here."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tavern_scripts.environments.refusals import line_of, refuse

MOST_PACKAGES = 500
MOST_LOCKED = 20_000

_NAME = re.compile(r"(?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-zA-Z0-9~_-][a-zA-Z0-9._~-]*")
_RANGE = re.compile(r"[0-9A-Za-z.^~<>=|*+ -]{0,256}")
_INTEGRITY = re.compile(r"(?:sha(?:1|256|384|512)-[A-Za-z0-9+/=]{16,128}\s?)+")
_HOOKS = ("preinstall", "install", "postinstall", "prepublish", "preprepare", "prepare", "postprepare", "dependencies")
_FORBIDDEN = {
    "workspaces": "workspaces are not installed; name packages of the registry",
    "bundleDependencies": "bundled packages are not installed; name packages of the registry",
    "bundledDependencies": "bundled packages are not installed; name packages of the registry",
    "patchedDependencies": "packages are installed as the registry has them, without patches",
}
_RUNNING = {
    "trustedDependencies": "nothing runs while packages are installed; take it out",
    "gypfile": "nothing is compiled while packages are installed; take it out",
}
_DEPENDENCIES = ("dependencies", "optionalDependencies", "peerDependencies")
_LOCK_FIELDS = (
    *("name", "version", "resolved", "integrity", "optional", "dev", "devOptional", "peer", "engines", "os", "cpu"),
    *("libc", *_DEPENDENCIES, "peerDependenciesMeta", "hasShrinkwrap"),
)


@dataclass(frozen=True)
class Packages:
    """What is to be installed: a `package.json` rewritten with nothing but what was checked, and its lock."""

    package: str
    lock: str | None = None
    is_empty: bool = False


def read_package(text: str, source: str, *, scripts: bool = False) -> Packages:
    """Return the dependencies of a `package.json`; `scripts`: packages may run something while they are installed.

    Raises `Refused` naming the line.
    """
    table = _json(text, source)
    for name, problem in {**_FORBIDDEN, **({} if scripts else _RUNNING)}.items():
        if table.get(name):
            raise refuse(source, problem, line=line_of(text, f'"{name}"'), text=name)
    hooks = table.get("scripts", {})
    for name in hooks if isinstance(hooks, dict) else ():
        if name in _HOOKS and not scripts:
            raise refuse(
                source,
                "nothing runs while packages are installed; take this script out",
                line=line_of(text, f'"{name}"'),
                text=name,
            )
    kept: dict[str, Any] = {"name": "script", "version": "0.0.0", "private": True}
    for group in _DEPENDENCIES:
        if wanted := _ranges(table.get(group, {}), group, text, source):
            kept[group] = wanted
    for group in ("overrides", "resolutions"):
        if (value := table.get(group)) is not None:
            kept[group] = _overrides(value, group, text, source, 0)
    if scripts and isinstance(table.get("trustedDependencies"), list):
        kept["trustedDependencies"] = [name for name in table["trustedDependencies"] if isinstance(name, str)]
    return Packages(json.dumps(kept, sort_keys=True), is_empty=not any(kept.get(group) for group in _DEPENDENCIES))


def read_lock(text: str, source: str, hosts: Collection[str]) -> str:
    """Return a `package-lock.json` rewritten with what was checked; packages may only lie on `hosts`.

    Raises `Refused`.
    """
    table = _json(text, source)
    if table.get("lockfileVersion") not in (2, 3) or not isinstance(table.get("packages"), dict):
        raise refuse(source, "it must be of version 2 or 3; regenerate it with npm 7 or newer")
    if len(table["packages"]) > MOST_LOCKED:
        raise refuse(source, f"it has more than {MOST_LOCKED:,} packages")
    packages: dict[str, Any] = {}
    for place, entry in table["packages"].items():
        if not isinstance(entry, dict):
            raise refuse(source, "a package must be an object", line=line_of(text, json.dumps(place)), text=place)
        packages[place] = _own(entry) if place == "" else _locked(place, entry, text, source, hosts)
    version = table["lockfileVersion"]
    return json.dumps({"name": "script", "version": "0.0.0", "lockfileVersion": version, "packages": packages})


def _own(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": "script", "version": "0.0.0", **{group: entry[group] for group in _DEPENDENCIES if group in entry}}


def _locked(place: str, entry: dict[str, Any], text: str, source: str, hosts: Collection[str]) -> dict[str, Any]:
    line = line_of(text, json.dumps(place, ensure_ascii=False))
    parts = place.split("node_modules/")
    if parts[0] != "" or not all(_NAME.fullmatch(part.removesuffix("/")) for part in parts[1:]) or len(parts) < 2:
        raise refuse(source, "packages are installed below node_modules only", line=line, text=place)
    if entry.get("link") or entry.get("inBundle"):
        raise refuse(source, "links and bundled packages are not installed", line=line, text=place)
    if not isinstance(entry.get("version"), str) or not _RANGE.fullmatch(entry["version"]):
        raise refuse(source, "its version is no version", line=line, text=place)
    if not isinstance(entry.get("integrity"), str) or not _INTEGRITY.fullmatch(entry["integrity"]):
        raise refuse(source, "it has no integrity; regenerate the lock with npm", line=line, text=place)
    resolved = entry.get("resolved")
    if resolved is not None:
        address = urlsplit(resolved) if isinstance(resolved, str) else None
        if address is None or address.scheme not in ("http", "https") or address.netloc.lower() not in hosts:
            raise refuse(
                source, "packages come from the configured registry only", line=line, text=f"{place}: {resolved}"
            )
    if not _NAME.fullmatch(str(entry.get("name", "name"))):
        raise refuse(source, "it is no name of a package", line=line, text=place)
    return {name: entry[name] for name in _LOCK_FIELDS if name in entry}


def _ranges(value: object, group: str, text: str, source: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise refuse(source, f"{group} must be an object", line=line_of(text, f'"{group}"'))
    if len(value) > MOST_PACKAGES:
        raise refuse(source, f"{group} has {len(value):,} packages; at most {MOST_PACKAGES} are installed")
    for name, wanted in value.items():
        line = line_of(text, json.dumps(name, ensure_ascii=False), json.dumps(wanted, ensure_ascii=False))
        if not _NAME.fullmatch(name) or len(name) > 214 or name in ("node_modules", "favicon.ico"):
            raise refuse(source, "it is no name of a package", line=line, text=name)
        _check_range(name, wanted, line, source)
    return value


def _check_range(name: str, wanted: object, line: int | None, source: str) -> None:
    if not isinstance(wanted, str):
        raise refuse(source, "a version must be a text", line=line, text=name)
    range_ = wanted
    if wanted.startswith("npm:"):
        alias, _, range_ = wanted.removeprefix("npm:").rpartition("@")
        if not alias:
            alias, range_ = range_, ""
        if not _NAME.fullmatch(alias):
            raise refuse(source, "it is no alias such as npm:name@1.2", line=line, text=f"{name}: {wanted}")
    if not _RANGE.fullmatch(range_):
        raise refuse(
            source,
            "packages come from the registry only: a range of versions, no address, path or repository",
            line=line,
            text=f"{name}: {wanted}",
        )


def _overrides(value: object, group: str, text: str, source: str, depth: int) -> dict[str, Any]:
    if not isinstance(value, dict) or depth > 8 or len(value) > MOST_PACKAGES:
        raise refuse(source, f"{group} must be an object of reasonable size", line=line_of(text, f'"{group}"'))
    for name, wanted in value.items():
        line = line_of(text, json.dumps(name, ensure_ascii=False), json.dumps(wanted, ensure_ascii=False))
        plain = name if name == "." else re.sub(r"(?<=.)@[^@/]*$", "", name).rpartition("**/")[2]
        if plain != "." and not _NAME.fullmatch(plain):
            raise refuse(source, f"it is no name of a package in {group}", line=line, text=name)
        if isinstance(wanted, dict):
            _overrides(wanted, group, text, source, depth + 1)
        elif not (isinstance(wanted, str) and re.fullmatch(r"\$[@a-zA-Z0-9._/~-]+", wanted)):  # what is named above
            _check_range(name, wanted, line, source)
    return value


def _json(text: str, source: str) -> dict[str, Any]:
    try:
        table = json.loads(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        raise refuse(source, f"it is no JSON: {error.msg}", line=error.lineno) from None
    except (RecursionError, ValueError):
        raise refuse(source, "it is no JSON: it is nested too deeply, or a number is too large") from None
    if not isinstance(table, dict):
        raise refuse(source, "it must be an object")
    return table
