"""What a script gets of what it asks for: the part of its `securityContext` that the operator's policy allows. Pure: it
opens no file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import JsonValue

from tavern_host.contracts.errors import InvalidInput
from tavern_scripts.api.allowlist import covers, parse_pattern
from tavern_scripts.api.scripts import ScriptErrorType, SecurityContext
from tavern_scripts.results.refusal import Refused

CAPABILITIES = ("network", "write")
"""What a script may demand: all hosts that it asks for, or all folders to write to; else it is not run."""

MAX_PATTERNS = 200
"""How many patterns of one kind a script asks for at most."""

_SETTING = re.compile(r"\{([A-Za-z0-9_-]+)\}")
_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Reads:
    """What of its own folder a script may read, besides itself: all of it, or paths and patterns in there."""

    whole: bool = False
    paths: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Granted:
    """What a script gets. `writes` are folders, relative to the script's. `denied` says what it asked for beyond."""

    reads: Reads = Reads()
    writes: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()


def decide(
    asked: SecurityContext,
    *,
    hosts: Iterable[str],
    writes: Iterable[str],
    config: Mapping[str, JsonValue],
    has_folder: bool,
) -> Granted:
    """Return the part of `asked` that is granted; `hosts` and `writes` are the operator's patterns.

    A host may be `{key}`: the host of the address that the tool's setting `key` holds. Code that was handed over has no
    folder of its own, and writes nowhere but where every script may. Raises `Refused`, a `SecurityError`, where a
    capability is demanded that is unknown or not granted.
    """
    for name, patterns in (
        ("allowRead", asked.file_access.allow_read),
        ("allowWrite", asked.file_access.allow_write),
        ("allowHosts", asked.network_access.allow_hosts),
    ):
        if len(patterns) > MAX_PATTERNS:
            raise InvalidInput(
                f"securityContext: {name} has {len(patterns):,} entries; at most {MAX_PATTERNS} are possible"
            )
    denied: list[str] = []
    reads = _reads(asked, denied)
    folders = _writes(asked.file_access.allow_write, [*writes], has_folder, denied)
    before = len(denied)
    reached = _hosts(asked.network_access.allow_hosts, [*hosts], config, denied)
    _require(asked.required_capabilities, network=bool(reached) and len(denied) == before, denied=denied)
    return Granted(reads, folders, reached, tuple(denied))


def _reads(asked: SecurityContext, denied: list[str]) -> Reads:
    if "allow_read" not in asked.file_access.model_fields_set:
        return Reads(whole=True)
    whole, paths, patterns = False, list[str](), list[str]()
    for text in asked.file_access.allow_read:
        inner = inner_path(text)
        if inner is None:
            denied.append(f"read {text!r:.200}: only what is in the script's own folder can be read")
        elif inner == "":
            whole = True
        elif _WILD.search(inner):
            patterns.append(inner)
        elif inner != "self":
            paths.append(inner)
    return Reads(whole, tuple(dict.fromkeys(paths)), tuple(dict.fromkeys(patterns)))


def _writes(asked: list[str], allowed: list[str], has_folder: bool, denied: list[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    permitted = [inner for inner in map(inner_path, allowed) if inner is not None]
    for text in asked:
        inner = inner_path(text)
        if not has_folder:
            why = "code that was handed over has no folder of its own; write to the folder that TAVERN_OUTPUT names"
        elif inner is None:
            why = "only folders in the script's own folder can be written to"
        elif inner in ("", "self"):
            why = "a script's own folder stays as it is; name a folder in it, such as .cache/**"
        elif _WILD.search(inner):
            why = "only whole folders can be written to, such as .cache/**"
        elif not any(one in ("", inner) or inner.startswith(f"{one}/") for one in permitted):
            why = "the operator does not allow it (extensions.tavern-scripts.writablePaths)"
        else:
            found[inner] = None
            continue
        denied.append(f"write {text!r:.200}: {why}")
    return tuple(one for one in found if not any(one.startswith(f"{other}/") for other in found))


def inner_path(text: str) -> str | None:
    """Return the path in the script's folder that a pattern means: `""` for all of it, None for what is not in it.

    A folder's own wildcard at the end is left out: `.cache/**` is `.cache`.
    """
    if not text or len(text) > 500 or not text.isprintable() or text.startswith(("/", "~")) or "\\" in text:
        return None
    steps = [step for step in text.split("/") if step not in ("", ".")]
    if ".." in steps:
        return None
    while steps and steps[-1] in ("*", "**"):
        steps.pop()
    return "/".join(steps)


def _hosts(asked: list[str], allowed: list[str], config: Mapping[str, JsonValue], denied: list[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for text in asked:
        try:
            host = _named(text, config)
            granted = [] if host is None else _common(host, allowed)
        except InvalidInput as error:
            denied.append(f"host {text!r:.200}: {error.message}")
            continue
        if granted:
            found.update(dict.fromkeys(granted))
        elif host is not None:
            shown = host if host == text else f"{text} ({host})"
            denied.append(
                f"host {shown!r:.200}: the operator does not allow it (extensions.tavern-scripts.allowedHosts)"
            )
    return tuple(found)


def _named(text: str, config: Mapping[str, JsonValue]) -> str | None:
    """Return the host that is asked for; None where it is that of a setting without a value."""
    setting = _SETTING.fullmatch(text)
    if setting is None:
        return str(parse_pattern(text))
    address = config.get(setting[1])
    if address is None or address == "":
        return None
    try:
        parts = urlsplit(address if isinstance(address, str) else "")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or parts.scheme not in ("http", "https"):
        raise InvalidInput(f"the setting {setting[1]!r} holds no address such as https://example.com")
    host = f"[{host}]" if ":" in host else host
    return str(parse_pattern(host if port is None else f"{host}:{port}"))


def _common(asked: str, allowed: list[str]) -> list[str]:
    """Return the patterns that both sides allow: the narrower one of two that cover each other."""
    return [asked] if any(covers(one, asked) for one in allowed) else [one for one in allowed if covers(asked, one)]


def _require(capabilities: list[str], *, network: bool, denied: list[str]) -> None:
    unknown = [name for name in capabilities if name not in CAPABILITIES]
    if unknown:
        known = ", ".join(CAPABILITIES)
        raise Refused(
            ScriptErrorType.SECURITY,
            f"the script requires the capability {unknown[0]!r:.100}, which this host does not know; it knows {known}",
        )
    lacking = ("network" in capabilities and not network) or (
        "write" in capabilities and any(text.startswith("write ") for text in denied)
    )
    if lacking:
        raise Refused(
            ScriptErrorType.SECURITY,
            "the script requires more than the operator's policy grants it, and is not run",
            "\n".join(denied) or "it names no host",
        )
