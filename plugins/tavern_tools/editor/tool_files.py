"""The provider of `toolFiles`: checks, tries out, writes and deletes the project's tool files."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

from pydantic import JsonValue

from tavern_host.common.redaction import has_mask
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    PermissionDenied,
    ServiceUnavailable,
    TavernError,
)
from tavern_host.contracts.settings import SETTINGS
from tavern_host.contracts.tools import ToolDefinition
from tavern_scripts.api.scripts import SCRIPT_EXECUTION, ScriptEnforced, ScriptLanguage
from tavern_tools import State
from tavern_tools.api.toolcalls import ToolCallRequest, ToolResult
from tavern_tools.api.toolfiles import (
    MAX_SOURCE,
    ToolDraft,
    ToolFile,
    ToolFileCheck,
    ToolFileProblem,
    ToolFiles,
    ToolSource,
)
from tavern_tools.api.tools import TOOL_MANAGER
from tavern_tools.builtin import project_folder
from tavern_tools.calls.results import failed
from tavern_tools.calls.script_tools import language_of, script_request
from tavern_tools.catalog.failures import ToolFailure
from tavern_tools.catalog.files import SUFFIX, missing_parts
from tavern_tools.editor.drafting import MAX_CODE, draft, read_python
from tavern_tools.editor.stored import Stored, ToolFolders, entry_point_of, steps_of, told, tool_id_of

_READERS = 2
"""How many texts of code are read at a time: each takes a process."""

_PROTOCOL = "try-out"


class ProjectTools(ToolFiles):
    """The tool files of the host's project."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._folders = ToolFolders(context.project.root)
        self._registry = context.own(State).registry
        self._turn = asyncio.Lock()
        self._reading = asyncio.Semaphore(_READERS)

    # --- reading ----------------------------------------------------------------------------------

    async def list_files(self) -> list[ToolFile]:
        """Return the tool files; see the interface."""
        return [stored.shown(whole=False) for stored in await asyncio.to_thread(self._folders.list)]

    async def get(self, name: str) -> ToolFile:
        """Return a tool file; see the interface."""
        return (await asyncio.to_thread(self._folders.read, name)).shown(whole=True)

    async def draft(self, code: str, language: ScriptLanguage, *, entry_point: str | None = None) -> ToolDraft:
        """Return the draft of a tool from its code; see the interface."""
        if entry_point is not None and not entry_point.isidentifier():
            raise InvalidInput(f"the entry point must be the name of a function, found {entry_point!r:.100}")
        async with self._reading:
            return await draft(code, language, entry_point)

    async def check(self, name: str, source: ToolSource) -> ToolFileCheck:
        """Return the findings about a source; see the interface."""
        stored, problems = await self._checked(name, source)
        is_right = not any(not problem.warning for problem in problems)
        enforced, denied = await self._enforced(stored) if is_right else (None, [])
        problems += denied
        return ToolFileCheck(ok=is_right, problems=problems, definition=stored.definition, enforced=enforced)

    # --- acting -----------------------------------------------------------------------------------

    async def try_out(
        self, name: str, source: ToolSource, arguments: dict[str, JsonValue], *, call: CallContext | None = None
    ) -> ToolResult:
        """Call a tool as it is in a source; see the interface."""
        stored, problems = await self._checked(name, source)
        definition = _usable(stored, problems)
        await self._context.services.get(TOOL_MANAGER).protocols()  # makes the manager
        manager = self._context.own(State).manager
        if manager is None or call is None:
            raise ServiceUnavailable("another plugin carries out the calls of tools here; save the tool to call it")
        request = ToolCallRequest(tool_id=definition.id, arguments=arguments, protocol=_PROTOCOL)
        once = definition.model_copy(update={"is_async": False, "cache": None, "rate_limit": None, "concurrency": None})
        try:
            tool = await self._registry.draft(once)
        except ToolFailure as failure:
            return failed(request, failure, ())
        is_in_file = stored.script is None or source.code is None or self._folders.code_of(stored.script) == source.code
        tried = replace(tool, draft=True, code=None if is_in_file else source.code)
        return await manager.try_out(tried, request, call)

    async def save(
        self, name: str, source: ToolSource, *, expected_revision: str | None = None, call: CallContext | None = None
    ) -> ToolFile:
        """Write a tool file and its script; see the interface."""
        if has_mask(edited := source.to_json()):
            files = await asyncio.to_thread(self._folders.list)
            kept = [file.to_json()["source"] for one in files if (file := one.shown(whole=True)).name == name]
            source = ToolSource.model_validate(await self._context.services.get(SETTINGS).restored(edited, kept))
        stored, problems = await self._checked(name, source)
        definition, steps = _usable(stored, problems), steps_of(name)
        async with self._turn:
            before: Stored | None = None
            with suppress(NotFound):
                before = await asyncio.to_thread(self._folders.read, name)
            _require(before, expected_revision, name)
            code = await asyncio.to_thread(self._code_to_write, stored, source.code, before)
            if before is None and (alike := await asyncio.to_thread(self._folders.spelled_alike, steps)) is not None:
                raise Conflict(f"the name {name!r} is too like that of {alike}: on some disks they are one file")
            await self._record("tool.saved", definition.id, name, stored, call, code is not None)
            await asyncio.to_thread(self._write, stored, code)
        self._context.events.publish("TOOLS_CHANGED", {})
        return (await self.get(name)).model_copy(update={"problems": problems})

    async def delete(
        self,
        name: str,
        *,
        with_script: bool = False,
        expected_revision: str | None = None,
        call: CallContext | None = None,
    ) -> None:
        """Delete a tool file; see the interface."""
        async with self._turn:
            stored = await asyncio.to_thread(self._folders.read, name)
            _require(stored, expected_revision, name)
            others = await asyncio.to_thread(self._folders.list) if with_script else []
            shared = any(one.name != stored.name and one.script == stored.script for one in others)
            script = stored.script if with_script and not shared and stored.code is not None else None
            await self._record("tool.deleted", tool_id_of(stored.document), name, stored, call, script is not None)
            await asyncio.to_thread(project_folder.delete, self._folders.tools, steps_of(name))
            if script is not None:
                await asyncio.to_thread(project_folder.delete, self._folders.scripts, script)
        self._context.events.publish("TOOLS_CHANGED", {})

    # --- checks -----------------------------------------------------------------------------------

    async def _checked(self, name: str, source: ToolSource) -> tuple[Stored, list[ToolFileProblem]]:
        """Return a source as it would be stored, and everything that is wrong with it."""
        name = "/".join(steps_of(name)).removesuffix(SUFFIX)
        stored = await asyncio.to_thread(self._folders.of, name, source.text, source.code)
        problems, definition = [told(problem) for problem in stored.problems], stored.definition
        if definition is None:
            return stored, problems
        catalog = await self._registry.catalog()
        for message in missing_parts(definition, catalog, (definition.id,)):
            problems.append(ToolFileProblem(message=message, location=["implementation"], warning=True))
        taken = await asyncio.to_thread(self._taken, definition, stored.name)
        owner = catalog.find(definition.id)
        if owner is not None and owner.definition.plugin is not None:
            taken = f"the plugin {owner.definition.plugin}"
        if taken is not None:
            message = f"the tool {definition.id!r} is defined by {taken} already; give this one another id"
            problems.append(ToolFileProblem(message=message, location=["id"]))
        problems += [*await self._of_script(stored, definition), *stored.lacking()]
        return stored, problems

    def _taken(self, definition: ToolDefinition, name: str) -> str | None:
        """Return which other file of the project defines this version of a tool."""
        same = (definition.id, definition.version)
        for other in self._folders.list():
            if other.name != name and (found := other.definition) is not None and (found.id, found.version) == same:
                return f"tools/{other.name}.tool.json"
        return None

    async def _of_script(self, stored: Stored, definition: ToolDefinition) -> list[ToolFileProblem]:
        path, entry = definition.implementation.script_path, entry_point_of(definition)
        if definition.kind != "script" or path is None:
            message = "it is the code of no script: name one as `implementation.scriptPath`, or send no code"
            return [ToolFileProblem(message=message, location=["code"])] if stored.code else []
        at: list[str | int] = ["implementation", "scriptPath"]
        if stored.script is None:
            message = "this path is none of a script in the project's folder scripts; write one such as greet.py"
            return [ToolFileProblem(message=message, location=at, warning=stored.code is None)]
        if stored.code is None:
            message = f"there is no script {path!r} yet, and no code for it"
            return [ToolFileProblem(message=message, location=at, warning=True)]
        is_python = (definition.implementation.language or language_of(path)) == "python"
        if not is_python or len(stored.code.encode(errors="replace")) > MAX_CODE:
            return []
        async with self._reading:
            found = await read_python(stored.code, entry)
        if "error" in found:
            where = {"line": found["line"], "column": found["column"]}
            return [ToolFileProblem(message=found["error"], location=["code"], warning=True, **where)]
        message = f"the code defines no function {entry!r}, which each call asks for"
        missing = ToolFileProblem(message=message, location=["implementation", "entryPoint"], warning=True)
        return [] if entry in (None, found.get("entryPoint")) else [missing]

    async def _enforced(self, stored: Stored) -> tuple[ScriptEnforced | None, list[ToolFileProblem]]:
        """Return the limits that the sandbox would enforce for a script tool, and a warning for each request denied."""
        definition = stored.definition
        if definition is None or definition.kind != "script" or not self._context.services.has(SCRIPT_EXECUTION):
            return None, []
        scripts, at = self._context.services.get(SCRIPT_EXECUTION), ["securityContext"]
        try:
            request = script_request(definition, {}, stored.code)
            denied = await scripts.denied(request.security_context)
            enforced = (await scripts.review(request)).model_copy(update={"denied": denied})
        except (ToolFailure, TavernError) as error:
            return None, [ToolFileProblem(message=error.message, location=[*at], warning=True)]
        return enforced, [
            ToolFileProblem(message=f"is not granted: {one}", location=[*at], warning=True) for one in denied
        ]

    # --- writing ----------------------------------------------------------------------------------

    def _code_to_write(self, stored: Stored, code: str | None, before: Stored | None) -> str | None:
        """Return the code that is to be written, None where its file has it. Raises `Conflict` where that would
        replace a script that the tool did not have before."""
        if code is None or stored.script is None:
            return None
        there = self._folders.code_of(stored.script)
        if there is not None and there != code and (before is None or before.script != stored.script):
            raise Conflict(f"scripts/{'/'.join(stored.script)} is there already; choose another path for the script")
        return None if there == code else code

    def _write(self, stored: Stored, code: str | None) -> None:
        if code is not None and stored.script is not None:  # first: a tool without its script cannot be called
            project_folder.write(self._folders.scripts, stored.script, _bytes(code), overwrite=True)
        project_folder.write(self._folders.tools, steps_of(stored.name), _bytes(stored.text), overwrite=True)

    async def _record(
        self, action: str, tool_id: str, name: str, stored: Stored, call: CallContext | None, script: bool
    ) -> None:
        """Have it in the audit log, on disk, before it is done. Raises `ServiceUnavailable` where that fails."""
        details: dict[str, JsonValue] = {"file": f"tools/{name}.tool.json", "revision": stored.revision}
        if script and stored.script is not None:
            details["script"] = "/".join(("scripts", *stored.script))
        audit = self._context.audit
        await audit.written(audit.record(action, subject=tool_id, details=details, call=call))


def _usable(stored: Stored, problems: list[ToolFileProblem]) -> ToolDefinition:
    """Return the tool of a source. Raises `InvalidInput` with all problems, `PermissionDenied` for a service's."""
    wrong: list[JsonValue] = [problem.to_json() for problem in problems if not problem.warning]
    if stored.definition is None or wrong:
        said = "; ".join(problem.message for problem in problems if not problem.warning)
        raise InvalidInput(f"the tool cannot be used: {said}", problems=wrong)
    _require_ours(stored)
    return stored.definition


def _require_ours(stored: Stored) -> None:
    """Raise `PermissionDenied` for a tool that only the operator writes."""
    if stored.kind == "service":
        raise PermissionDenied("a tool that calls a method of a service is the operator's to write, as a file")


def _require(before: Stored | None, expected: str | None, name: str) -> None:
    """Raise `Conflict` where another revision is stored than the one that is expected, `PermissionDenied` for a tool
    that is not edited."""
    if before is not None:
        _require_ours(before)
    revision = before.revision if before is not None else ""
    if expected is not None and expected != revision:
        raise Conflict(f"the tool file {name!r} has been changed meanwhile", revision=revision)


def _bytes(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"the text cannot be written as UTF-8: {error.reason}") from None
    if len(data) > MAX_SOURCE:
        raise InvalidInput(f"the text has {len(data):,} bytes; at most {MAX_SOURCE:,} are possible")
    return data
