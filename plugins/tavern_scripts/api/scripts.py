"""Scripts in a sandbox: the request, what was enforced, the result, and the `scriptExecution` service."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any, Literal, Protocol

from pydantic import BeforeValidator, Field, JsonValue, SerializerFunctionWrapHandler, model_serializer

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.contributions import Handler
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads
from tavern_host.contracts.wire import Model, OpenModel

ScriptLanguage = Literal["python", "nodejs", "bun"]
"""The languages of scripts whose text is the program."""

RunnableLanguage = Literal["python", "nodejs", "bun", "wasm"]
"""Those, and `wasm`: modules of WebAssembly for WASI, which a plugin's sandbox runs."""

_ALSO_CALLED = {
    **dict.fromkeys(("py", "python3"), "python"),
    **dict.fromkeys(("js", "javascript", "node", "node.js"), "nodejs"),
    **dict.fromkeys(("ts", "typescript"), "bun"),
    **dict.fromkeys(("webassembly", "wasi"), "wasm"),
}


def _language(value: Any) -> Any:
    name = value.strip().lower() if isinstance(value, str) else value
    return _ALSO_CALLED.get(name, name) if isinstance(name, str) else value


NamedLanguage = Annotated[ScriptLanguage, BeforeValidator(_language)]
"""A language that somebody names, also as people and models call it."""

CODE_SUFFIXES: Mapping[str, ScriptLanguage] = {
    ".py": "python",
    ".js": "nodejs",
    ".mjs": "nodejs",
    ".cjs": "nodejs",
    ".ts": "bun",
    ".mts": "bun",
}
"""The language of a script that is text and does not say it, by the end of its name."""

LANGUAGE_SUFFIXES: Mapping[str, RunnableLanguage] = {**CODE_SUFFIXES, ".wasm": "wasm"}
"""The language of any script that does not say it."""


PROXY_SOCKET = "/run/tavern/proxy.sock"
"""Where a sandbox that has a network finds the socket of its proxy."""


class FileAccess(Model):
    """Which files a script asks for: patterns relative to its own folder (`self`, `./*`, `.cache/**`)."""

    allow_read: list[str] = Field(default_factory=list)
    allow_write: list[str] = Field(default_factory=list)


class NetworkAccess(Model):
    """Which hosts a script asks for: `host`, `host:port`, `*.example.com`."""

    allow_hosts: list[str] = Field(default_factory=list)


class SecurityContext(OpenModel):
    """What a tool asks for: a request, of which the operator's policy grants a part."""

    file_access: FileAccess = Field(default_factory=FileAccess)
    network_access: NetworkAccess = Field(default_factory=NetworkAccess)
    required_capabilities: list[str] = Field(default_factory=list)


class ScriptRequest(Model):
    """A script that is to be run: `code`, or `script_path`, or a `command` (`python scripts/x.py --fast`, taken apart
    without a shell); exactly one of them.

    Paths are relative to the folder of `plugin`, if it is a plugin's own script, else to one of the operator's folders;
    with `from_project`, one in the project may be named from the project's folder too (`scripts/x.py`).
    `language` comes from the suffix where it is not given; `entry_point` names a function of the file that is called
    with the input. With the `protocol` `channel` the result is what is written to the descriptor TAVERN_RESULT_FD
    instead of the last JSON document on stdout, with `text` it is the text of all of stdout. `config` becomes
    `TAVERN_CONFIG_*` inside the sandbox; the values under the keys `secrets` are hidden in logs and errors. `files` are
    paths in the project's files folder that the script may read, under the same paths in the folder TAVERN_FILES; what
    it leaves in the folder TAVERN_OUTPUT comes back as files. `session` names variables that live on between calls.
    `tools` are ids, and patterns of ids, of tools that the script may call as functions of its module `tools`: of those
    that the call of the run may call, and no others;
    not in a session. `timeout_ms` is in milliseconds, without the time in which such calls are waited for.
    """

    tool_id: str | None = None
    plugin: str | None = None
    from_project: bool = False
    code: str | None = None
    script_path: str | None = None
    command: str | None = None
    language: Annotated[RunnableLanguage, BeforeValidator(_language)] | None = None
    entry_point: str | None = None
    protocol: Literal["stdio", "channel", "text"] = "stdio"
    input_data: JsonValue = None
    timeout_ms: int | None = Field(default=None, ge=1)
    config: dict[str, JsonValue] = Field(default_factory=dict)
    secrets: list[str] = Field(default_factory=list)
    files: list[str] = Field(default_factory=list)
    session: str | None = None
    tools: list[str] = Field(default_factory=list)
    security_context: SecurityContext = Field(default_factory=SecurityContext)


class ScriptErrorType(enum.StrEnum):
    """Why a script gave no result."""

    TIMEOUT = "TimeoutError"
    SCRIPT = "ScriptError"
    DEPENDENCY = "DependencyError"
    SECURITY = "SecurityError"
    OUTPUT = "OutputError"
    RESOURCE = "ResourceError"
    CANCELLED = "Cancelled"


class _Published(Model):
    """A value whose published form leaves out what there is not: the schema of a script's result knows no null."""

    @model_serializer(mode="wrap")
    def _without_none(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in handler(self).items() if value is not None}


class ScriptError(_Published):
    """A script that gave no result: `details` is the end of what it wrote to stderr, or what else helps."""

    type: ScriptErrorType
    message: str
    details: str | None = None


class ScriptLimits(Model):
    """The limits of one run: times in seconds, sizes in bytes."""

    wall: float
    cpu: float
    """Of each process."""
    memory: int
    """Of all processes together."""
    processes: int
    """How many processes and threads there may be at once: the kernel counts threads, too."""
    files: int
    """How many files may be open at once."""
    file_size: int
    scratch: int
    """How large /tmp, /dev/shm and each writable path may be."""
    input: int
    output: int
    log: int


class ScriptGrants(Model):
    """What a script may reach: paths as they are inside the sandbox, hosts as patterns."""

    read: list[str] = Field(default_factory=list)
    write: list[str] = Field(default_factory=list)
    hosts: list[str] = Field(default_factory=list)


class ScriptEnforced(Model):
    """What was enforced: by which backend, with which limits and grants. `denied` was asked for and not granted;
    `weaker` says what this backend does not enforce that the best one does."""

    backend: str
    limits: ScriptLimits
    grants: ScriptGrants = Field(default_factory=ScriptGrants)
    denied: list[str] = Field(default_factory=list)
    weaker: list[str] = Field(default_factory=list)


class ScriptUsage(Model):
    """What was used: times in milliseconds, sizes in bytes; None where it could not be measured."""

    wall_ms: float
    cpu_ms: float | None = None
    peak_memory: int | None = None
    input: int = 0
    output: int = 0
    log: int = 0


class ScriptFile(Model):
    """A file that a script left: its path in the project's files folder."""

    path: str
    size: int
    mime_type: str | None = None


class ScriptResult(_Published):
    """What came of a script, what was enforced and what was used."""

    success: bool
    output_data: JsonValue = None
    error: ScriptError | None = None
    logs: list[str] = Field(default_factory=list)
    files: list[ScriptFile] = Field(default_factory=list)
    enforced: ScriptEnforced | None = None
    usage: ScriptUsage | None = None


class ScriptEvent(Model):
    """Something that happens while a script runs: a line of its log, how far it or the building of its environment
    is, and at the end the result."""

    kind: Literal["log", "progress", "result"]
    text: str = ""
    progress: float | None = None
    result: ScriptResult | None = None


class IsolationCheck(Model):
    """One property of a sandbox that was tried out: whether it holds, and what was observed."""

    name: str
    holds: bool
    observed: str = ""


class BackendReport(Model):
    """What is known of a backend: whether it can be used, why not, what was tried out, and what to install.
    `languages` are those that it runs; none are named of one that runs the programs of this machine."""

    name: str
    languages: list[str] = Field(default_factory=list)
    usable: bool
    chosen: bool = False
    reason: str = ""
    checks: list[IsolationCheck] = Field(default_factory=list)
    hint: str = ""


class SandboxMount(Model):
    """What is seen at `target` inside. `read`: the file or folder `source`, read-only. `write`: it, to be changed.
    `staged`: an empty folder of the size `ScriptLimits.scratch`; after a clean end the regular files in it are copied
    into the folder `source`, with `filled` also what `source` holds is there at the beginning."""

    target: str
    source: str
    mode: Literal["read", "write", "staged"] = "read"
    filled: bool = False


class ProgramRequest(Model):
    """A program of this machine that is to run in a sandbox for as long as its caller listens. All paths are absolute,
    and the same inside. `argv[0]` is the program; what belongs to its installation is seen, too.

    `read` are files and folders that are seen besides, `write` those that it may change. `hosts` are reached by HTTP
    and HTTPS where the operator's policy for scripts allows all of them. Of the host's environment it sees nothing.
    """

    argv: list[str] = Field(min_length=1)
    environment: dict[str, str] = Field(default_factory=dict)
    folder: str = "/tmp"
    read: list[str] = Field(default_factory=list)
    write: list[str] = Field(default_factory=list)
    hosts: list[str] = Field(default_factory=list)


class ProgramPackage(Model):
    """A program that a package of npm (`@scope/name@1.2`) or PyPI (`name==1.2`) brings: by default the one that is
    called as the package is, or the only one."""

    registry: Literal["npm", "pypi"]
    package: str = Field(min_length=1, max_length=300)
    program: str | None = None


class PackagedProgram(Model):
    """How the program of a package is started, its arguments apart, and the folder that it needs to see."""

    argv: list[str]
    folder: str


class SandboxLaunch(Model):
    """A program to be run inside of a sandbox. All paths but the sources of mounts are those inside.

    `proxy` is the socket on this side that its only network is, if any; inside it is PROXY_SOCKET, and reached as the
    environment's `HTTP_PROXY` says. `channel`: the program may write its result to the descriptor 3.
    Without `address_space` memory is limited by what is used only, not by what is reserved. Of `limits`, `wall` is left
    to the output's reader.
    `calls` is a descriptor of this process, one end of a pair of sockets, that the program has as 7 (TAVERN_CALLS_FD).
    A `lasting` program runs as long as a host: it is looked at less often while it does nothing, and the first output
    says that it began. `user` is who it runs as where root makes the sandbox, in place of any unused user.
    """

    argv: list[str]
    environment: dict[str, str] = Field(default_factory=dict)
    folder: str = "/"
    mounts: list[SandboxMount] = Field(default_factory=list)
    limits: ScriptLimits
    proxy: str | None = None
    channel: bool = False
    calls: int | None = None
    address_space: bool = True
    lasting: bool = False
    user: int | None = None


class SandboxOutput(Model):
    """What comes out of a sandbox, in order; the last one is `ended`. A `lasting` program gives `begun` first, whose
    `pid` is that of the first process in the sandbox.

    Of `ended`, `exit_code` is negative where a signal ended the program (-9 for SIGKILL), and `data` says in words
    which files were not copied out of staged folders, if any. `reason` says which limit ended it: `memory`, `cpu`,
    `processes`, `files`; `broken` means that the sandbox itself could not be made (`data` says why) and the program
    never began.
    """

    kind: Literal["begun", "stdout", "stderr", "channel", "ended"]
    data: bytes = b""
    pid: int | None = None
    exit_code: int | None = None
    reason: Literal["memory", "cpu", "processes", "files", "broken"] | None = None
    usage: ScriptUsage | None = None


class ScriptBackendInfo(Model):
    """A kind of sandbox: `handler` is `module:Class` in the plugin; the class is opened as `Class(context)`. The first
    usable one by `order` is used; those of the host have 100 and more.

    One that runs no programs of this machine names in `interpreters` the languages that it runs, each with the program
    inside that does so, such as `python3`, or '' where a script is a program itself. It is asked for no others, and has
    what its scripts depend on inside.
    """

    name: str
    handler: Handler
    description: str = ""
    order: int = 50
    interpreters: dict[str, str] = Field(default_factory=dict)


class ScriptBackend(Protocol):
    """A kind of sandbox. Nothing of it may be left when the iterator of `run` has ended or was closed: no process,
    mount, folder, socket or descriptor."""

    async def prove(self) -> list[IsolationCheck]:
        """Try out every property that isolation rests on, by programs that try to break it. It is usable only if all
        hold. Raises `ServiceUnavailable` saying what is missing where it cannot even begin."""

    async def prepare(self, launch: SandboxLaunch) -> None:
        """Make ready what takes long and is needed for such programs (an image, say), without running one."""

    def run(self, launch: SandboxLaunch, stdin: AsyncIterator[bytes]) -> AsyncIterator[SandboxOutput]:
        """Run a program, feeding it from `stdin`, and yield what comes out; closing the iterator kills all of it."""


async def no_input() -> AsyncIterator[bytes]:
    """Give a program nothing to read."""
    no_pieces: tuple[bytes, ...] = ()
    for piece in no_pieces:
        yield piece


class ScriptExecution(ServiceInterface, name="scriptExecution", version=3):
    """Runs scripts, each in a sandbox of its own. A script that fails, or is refused, is a result and never a raise;
    `InvalidInput` and `NotFound` are for requests that mean nothing: no script, no language, a file that is not there.
    """

    @acts("scriptExecution:execute", "Run scripts in the sandbox.")
    async def execute(
        self,
        *,
        tool_id: str | None = None,
        script_path: str | None = None,
        code: str | None = None,
        language: ScriptLanguage | None = None,
        input_data: JsonValue = None,
        timeout_ms: int | None = None,
        files: list[str] | None = None,
        session: str | None = None,
        call: CallContext | None = None,
    ) -> ScriptResult:
        """Run a script and return what came of it; cancelling ends it with all that it began."""

    @acts("scriptExecution:execute", "Run scripts in the sandbox.")
    async def run(self, request: ScriptRequest, *, call: CallContext | None = None) -> ScriptResult:
        """Run a script and return what came of it; see `execute`."""

    @acts("scriptExecution:execute", "Run scripts in the sandbox.")
    def stream(self, request: ScriptRequest, *, call: CallContext | None = None) -> AsyncIterator[ScriptEvent]:
        """Run a script and yield its log and progress while it runs, and its result at the end."""

    @acts(
        "scriptExecution:program",
        "Run any program of this machine in the sandbox, with the files and folders that the plugin names.",
        level="override",
        since=2,
    )
    def converse(
        self, request: ProgramRequest, stdin: AsyncIterator[bytes], *, call: CallContext | None = None
    ) -> AsyncIterator[SandboxOutput]:
        """Run a program, feeding it from `stdin`, and yield what comes out of it, its end last. Who stops listening
        ends all of it. It has the limits of scripts, but no time limit, and the computing time of a session.

        Raises `ServiceUnavailable` where no sandbox holds, `InvalidInput` for a program that cannot be run, and
        `Forbidden` for hosts that the policy does not allow.
        """

    @acts(
        "scriptExecution:program",
        "Run any program of this machine in the sandbox, with the files and folders that the plugin names.",
        level="override",
        since=3,
    )
    async def install(self, wanted: ProgramPackage, *, call: CallContext | None = None) -> PackagedProgram:
        """Return the program of a package for `converse`. The package is installed where it is not there yet, in the
        sandbox, as dependencies of scripts are: nothing of it runs, and the indexes of the machine alone are reached.
        Without a version it is the newest of that time. Raises `InvalidInput` for what names no package, and
        `Misconfigured` with what the installer says.
        """

    @reads
    async def review(self, request: ScriptRequest) -> ScriptEnforced:
        """Return the limits and grants that would be enforced, without running anything. Raises `InvalidInput` for a
        script that cannot be run."""

    @reads
    async def denied(self, asked: SecurityContext, *, config: dict[str, JsonValue] | None = None) -> list[str]:
        """Return the requests of a script file that the operator's policy would not grant, each with the reason;
        `config` are the settings of its tool. Raises `InvalidInput` for a request that means nothing."""

    @reads
    async def backends(self) -> list[BackendReport]:
        """Return a report on each sandbox of this machine; the one in force is `chosen`."""


SCRIPT_EXECUTION = ServiceKey(ScriptExecution)
