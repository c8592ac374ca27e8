"""`Environments`: gives a script the packages that it depends on, installed once for each manifest, interpreter and
machine. What installs them runs in a sandbox that reaches the configured package indexes and nothing else."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol

from tavern_scripts.api.allowlist import is_special
from tavern_scripts.api.environments import Check, Report
from tavern_scripts.api.piped_program import to_the_end
from tavern_scripts.api.scripts import SandboxLaunch, SandboxMount, SandboxOutput, ScriptErrorType, ScriptLimits
from tavern_scripts.environments.addresses import without_secrets
from tavern_scripts.environments.jobs import (
    BUILT,
    INPUT,
    MODULES,
    SITE,
    Job,
    lock_job,
    machine_settings,
    node_job,
    python_job,
    resolve_job,
)
from tavern_scripts.environments.manifests import Manifest, PythonManifest
from tavern_scripts.environments.node_registries import NodeRegistries
from tavern_scripts.environments.python_indexes import PythonIndexes
from tavern_scripts.environments.requirements import left_out, pinned, read_requirements
from tavern_scripts.environments.store import Store, content_of
from tavern_scripts.environments.unpack import BadPackage, Unpacker
from tavern_scripts.network.proxy import Proxy
from tavern_scripts.network.proxy_access import proxy_access
from tavern_scripts.network.proxy_limits import Connection, ConnectionBudget, ProxyLimits
from tavern_scripts.policy.languages import Interpreter
from tavern_scripts.results.refusal import Refused

PYTHON_PACKAGES = "/packages"
"""Where a Python script finds its packages."""

NODE_PACKAGES = "/node_modules"
"""Where a JavaScript script finds its packages: in the root, which is above its folder wherever that is."""

_FORMAT = 1
_MB = 1 << 20
_INSTALL = "/tavern/install.py"
_DAY = 86_400.0
_TAIL = 4000
_LONGEST_WHY = 400
_WHY = ("×", "error:", "npm error code")
"""How the first line of an installer's complaint begins."""

_STRATEGY = "--index-strategy"
_ALL_INDEXES = "UV_INDEX_STRATEGY=unsafe-best-match in the environment of the host, or index-strategy in its uv.toml"
"""What uv calls an option, and how it is set here."""

_NEVER = ("169.254.", "fe80:")
"""Addresses that no name of a package index leads to: services of the cloud that a host runs in."""


class RunInSandbox(Protocol):
    """Runs a program in the sandbox that is in force; closing the iterator ends it."""

    def __call__(self, launch: SandboxLaunch) -> AsyncIterator[SandboxOutput]: ...


@dataclass(frozen=True)
class BuildLimits:
    """What the building of one environment may take: times in seconds, sizes in bytes."""

    wall: float = 900.0
    cpu: float = 900.0
    memory: int = 2048 * _MB
    size: int = 2048 * _MB
    at_once: int = 2

    def of_launch(self) -> ScriptLimits:
        """Return them as a launch has them."""
        return ScriptLimits(
            wall=self.wall,
            cpu=self.cpu,
            memory=self.memory,
            processes=256,
            files=1024,
            file_size=self.size,
            scratch=self.size,
            input=0,
            output=self.size,
            log=_MB,
        )


@dataclass(frozen=True)
class Environment:
    """Packages that are ready: the folder, how it is mounted, and what is set so that they are found. `built` says
    whether it was made just now."""

    path: Path
    mounts: tuple[SandboxMount, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    built: bool = False


class Environments:
    """The environments below one folder."""

    def __init__(
        self,
        folder: Path,
        run_in_sandbox: RunInSandbox,
        *,
        record: Callable[[Connection], None],
        build_scripts: bool = False,
        more_hosts: Sequence[str] = (),
        limits: BuildLimits | None = None,
        machine: Mapping[str, str] | None = None,
        budget: ConnectionBudget | None = None,
        upstream: Callable[[str], str | None] = lambda address: None,
    ) -> None:
        """Take where environments are kept, how a program is run in a sandbox, and a callback for its connections.

        `build_scripts`: packages may run something while they are installed. `more_hosts` are reached besides those of
        the indexes (where an index only refers to files elsewhere). `machine` is the environment that says which
        indexes are used, by default that of this process.
        """
        self._store = Store(folder)
        self._run = run_in_sandbox
        self._record = record
        self._build_scripts = build_scripts
        self._more_hosts = tuple(more_hosts)
        self._limits = limits or BuildLimits()
        self._machine = os.environ if machine is None else machine
        self._budget = budget
        self._upstream = upstream
        self._turns = asyncio.Semaphore(self._limits.at_once)

    async def ready(
        self,
        manifest: Manifest,
        interpreter: Interpreter,
        report: Report,
        *,
        python: Interpreter | None = None,
        check: Check | None = None,
    ) -> Environment:
        """Return the environment for a manifest and an interpreter; it is built where there is none yet.

        `python` runs what sends the packages out of the sandbox, by default the interpreter itself. `check` is called
        before Python packages are installed, which are then those and no others. Raises `Refused`, a DependencyError,
        where it cannot be built, and what `check` raises.
        """
        settings, identity = machine_settings(manifest, self._machine)
        key = self._key(manifest, interpreter, identity)
        content = await asyncio.to_thread(self._store.find, key)
        if content is not None:
            return _environment(content, manifest, built=False)
        async with self._store.building(key, lambda: report("waiting for another build of it")) as folder:
            if folder is not None:
                async with self._turns:
                    report(f"installing what {manifest.source} asks for")
                    await self._build(manifest, interpreter, settings, python or interpreter, folder, report, check)
                about: dict[str, object] = {
                    "source": manifest.source,
                    "interpreter": interpreter.version,
                    "language": interpreter.language,
                }
                await to_the_end(asyncio.to_thread(self._store.keep, key, folder, about))
        content = await asyncio.to_thread(self._store.find, key)
        if content is None:
            raise Refused(ScriptErrorType.DEPENDENCY, f"what {manifest.source} asks for was changed while it was built")
        return _environment(content, manifest, built=folder is not None)

    async def prune(self, older_than: float) -> list[str]:
        """Remove environments that nobody has used for so many seconds, and what is left of builds that broke off.

        What was used within a day stays: it may still be in use.
        """
        return await asyncio.to_thread(self._store.prune, max(older_than, _DAY))

    def held(self, path: Path) -> AbstractContextManager[None]:
        """Keep the environment at a path from being removed as long as the block runs."""
        return self._store.held(path.parent.name)

    def _key(self, manifest: Manifest, interpreter: Interpreter, identity: list[str]) -> str:
        program = Path(interpreter.program).stat()
        facts = {
            "format": _FORMAT,
            "manifest": _content(manifest),
            "interpreter": [interpreter.language, interpreter.version, interpreter.program],
            "program": [program.st_size, program.st_mtime_ns],
            "platform": [platform.system(), platform.machine(), *platform.libc_ver()],
            "indexes": identity,
            "build_scripts": self._build_scripts,
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()[:40]

    async def _build(
        self,
        manifest: Manifest,
        interpreter: Interpreter,
        settings: PythonIndexes | NodeRegistries,
        python: Interpreter,
        folder: Path,
        report: Report,
        check: Check | None,
    ) -> None:
        if isinstance(manifest, PythonManifest):
            assert isinstance(settings, PythonIndexes)
            _check_version(manifest, interpreter)
            lines = "\n".join(manifest.requirements.lines)
            if manifest.lock is not None:
                job = lock_job(manifest, interpreter)
                text = await self._carry_out(job, python, folder, report, manifest.source)
                lines = "\n".join(left_out(read_requirements(text, "uv.lock").lines, manifest.without))
            if check is not None:
                job = resolve_job(manifest, lines, interpreter, settings, build_scripts=self._build_scripts)
                resolved = await self._carry_out(job, python, folder, report, manifest.source)
                await check(pinned(resolved, manifest.source))
                lines = lines if "--hash=" in lines else resolved
            job = python_job(manifest, lines, interpreter, settings, build_scripts=self._build_scripts)
        else:
            assert isinstance(settings, NodeRegistries)
            job = node_job(manifest, interpreter, settings, build_scripts=self._build_scripts)
        await self._carry_out(job, python, folder, report, manifest.source)

    async def _carry_out(self, job: Job, python: Interpreter, folder: Path, report: Report, source: str) -> str:
        """Run a job in the sandbox; return what it wrote to stdout if that is wanted. Its files go to `folder`."""
        inputs = _written(job.files, folder)
        try:
            async with AsyncExitStack() as stack:
                launch = await self._launch(job, python, inputs, stack)
                return await self._follow(job, launch, folder, report, source)
        finally:
            await asyncio.to_thread(shutil.rmtree, inputs, ignore_errors=True)

    async def _launch(self, job: Job, python: Interpreter, inputs: Path, stack: AsyncExitStack) -> SandboxLaunch:
        install = SandboxMount(target=_INSTALL, source=str(Path(__file__).with_name("install.py")))
        argv = (python.program, "-I", "-S", _INSTALL, BUILT, job.main, *job.argv)
        mounts = [install, SandboxMount(target=INPUT, source=str(inputs)), *job.mounts]
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8"}
        proxy = None
        if job.reached.hosts:
            hosts = [*job.reached.hosts, *self._more_hosts]
            allowed = [*hosts, *await _special_addresses(job.reached.hosts)]
            limits = ProxyLimits(connection_bytes=self._limits.size, run_bytes=2 * self._limits.size, in_all=20_000)
            socket = await stack.enter_async_context(
                Proxy(allowed, limits, self._record, budget=self._budget, upstream=self._upstream)
            )
            way = proxy_access(socket, python.program)
            proxy, argv, mounts = way.proxy, (*way.prefix, *argv), [*way.mounts, *mounts]
            environment |= way.environment
        return SandboxLaunch(
            argv=list(argv),
            environment={**environment, **job.environment},
            folder="/tmp",
            mounts=_distinct(mounts),
            limits=self._limits.of_launch(),
            proxy=proxy,
            channel=True,
            address_space=False,
        )

    async def _follow(self, job: Job, launch: SandboxLaunch, folder: Path, report: Report, source: str) -> str:
        log, text = _Log(report, list(job.reached.secrets)), bytearray()
        content = content_of(folder)
        if job.main:
            content.mkdir()
        unpacker = Unpacker(content, self._limits.size)
        ended: SandboxOutput | None = None
        output = self._run(launch)
        try:
            async with asyncio.timeout(self._limits.wall):
                async for each in output:
                    if each.kind == "channel" and job.main:
                        await to_the_end(asyncio.to_thread(unpacker.take, each.data))
                    elif each.kind == "stdout" and not job.main:
                        text += each.data
                        if len(text) > 64 * _MB:
                            raise BadPackage("it wrote too much")
                    elif each.kind in ("stdout", "stderr"):
                        log.take(each.data)
                    elif each.kind == "ended":
                        ended = each
            log.end()
            if ended is None or ended.exit_code != 0 or ended.reason is not None:
                raise _failed(source, ended, log, build_scripts=self._build_scripts)
            if job.main:
                unpacker.finish()
                (content / job.main).mkdir(exist_ok=True)  # there may be nothing for this machine
        except TimeoutError:
            message = f"what {source} asks for was not installed within {self._limits.wall:g} s"
            raise Refused(ScriptErrorType.DEPENDENCY, message, log.tail()) from None
        except (BadPackage, OSError) as error:
            message = f"what {source} asks for could not be taken over: {error}"
            raise Refused(ScriptErrorType.DEPENDENCY, message, log.tail()) from None
        finally:
            unpacker.close()
            close = getattr(output, "aclose", None)
            if close is not None:
                await close()
        return text.decode("utf-8", "replace")


class _Log:
    """What an installer says: reported line by line, the end kept, secrets hidden."""

    def __init__(self, report: Report, secrets: list[str]) -> None:
        self._report = report
        self._secrets = secrets
        self._rest = b""
        self._lines: list[str] = []

    def take(self, data: bytes) -> None:
        """Take what came next."""
        *lines, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        self._rest = self._rest[-_TAIL:]
        for line in lines:
            self._add(line)

    def end(self) -> None:
        """Take what is left without an end of line."""
        self._add(self._rest)
        self._rest = b""

    def tail(self) -> str:
        """Return the end of it."""
        return "\n".join(self._lines)[-_TAIL:]

    def lines(self) -> list[str]:
        """Return the last lines."""
        return list(self._lines)

    def _add(self, line: bytes) -> None:
        text = without_secrets(line.decode("utf-8", "replace"), self._secrets).rstrip()
        text = "".join(letter if letter.isprintable() else " " for letter in text)[:500]
        if text.strip():
            self._lines = [*self._lines[-60:], text]
            self._report(text)


def _environment(content: Path, manifest: Manifest, *, built: bool) -> Environment:
    if isinstance(manifest, PythonManifest):
        mount = SandboxMount(target=PYTHON_PACKAGES, source=str(content / SITE))
        return Environment(content, (mount,), {"PYTHONPATH": PYTHON_PACKAGES}, built)
    return Environment(content, (SandboxMount(target=NODE_PACKAGES, source=str(content / MODULES)),), {}, built)


def _content(manifest: Manifest) -> list[str]:
    if isinstance(manifest, PythonManifest):
        found = ["python", *manifest.requirements.lines, manifest.requirements.python, manifest.lock or ""]
        return found + ["constraints", *manifest.constraints] * bool(manifest.constraints)
    return ["node", manifest.packages.package, manifest.lock or ""]


def _check_version(manifest: PythonManifest, interpreter: Interpreter) -> None:
    from packaging.specifiers import SpecifierSet

    wanted = manifest.requirements.python
    if wanted and not SpecifierSet(wanted).contains(interpreter.version, prereleases=True):
        raise Refused(
            ScriptErrorType.DEPENDENCY,
            f"{manifest.source}: it requires Python {wanted}; scripts run by Python {interpreter.version}",
        )


def _failed(source: str, ended: SandboxOutput | None, log: _Log, *, build_scripts: bool) -> Refused:
    if ended is None or ended.reason == "broken":
        said = ended.data.decode("utf-8", "replace") if ended is not None else "it ended without a word"
        return Refused(ScriptErrorType.SECURITY, f"the sandbox to install packages in could not be made: {said}")
    if ended.reason is not None:
        return Refused(
            ScriptErrorType.DEPENDENCY,
            f"what {source} asks for could not be installed: the installer came to its limit ({ended.reason})",
            log.tail(),
        )
    lines = log.lines()
    at = next((number for number, line in enumerate(lines) if line.lstrip().startswith(_WHY)), max(0, len(lines) - 1))
    complaint = [line for line in lines[at:] if _STRATEGY not in line]
    why = " ".join(_plain(line) for line in complaint)[:_LONGEST_WHY].strip(" .") or "it did not say why"
    hint = ""
    if len(complaint) < len(lines[at:]):
        hint = f"; another index than the first that has the package is asked only with {_ALL_INDEXES}"
    if not build_scripts and any("no wheels" in line or "no-build" in line or "only-binary" in line for line in lines):
        hint = "; packages that have to be built need the operator's extensions.tavern-scripts.buildScripts"
    message = f"what {source} asks for could not be installed: {why}{hint}"
    return Refused(ScriptErrorType.DEPENDENCY, message, log.tail())


def _plain(line: str) -> str:
    """Return a line of a complaint without what only its installer has a use for."""
    return "" if "complete log" in line else line.strip(" ×╰─▶│").removeprefix("npm error ")


async def _special_addresses(hosts: Mapping[str, None]) -> list[str]:
    """Return the addresses of package indexes that are not of the public internet, which the operator named by name."""
    loop, found = asyncio.get_running_loop(), dict[str, None]()
    for host in hosts:
        name, _, port = host.rpartition(":")
        try:
            entries = await loop.getaddrinfo(name.strip("[]"), int(port))
        except OSError:
            continue
        for entry in entries:
            text = str(entry[4][0])
            if "%" in text or text.startswith(_NEVER):
                continue
            address = ip_address(text)
            if is_special(address) and not address.is_multicast and not address.is_unspecified:
                found[f"[{text}]:{port}" if address.version == 6 else f"{text}:{port}"] = None
    return list(found)


def _written(files: Mapping[str, str], folder: Path) -> Path:
    """Return a new folder with these files, readable by all users."""
    inputs = Path(tempfile.mkdtemp(prefix="input-", dir=folder))
    inputs.chmod(0o755)
    for name, text in files.items():
        (inputs / name).write_text(text, encoding="utf-8")
        (inputs / name).chmod(0o644)
    return inputs


def _distinct(mounts: Sequence[SandboxMount]) -> list[SandboxMount]:
    return list({mount.target: mount for mount in mounts}.values())
