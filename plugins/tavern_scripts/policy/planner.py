"""From a request to what would be run: the script, its language and interpreter, its limits, and what it is granted.

Runs nothing, and decides all that is refused beforehand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from tavern_host.context import PluginContext
from tavern_host.contracts.errors import InvalidInput, Misconfigured, NotFound
from tavern_host.contracts.plugins import PLUGINS, is_data
from tavern_host.contracts.settings import MASK
from tavern_scripts.api.scripts import (
    RunnableLanguage,
    ScriptErrorType,
    ScriptLimits,
    ScriptRequest,
    SecurityContext,
)
from tavern_scripts.policy.languages import (
    CODE_NAMES,
    Command,
    Interpreter,
    Interpreters,
    is_typed,
    language_of,
    read_command,
)
from tavern_scripts.policy.policy import LANGUAGES, Policies, Policy
from tavern_scripts.policy.review import Granted, decide
from tavern_scripts.policy.script_files import Script, ScriptFolder, code_hash, find_script, folder_hash
from tavern_scripts.results.refusal import Refused
from tavern_scripts.workers.launches import SCRIPT, Program

MAX_CODE = 1 << 20
"""How many bytes of code are handed over at most."""

_EVERYWHERE = frozenset({"/", "/usr", "/usr/local", "/opt", "."})
"""Where programs are on any machine, or inside of a sandbox, which tells nobody anything."""


@dataclass(frozen=True)
class Plan:
    """What would be run. `script` is None for code that was handed over; `hash` is by which it is approved, and only
    there where scripts have to be. `called` is its name in messages, `root` the project's folder."""

    request: ScriptRequest
    policy: Policy
    program: Program
    interpreter: Interpreter
    limits: ScriptLimits
    granted: Granted
    called: str
    root: Path
    script: Script | None = None
    hash: str | None = None

    @property
    def config(self) -> Mapping[str, JsonValue]:
        """The settings that the script is given."""
        return self.request.config

    @property
    def unreadable(self) -> str | None:
        """Why the interpreter may not be able to read the script, in one sentence."""
        name, by = self.program.name, self.interpreter
        if by.language != "nodejs" or not is_typed(name) or by.reads_types:
            return None
        return f"Node.js {by.version} cannot run the typed script {name}: install Bun, or Node.js 22.18 or newer"

    @property
    def hidden(self) -> dict[str, str]:
        """Texts that must not stand in logs, the longest first, with what stands there instead: secrets, and where on
        this machine scripts, the project and the interpreter are."""
        values = (self.request.config.get(key) for key in self.request.secrets)
        found = {value: MASK for value in values if isinstance(value, str) and value}
        folders = {str(self.root): "<project>", self.interpreter.place: f"<{self.interpreter.language}>"}
        if self.script is not None:
            folders[str(self.script.folder)] = SCRIPT
        found = {**{folder: shown for folder, shown in folders.items() if folder not in _EVERYWHERE}, **found}
        return dict(sorted(found.items(), key=lambda item: len(item[0]), reverse=True))


class Planner:
    """Makes plans. `folders` take the place of those of the policy."""

    def __init__(
        self,
        context: PluginContext,
        policies: Policies,
        interpreters: Interpreters,
        folders: Sequence[ScriptFolder] = (),
    ) -> None:
        self._context = context
        self._folders = [*folders]
        self._policies = policies
        self._interpreters = interpreters

    def policy(self) -> Policy:
        """Return the operator's policy. Raises `Refused` where it cannot be read."""
        try:
            return self._policies()
        except Misconfigured as error:
            raise Refused(ScriptErrorType.SECURITY, error.message) from None

    def granted(self, asked: SecurityContext, config: Mapping[str, JsonValue], *, has_folder: bool) -> Granted:
        """Return the grants of the policy for a request. Raises `InvalidInput`, `Refused`."""
        policy = self.policy()
        return decide(asked, hosts=policy.hosts, writes=policy.writes, config=config, has_folder=has_folder)

    async def plan(self, request: ScriptRequest, *, remaining: float | None = None) -> Plan:
        """Return the plan of a run; `remaining` is the time that the caller has, in seconds.

        Raises `InvalidInput` for a request that means nothing, `Refused` for one that is not carried out.
        """
        command = _what(request)
        policy = self.policy()
        script = None
        if request.code is None:
            path = command.script if command is not None else request.script_path or ""
            bases = await self._bases(request, policy)
            script = await asyncio.to_thread(find_script, path, bases, from_home=request.from_project)
            if request.plugin is not None and is_data(script.name):
                message = f"{script.called} is not run: files of this name count as data, which nobody reviews as code"
                raise Refused(ScriptErrorType.SECURITY, message)
        language = _language(request, command, script)
        if language == "wasm":
            _check_module(request)
        if language not in policy.languages:
            allowed = ", ".join(one for one in LANGUAGES if one in policy.languages) or "none"
            message = f"the operator does not allow scripts in {language}; allowed: {allowed}"
            raise Refused(ScriptErrorType.SECURITY, message)
        granted = self.granted(request.security_context, request.config, has_folder=script is not None)
        approval = None
        if policy.approved is not None:
            approval = await asyncio.to_thread(_approved, policy.approved, request, script)
        interpreter = await self._interpreter(language, script, policy)
        program = Program(
            name=script.name if script is not None else CODE_NAMES[language],
            arguments=command.arguments if command is not None else (),
            entry_point=request.entry_point,
            channel=request.protocol == "channel" or request.entry_point is not None,
            is_code=script is None,
            tool_id=request.tool_id,
        )
        limits = policy.limits.model_copy(update={"wall": _wall(request, policy, remaining)})
        called = script.called if script is not None else f"{language} code"
        root = self._context.project.root
        return Plan(request, policy, program, interpreter, limits, granted, called, root, script, approval)

    async def _interpreter(self, language: RunnableLanguage, script: Script | None, policy: Policy) -> Interpreter:
        """Return the interpreter of a script: Bun, if it is there, for a typed one that this Node.js cannot read."""
        found = await self._interpreters.find(language, policy.interpreters.get(language))
        is_readable = script is None or not is_typed(script.name) or found.reads_types
        if language == "nodejs" and "bun" in policy.languages and not is_readable:
            with suppress(Refused):
                return await self._interpreters.find("bun", policy.interpreters.get("bun"))
        return found

    async def _bases(self, request: ScriptRequest, policy: Policy) -> list[ScriptFolder]:
        if request.plugin is None:
            root = self._context.project.root
            inner = {folder: folder.is_relative_to(root) and ".." not in folder.parts for folder in policy.folders}
            return self._folders or [
                ScriptFolder(folder, f"the folder {folder.relative_to(root)} of the project", root)
                if is_inner
                else ScriptFolder(folder, f"the operator's folder {folder.name}")
                for folder, is_inner in inner.items()
            ]
        folders = await self._context.services.get(PLUGINS).assets("plugin")
        found = next((asset for asset in folders if asset.plugin == request.plugin), None)
        if found is None:
            raise NotFound(f"there is no plugin {request.plugin!r:.200} with a folder that is loaded now")
        if found.changed:
            hint = f"look at it with `tavern plugins show {request.plugin}`, then grant it again"
            message = f"the plugin {request.plugin} was changed after it was reviewed, and none of its scripts is run"
            raise Refused(ScriptErrorType.SECURITY, f"{message}; {hint}")
        return [ScriptFolder(Path(found.path), f"the folder of the plugin {request.plugin}")]


def _what(request: ScriptRequest) -> Command | None:
    """Return the command of a request, where it has one. Raises `InvalidInput` where it names not exactly one thing."""
    named = [name for name in ("code", "script_path", "command") if getattr(request, name) is not None]
    if len(named) != 1:
        found = " and ".join(named) or "none"
        raise InvalidInput(f"a script is named by one of code, scriptPath and command, found {found}")
    for text in (request.command, request.script_path, request.tool_id):
        if text is not None and ("\0" in text or not _is_text(text)):
            raise InvalidInput(f"{text!r:.100} has a character that no argument of a program can hold")
    if request.code is not None:
        if not request.code.strip():
            raise InvalidInput("there is no code to run")
        if len(request.code.encode("utf-8", "replace")) > MAX_CODE or not _is_text(request.code):
            raise InvalidInput(f"code must be UTF-8 text of at most {MAX_CODE >> 10:,} KiB")
    if request.entry_point is not None and not (request.entry_point.isidentifier() and request.entry_point.isascii()):
        raise InvalidInput(f"the entry point must be the name of a function, found {request.entry_point!r:.100}")
    return read_command(request.command) if request.command is not None else None


def _language(request: ScriptRequest, command: Command | None, script: Script | None) -> RunnableLanguage:
    if command is not None:
        if request.language not in (None, command.language):
            raise InvalidInput(
                f"the command runs {command.language}, but the language is said to be {request.language}"
            )
        return command.language
    if request.language is not None:
        return request.language
    if script is None:
        raise InvalidInput(f"code needs a language: {', '.join(CODE_NAMES)}")
    return language_of(script.name)


def _check_module(request: ScriptRequest) -> None:
    """Raise `InvalidInput` for what a module of WebAssembly cannot be: it reads stdin and writes stdout."""
    if request.code is not None:
        raise InvalidInput("a module of WebAssembly is no text: name its file by scriptPath, and hand over no code")
    if request.entry_point is not None or request.protocol == "channel" or request.tools:
        raise InvalidInput(
            "a module of WebAssembly reads its input from stdin and writes its result to stdout: "
            "leave out entryPoint, tools and the protocol channel"
        )


def _wall(request: ScriptRequest, policy: Policy, remaining: float | None) -> float:
    wall = policy.limits.wall if request.timeout_ms is None else min(request.timeout_ms / 1000, policy.most_wall)
    return wall if remaining is None else max(0.0, min(wall, remaining))


def _approved(approved: Collection[str], request: ScriptRequest, script: Script | None) -> str:
    """Return the hash of what is to be run, which has to be one of those that were approved. Raises `Refused`."""
    digest = code_hash(request.code or "") if script is None else folder_hash(script.folder, script.name)
    if digest not in approved:
        hint = f"look at it, then add {digest!r} to extensions.tavern-scripts.approvedScripts"
        raise Refused(ScriptErrorType.SECURITY, f"only scripts that the operator approved are run; {hint}")
    return digest


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
