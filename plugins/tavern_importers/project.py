"""A whole project as one file: what is in its folder, without what runs left, without secrets and without settings; and
its import into another project, of which nothing is replaced that nobody asked for.

`tavern backup` writes what the operator decided and what people said as well; this is what one hands to others.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import Any, TypeVar

from pydantic import JsonValue

from tavern_host import PluginContext, __version__, clock
from tavern_host.common.redaction import masked
from tavern_host.context import Project
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.documents import read_document, read_model, wire_json
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.settings import MASK
from tavern_host.storage.confined_fs import confined_folder, reason_of, replace_file, stat_file
from tavern_host.storage.files import make_folder, write_atomic
from tavern_host.storage.open_folder import StillLocked
from tavern_importers.api.importers import MAX_FILE, ImportedThing, ImportReport, ImportRequest
from tavern_importers.api.projects import ProjectArchive, ProjectPart
from tavern_importers.folders import is_inside, is_left_out, paths_in

T = TypeVar("T")

PROJECT_FILE = "tavern.yaml"
MAX_FILES = 5_000
REPLACED, KEPT_SETS = "replaced", 10
"""The folder within `.tavern` with what imports have replaced, and of how many imports it has that."""
_WRITER_SECONDS = 5.0
_TOO_LARGE = (
    f"the file of a project holds {MAX_FILE >> 20} MiB and {MAX_FILES:,} files at most: leave parts out, such as "
    "files/; `tavern backup` writes any size"
)
_ARCHIVE = re.compile(rb'\s*\{\s*"format"\s*:\s*"tavern-project"')
_PAGES = {"workflows": "/workflows/", "agents": "/agents/", "panels": "/panels/"}
_MASKED = {
    "workflows": ("nodes",),
    "agents": ("core_deliberation_workflow_id",),
    "panels": ("elements", "published"),
    "triggers": ("kind", "config"),
}
"""The folders whose files may hold secrets, and by which keys such a file is known where a plugin has it elsewhere."""
_SHOWN = 8
_MOST_SETTINGS = 2**18


# --- what goes out ----------------------------------------------------------------------------------------


def parts_of(project: Project) -> list[ProjectPart]:
    """Return the files of a project's folder, by its first folders. Blocking."""
    found: dict[str, ProjectPart] = {}
    for path, file in paths_in(project.root):
        part = found.get(_part(path)) or ProjectPart(name=_part(path))
        size = part.bytes + file.stat().st_size
        found[part.name] = part.model_copy(update={"files": part.files + 1, "bytes": size})
    return sorted(found.values(), key=lambda one: one.name)


async def exported(context: PluginContext, parts: Sequence[str], call: CallContext) -> ProjectArchive:
    """Return a project's files, those of some parts or all, without secrets, once the audit log has it. Raises
    `InvalidInput`, also for a part that is not there, and `ServiceUnavailable`."""
    found = await asyncio.to_thread(_archive_of, context.project, parts)
    about: dict[str, JsonValue] = {"files": len(found.files), "parts": [*parts]}
    await recorded(context, "project.exported", context.project.name, about, call)
    return found


def _archive_of(project: Project, parts: Sequence[str]) -> ProjectArchive:
    known = [one.name for one in parts_of(project)] if parts else []
    if (missing := next((part for part in parts if part not in known), None)) is not None:
        raise InvalidInput(f"there is no folder {missing!r:.200} in the project{did_you_mean(missing, known)}")
    files: dict[str, JsonValue] = {}
    left = MAX_FILE - 4096
    for path, file in paths_in(project.root):
        if parts and _part(path) not in parts and path != PROJECT_FILE:
            continue
        try:
            if not _part(path) and _is_archive(file):  # each one would hold all before it
                continue
            if not _is_path(path):
                mend = "rename it, or leave its part out"
                raise InvalidInput(f"{path!r:.200} is no path that another host takes: {mend}")
            if file.stat().st_size > left or len(files) >= MAX_FILES:
                raise InvalidInput(_TOO_LARGE)
            content = _shown(path, file.read_bytes())
        except FileNotFoundError:  # it is gone since it was listed
            continue
        left -= len(json.dumps(content, ensure_ascii=False).encode()) + len(path.encode()) + 8
        if left < 0:
            raise InvalidInput(_TOO_LARGE)
        files[path] = content
    return ProjectArchive(name=project.name, version=__version__, made_at=clock.now(), files=files)


def _is_archive(file: Path) -> bool:
    with file.open("rb") as opened:
        return _ARCHIVE.match(opened.read(200)) is not None


def _part(path: str) -> str:
    return path.partition("/")[0] if "/" in path else ""


def _is_path(path: str) -> bool:
    """Return whether a path is one of a project. In another case `tavern.yaml` is the same file on some systems."""
    return is_inside(path) and not is_left_out(path) and (path == PROJECT_FILE or path.casefold() != PROJECT_FILE)


def _shown(path: str, data: bytes) -> Any:
    if path == PROJECT_FILE:
        return _without_settings(data)
    if path.endswith(".json") and (_part(path) in _MASKED or _part(path) == "plugins"):
        kind = next((one for one in path.split("/")[:-1] if one in _MASKED), None)
        try:
            document = wire_json(read_document(data, name=path), path)  # as its plugin reads it: it may have comments
        except InvalidInput as error:
            if kind is not None:
                mend = f"mend it, or leave out {_part(path)}/: secrets in it could not be masked"
                raise InvalidInput(f"{error.message}; {mend}") from None
        else:
            kind = kind or next((one for one, marks in _MASKED.items() if all(map(document.__contains__, marks))), None)
            if kind is not None and ((hidden := _masked(kind, document)) != document or not _is_all(data)):
                return json.dumps(hidden, ensure_ascii=False, indent=2)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _masked(kind: str, document: dict[str, Any]) -> dict[str, Any]:
    from tavern_panels.api.redaction import masked_panel
    from tavern_workflows.api.redaction import masked_document

    return {"workflows": masked_document, "panels": masked_panel}.get(kind, masked)(document)


def _is_all(data: bytes) -> bool:
    """Return whether a file says no more than its document: it has no comments, and no name twice in an object."""
    try:
        json.loads(data, object_pairs_hook=_once)
    except ValueError:
        return False
    return True


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError
    return found


def _without_settings(data: bytes) -> str:
    """Return a project's description of itself, with the names of its settings."""
    found = _project_file(data)
    if settings := _settings_in(data):
        found["settings"] = dict.fromkeys(settings, MASK)
    return json.dumps(found, ensure_ascii=False, indent=2, default=str) if found else ""  # which is YAML too


# --- what comes in ----------------------------------------------------------------------------------------


async def take(request: ImportRequest, context: PluginContext) -> ImportReport:
    """Write the files of a project into this one."""
    files = _files(request)
    settings = _settings_in(files.pop(PROJECT_FILE, b""))
    if not files:
        raise InvalidInput(f"{request.file.name} is a {PROJECT_FILE} alone: import its folder, or an archive of that")
    wanted = {path: data for path, data in files.items() if _is_wanted(path, request.options.only)}
    states = await asyncio.to_thread(_compared, context.project.root, wanted)
    replaces = request.options.replace
    written = {path: wanted[path] for path, state in states.items() if state == "new" or (state, replaces) == _OTHER}
    if not request.options.dry_run:
        about: dict[str, JsonValue] = {"files": len(written), "replaced": sum(states[one] != "new" for one in written)}
        await recorded(context, "project.imported", request.file.name, about, request.call)
        await asyncio.to_thread(_write, context.project, written)
    things = [_thing(path, state, replaces=replaces) for path, state in sorted(states.items())]
    return ImportReport(things=things, **_notes(written, settings, len(files) - len(wanted)))


_OTHER = ("other", True)


async def recorded(
    context: PluginContext, action: str, subject: str, details: Mapping[str, JsonValue], call: CallContext
) -> None:
    """Return once the audit log has it that a project leaves or comes. Raises `ServiceUnavailable`."""
    number = context.audit.record(action, subject=subject, details=details, call=call)
    await context.audit.written(number)


def _files(request: ImportRequest) -> dict[str, bytes]:
    """Return the files by their paths. Raises `InvalidInput` for one that leads elsewhere, and for what is no file."""
    if request.kind == "project-folder":
        if request.file.name != PROJECT_FILE:
            raise InvalidInput(f"{request.file.name} holds what a {PROJECT_FILE} does: import the folder of a project")
        return _checked({**request.file.beside, PROJECT_FILE: request.file.content}, request.file.name)
    archive = read_model(ProjectArchive, request.object(), request.file.name)
    if len(archive.files) > MAX_FILES:
        raise InvalidInput(f"{request.file.name} holds more than {MAX_FILES:,} files")
    return {path: _content(path, one) for path, one in _checked(archive.files, request.file.name).items()}


def _checked(files: dict[str, T], name: str) -> dict[str, T]:
    if (path := next((one for one in files if not _is_path(one)), None)) is not None:
        raise InvalidInput(f"{name} holds the path {path!r:.200}, which leads out of it or is none of a project")
    return files


def _content(path: str, content: JsonValue) -> bytes:
    with suppress(ValueError):
        if isinstance(content, str):
            return content.encode()
        if isinstance(content, dict) and isinstance(text := content.get("base64"), str):
            return base64.b64decode(text, validate=True)
    raise InvalidInput(f"{path} is to be a text, or an object with its bytes as base64")


def _is_wanted(path: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(path, one) for one in patterns)


def _project_file(content: bytes) -> dict[str, Any]:
    import yaml

    try:
        found = yaml.safe_load(content[:_MOST_SETTINGS])
    except (yaml.YAMLError, RecursionError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _settings_in(content: bytes) -> list[str]:
    return sorted(map(str, found)) if isinstance(found := _project_file(content).get("settings"), dict) else []


def _compared(root: Path, files: Mapping[str, bytes]) -> dict[str, str]:
    """Return for each file whether it is new, the same or another one. Raises `InvalidInput` where none can be."""
    states: dict[str, str] = {}
    for path, data in files.items():
        *steps, name = PurePosixPath(path).parts
        try:
            with confined_folder(root, steps) as folder:
                about = stat_file(folder, name)
                if about is None:
                    states[path] = "new"
                    continue
                if not S_ISREG(about.st_mode):
                    raise InvalidInput(f"{path} is a file in it, and a folder or link here")
                same = about.st_size == len(data) and (root / path).read_bytes() == data
                states[path] = "same" if same else "other"
        except FileNotFoundError:
            states[path] = "new"
        except OSError as error:
            raise InvalidInput(f"{path} cannot be written here: {reason_of(error)}") from None
    for path in files:
        if above := next((str(one) for one in PurePosixPath(path).parents if str(one) in files), ""):
            raise InvalidInput(f"{above} is a file and a folder in it")
    return states


def _write(project: Project, files: Mapping[str, bytes]) -> None:
    """Write files, each at once or not at all; what was there before is copied aside first. An import that was killed
    is made whole by the same one once more."""
    aside = project.private / REPLACED / clock.now().strftime("%Y%m%dT%H%M%S%fZ")
    for path, data in files.items():
        *steps, name = PurePosixPath(path).parts
        try:
            with confined_folder(project.root, steps, make=True) as folder, folder.locked(_WRITER_SECONDS):
                if stat_file(folder, name) is not None:
                    make_folder((aside / path).parent)
                    write_atomic(aside / path, (project.root / path).read_bytes(), mode=0o600)
                replace_file(folder, name, data, overwrite=True)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
                raise
            raise InvalidInput(f"{path} cannot be written here: {reason_of(error)}") from None
        except StillLocked as error:
            raise InvalidInput(f"{path} cannot be written now: {error}") from None
    for old in sorted(aside.parent.glob("*"))[:-KEPT_SETS]:
        shutil.rmtree(old, ignore_errors=True)


def _thing(path: str, state: str, *, replaces: bool) -> ImportedThing:
    part = _part(path)
    page = f"{_PAGES[part]}{path.partition('/')[2].removesuffix('.json')}" if part in _PAGES else ""
    shown: Any = state if state != "other" else ("replaced" if replaces else "kept")
    return ImportedThing(kind=part or "file", id=path, page=page if path.endswith(".json") else "", state=shown)


def _notes(written: Mapping[str, bytes], settings: Sequence[str], left: int) -> dict[str, list[str]]:
    without = [f"settings of the project stay as they are here ({_few(settings)})"] if settings else []
    if left:
        without.append(f"{left:,} files that were not chosen")
    steps = []
    if hidden := sorted(path for path, data in written.items() if MASK.encode() in data):
        steps.append(f"write again what stands as {MASK} in {_few(hidden)}: secrets do not leave a host")
    if plugins := sorted({path.split("/")[1] for path in written if _part(path) == "plugins" and path.count("/") > 1}):
        steps.append(f"look at the plugins, and grant what they ask for ({_few(plugins)}): tavern plugins list")
    if any(_part(path) == "triggers" for path in written):
        steps.append("switch on those of its triggers that are to fire: tavern triggers list")
    return {"without_effect": without, "next_steps": steps}


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
