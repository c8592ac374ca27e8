"""Reads a database of advisories in the format OSV, one record at a time, and keeps those of installed packages.

Blocking, and meant for a thread: a database has some hundred thousand records.
"""

from __future__ import annotations

import json
import time
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from tavern_host.contracts.errors import Misconfigured
from tavern_operations.advisories.installed import Installed
from tavern_operations.advisories.versions import KEYS, in_events
from tavern_operations.api.advisories import Advisory

MAX_RECORD = 16 << 20
MAX_FILE = 1 << 30
"""Bytes of one record, and of a file with many."""
_PAUSE_EVERY = 200


@dataclass
class Comparison:
    """What a comparison found, how many records were read, and what could not be (`skipped`)."""

    found: list[Advisory] = field(default_factory=list)
    records: int = 0
    skipped: list[str] = field(default_factory=list)


def compare(database: Path, installed: Collection[Installed]) -> Comparison:
    """Return the advisories about what is installed. Raises `Misconfigured` where there is no database or none of its
    files holds a record: then nothing can be said."""
    database = database.expanduser()
    if not database.exists():
        raise Misconfigured(f"there is no database of advisories {database}")
    wanted: dict[tuple[str, str], list[Installed]] = {}
    for package in installed:
        wanted.setdefault((package.ecosystem, package.key), []).append(package)
    result = Comparison()
    try:
        for name, text in _texts(database, result):
            try:
                for record in _records(name, text):
                    result.records += 1
                    result.found += _matching(record, wanted)
                    if result.records % _PAUSE_EVERY == 0:
                        time.sleep(0.001)  # lets the other threads of a server run
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                result.skipped.append(f"{name}: {type(error).__name__}: {error}"[:200])
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise Misconfigured(f"the advisories {database} cannot be read: {error}") from None
    if not result.records:
        why = f"; {result.skipped[0]}" if result.skipped else ""
        raise Misconfigured(f"{database} has no advisories in the format OSV (.json, .jsonl or .zip){why}")
    result.found = _merged(result.found)
    return result


def _texts(path: Path, result: Comparison) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file in a database."""
    if path.is_dir():
        for inner in sorted(path.rglob("*")):
            if inner.suffix in (".json", ".jsonl", ".zip") and inner.is_file():
                yield from _texts(inner, result)
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if entry.filename.endswith((".json", ".jsonl")):
                    with archive.open(entry) as opened:
                        data = opened.read(MAX_RECORD + 1)
                    if len(data) > MAX_RECORD:
                        result.skipped.append(f"{entry.filename}: it has more than {MAX_RECORD >> 20} MiB")
                    else:
                        yield entry.filename, data
    else:
        if path.stat().st_size > MAX_FILE:
            raise OSError(f"it has more than {MAX_FILE >> 20} MiB")
        yield path.name, path.read_bytes()


def _records(name: str, text: bytes) -> Iterator[dict[str, Any]]:
    """Yield the records of a file: one, a list of them, those under `vulns`, or one on each line."""
    if name.endswith(".jsonl"):
        for line in text.splitlines():
            if line.strip():
                yield from _checked(json.loads(line))
        return
    data = json.loads(text)
    if isinstance(data, dict) and isinstance(data.get("vulns"), list):
        data = data["vulns"]
    for one in data if isinstance(data, list) else [data]:
        yield from _checked(one)


def _checked(record: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(record, dict) or not isinstance(record.get("id"), str):
        raise ValueError("a record is an object with an `id`")
    yield record


def _matching(record: dict[str, Any], wanted: Mapping[tuple[str, str], list[Installed]]) -> Iterator[Advisory]:
    if record.get("withdrawn"):
        return
    for affected in record.get("affected") or []:
        package = affected.get("package") or {}
        ecosystem, name = str(package.get("ecosystem", "")).partition(":")[0], str(package.get("name", ""))
        key = canonicalize_name(name) if ecosystem == "PyPI" else name
        for installed in wanted.get((ecosystem, key), ()):
            if _affects(affected, installed):
                yield Advisory(
                    id=record["id"],
                    aliases=[str(alias) for alias in record.get("aliases") or []],
                    ecosystem=ecosystem,
                    package=installed.name,
                    version=installed.version,
                    fixed=_fixed(affected),
                    severity=_severity(record, affected),
                    summary=str(record.get("summary") or record.get("details") or "").partition("\n")[0][:300],
                    place=installed.place,
                )


def _affects(affected: dict[str, Any], installed: Installed) -> bool:
    """Return whether a version is one of those named, or in a range. What is no version of its ecosystem is only looked
    for among those named."""
    key = KEYS[installed.ecosystem]
    named = affected.get("versions") or []
    if installed.version in named:
        return True
    try:
        here = key(installed.version)
    except ValueError:
        return False
    ranges = [one for one in affected.get("ranges") or [] if one.get("type") in ("ECOSYSTEM", "SEMVER")]
    if any(in_events(installed.version, one.get("events") or [], key) for one in ranges):
        return True
    return any(_same(here, text, installed.ecosystem) for text in named)


def _same(here: Any, text: Any, ecosystem: str) -> bool:
    try:
        return bool(KEYS[ecosystem](str(text)) == here)
    except ValueError:
        return False


def _fixed(affected: dict[str, Any]) -> list[str]:
    ranges = (one for one in affected.get("ranges") or [] if one.get("type") in ("ECOSYSTEM", "SEMVER"))
    events = (event for one in ranges for event in one.get("events") or [])
    return list(dict.fromkeys(str(event["fixed"]) for event in events if "fixed" in event))


def _severity(record: dict[str, Any], affected: dict[str, Any]) -> str:
    for place in (
        record.get("database_specific"),
        affected.get("ecosystem_specific"),
        affected.get("database_specific"),
    ):
        if isinstance(place, dict) and isinstance(place.get("severity"), str):
            return str(place["severity"]).lower()
    scores = [*(affected.get("severity") or []), *(record.get("severity") or [])]
    return str(scores[0].get("score", "")) if scores else ""


def _merged(found: list[Advisory]) -> list[Advisory]:
    """Return advisories in order, each once where databases have it under several names."""
    kept: list[Advisory] = []
    for one in sorted(found, key=lambda each: (each.place, each.package, not each.severity, each.id)):
        names = {one.id, *one.aliases}
        about = (one.place, one.ecosystem, one.package, one.version)
        same = next(
            (
                other
                for other in kept
                if (other.place, other.ecosystem, other.package, other.version) == about
                and names & {other.id, *other.aliases}
            ),
            None,
        )
        if same is None:
            kept.append(one)
            continue
        same.aliases[:] = sorted((names | set(same.aliases)) - {same.id})
        same.fixed[:] = list(dict.fromkeys([*same.fixed, *one.fixed]))
    return kept
