"""From a script and what it is granted to the program that the sandbox runs. Reads folders, and runs nothing."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from tavern_host.contracts.errors import InvalidInput
from tavern_scripts.api.scripts import SandboxLaunch, SandboxMount, ScriptErrorType, ScriptGrants, ScriptLimits
from tavern_scripts.policy.languages import Interpreter
from tavern_scripts.policy.review import Granted, Reads
from tavern_scripts.results.refusal import Refused

SCRIPT = "/script"
"""Where a script's own folder is seen."""

OUTPUT = "/output"
"""What a script leaves here, the environment's TAVERN_OUTPUT, comes back as files of the project."""

FILES = "/files"
"""Where the files of the project are seen that a script may read, TAVERN_FILES."""

RUNNERS = "/tavern"
"""Where the host's own small programs are seen."""

RESULT = 3
"""The descriptor of the result's own channel, TAVERN_RESULT_FD."""

CONFIG = "TAVERN_CONFIG_"
"""How the names of a tool's settings begin in the environment."""

_RUNNER_FILES = Path(__file__).parent.parent / "runners"
_MOST_ENTRIES = 1_000
_PIECE = 64 << 10
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")


@dataclass(frozen=True)
class Places:
    """The folders of the host that one run is about; None for what it does not have. `kept` holds what the script was
    allowed to write in earlier runs."""

    script: Path
    output: Path
    kept: Path | None = None
    files: Path | None = None


@dataclass(frozen=True)
class Program:
    """What is run: the script's name in its folder, its arguments, and which function of it is called, if one is."""

    name: str
    arguments: tuple[str, ...] = ()
    entry_point: str | None = None
    channel: bool = False
    is_code: bool = False
    tool_id: str | None = None


@dataclass(frozen=True)
class RunExtras:
    """What the network and the environment of dependencies add."""

    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[SandboxMount] = ()
    prefix: Sequence[str] = ()
    interpreter: str | None = None
    proxy: str | None = None


def launch_of(
    program: Program,
    interpreter: Interpreter,
    places: Places,
    granted: Granted,
    limits: ScriptLimits,
    config: Mapping[str, JsonValue],
    extra: RunExtras,
) -> SandboxLaunch:
    """Return the program that the sandbox runs. Blocking. Raises `Refused`, `InvalidInput`."""
    mounts = [
        *script_mounts(places.script, program.name, granted, places.kept),
        SandboxMount(target=OUTPUT, source=str(places.output), mode="staged"),
        *extra.mounts,
    ]
    program_folder = "" if interpreter.inside else f"{Path(extra.interpreter or interpreter.program).parent}:"
    environment = {
        "PATH": f"{program_folder}/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TAVERN_OUTPUT": OUTPUT,
        **config_environment(config),
    }
    if places.files is not None:
        mounts.append(SandboxMount(target=FILES, source=str(places.files)))
        environment["TAVERN_FILES"] = FILES
    if program.tool_id is not None:
        environment["TAVERN_TOOL_ID"] = program.tool_id
    if program.channel:
        environment["TAVERN_RESULT_FD"] = str(RESULT)
    argv = interpreter.argv(limits.memory, extra.interpreter)
    if program.entry_point is not None:
        runner = "call.py" if interpreter.language == "python" else "call.mjs"
        mounts.append(SandboxMount(target=f"{RUNNERS}/{runner}", source=str(_RUNNER_FILES / runner)))
        argv += [f"{RUNNERS}/{runner}", f"{SCRIPT}/{program.name}", program.entry_point]
    else:
        argv.append(f"{SCRIPT}/{program.name}")
    return SandboxLaunch(
        argv=[*extra.prefix, *argv, *program.arguments],
        environment={**environment, **extra.environment},
        folder=OUTPUT if program.is_code else SCRIPT,
        mounts=mounts,
        limits=limits,
        proxy=extra.proxy,
        channel=program.channel,
        address_space=interpreter.address_space,
    )


def input_of(value: JsonValue, limits: ScriptLimits) -> bytes:
    """Return the bytes that a script reads from stdin. Raises `Refused` where they are too many."""
    try:
        data = json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the input of a script must be JSON: {error}") from None
    if len(data) > limits.input:
        message = f"the input has {len(data):,} bytes; a script is given at most {limits.input:,}"
        raise Refused(ScriptErrorType.RESOURCE, message)
    return data


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    """Yield data in pieces."""
    for at in range(0, len(data), _PIECE):
        yield data[at : at + _PIECE]


def config_environment(config: Mapping[str, JsonValue]) -> dict[str, str]:
    """Return a tool's settings as variables: `apiBase` is `TAVERN_CONFIG_API_BASE`; what is no text is JSON.

    Raises `InvalidInput` for two settings that would have one name.
    """
    found: dict[str, str] = {}
    for key, value in config.items():
        name = CONFIG + _WORDS.sub("_", key).strip("_").upper()
        if name == CONFIG or name in found:
            raise InvalidInput(f"the setting {key!r:.100} cannot be handed to a script as {name}: give it another key")
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if "\0" in text or not _is_text(text):
            raise InvalidInput(f"the setting {key!r:.100} holds a character that no environment can hold")
        found[name] = text
    return found


def grants_of(granted: Granted, name: str, files: Sequence[str]) -> ScriptGrants:
    """Return the paths and hosts that a script may reach, as they are seen inside."""
    reads = granted.reads
    inner = [f"{SCRIPT}/**"] if reads.whole else [f"{SCRIPT}/{one}" for one in (name, *reads.paths, *reads.patterns)]
    writes = [f"{SCRIPT}/{one}/**" for one in granted.writes]
    files_read = [f"{FILES}/{path}" for path in files]
    return ScriptGrants(read=[*inner, *files_read], write=[f"{OUTPUT}/**", *writes], hosts=[*granted.hosts])


def script_mounts(folder: Path, name: str, granted: Granted, kept: Path | None) -> list[SandboxMount]:
    """Return the mounts of a script's folder: what may be read, and in the place of each folder that may be written to,
    what earlier runs left there. The folder itself stays as it is."""
    writes = granted.writes if kept is not None else ()
    staged = [
        SandboxMount(target=f"{SCRIPT}/{one}", source=str(kept / one), mode="staged", filled=True)
        for one in writes
        if kept is not None
    ]
    if granted.reads.whole:
        return [*_seen(folder, "", writes), *staged]
    found: dict[str, SandboxMount] = {}
    for path in dict.fromkeys([name, *_allowed(folder, granted.reads)]):
        for mount in _seen(folder, path, writes):
            found.setdefault(mount.target, mount)
    return [*_outermost(found.values()), *staged]


def _allowed(folder: Path, reads: Reads) -> list[str]:
    """Return the paths of what may be read and is there."""
    found = [path for path in reads.paths if (folder / path).exists()]
    for pattern in reads.patterns:
        for path in sorted(folder.glob(pattern)):
            found.append(str(path.relative_to(folder)))
            if len(found) > _MOST_ENTRIES:
                raise _too_many(folder)
    return found


def _seen(folder: Path, path: str, writes: Sequence[str]) -> list[SandboxMount]:
    """Return the mounts for one path of a script's folder, and what is in it, without what is written to."""
    if path in writes or any(path.startswith(f"{one}/") for one in writes):
        return []
    source = folder / path
    real = os.path.realpath(source)
    if not Path(real).is_relative_to(folder):  # a link that leads out
        return []
    inner = [one for one in writes if not path or one.startswith(f"{path}/")]
    if not inner:
        return [SandboxMount(target=f"{SCRIPT}/{path}" if path else SCRIPT, source=real)]
    found: list[SandboxMount] = []
    try:
        names = sorted(inner.name for inner in Path(real).iterdir())
    except OSError:
        return []
    for name in names:
        found += _seen(folder, f"{path}/{name}" if path else name, writes)
        if len(found) > _MOST_ENTRIES:
            raise _too_many(folder)
    return found


def _outermost(mounts: Iterable[SandboxMount]) -> list[SandboxMount]:
    """Return the mounts without those that lie within another one."""
    kept: list[SandboxMount] = []
    for mount in sorted(mounts, key=lambda one: one.target):
        if not any(mount.target.startswith(f"{outer.target}/") for outer in kept):
            kept.append(mount)
    return kept


def _too_many(folder: Path) -> Refused:
    message = "the script's folder holds too much to be shown piece by piece; put the script into a folder of its own"
    return Refused(ScriptErrorType.SECURITY, message)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
