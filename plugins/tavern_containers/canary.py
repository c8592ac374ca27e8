"""Finds out whether containers hold, by programs in the language of their image that try to break out."""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from tavern_containers.arguments import Engine
from tavern_containers.engines import about
from tavern_host.contracts.errors import ServiceUnavailable
from tavern_scripts.api.scripts import (
    IsolationCheck,
    SandboxLaunch,
    SandboxMount,
    SandboxOutput,
    ScriptBackend,
    ScriptLimits,
)

_MB = 1 << 20
_LIMITS = ScriptLimits(
    wall=30,
    cpu=10,
    memory=128 * _MB,
    processes=32,
    files=256,
    file_size=8 * _MB,
    scratch=4 * _MB,
    input=_MB,
    output=_MB,
    log=_MB,
)
_SECONDS = 120.0

_PYTHON = """
import json, os, socket, sys, time
facts = json.load(sys.stdin)
def works(what):
    try:
        return bool(what()) or True
    except Exception:
        return False
if facts["do"] == "sleep":
    print("began", flush=True)
    time.sleep(600)
kept = []
while facts["do"] == "memory":
    kept.append(bytearray(b"x" * (1 << 20)))
about = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
print(json.dumps({
    "reads": [path for path in facts["reads"] if works(lambda: open(path).close())],
    "writes": [path for path in facts["writes"] if works(lambda: open(path, "w").close())],
    "reached": works(lambda: socket.create_connection(("127.0.0.1", facts["port"]), timeout=2).close()),
    "interfaces": os.listdir("/sys/class/net") if os.path.isdir("/sys/class/net") else [],
    "others": [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()],
    "status": {name: value.strip() for name, value in about.items()}, "variables": list(os.environ.values()),
    "uid": os.getuid(),
}))
"""
_SCRIPT = """
const fs = require("fs");
const facts = JSON.parse(fs.readFileSync(0, "utf8"));
const works = (what) => { try { what(); return true; } catch { return false; } };
if (facts.do === "sleep") { console.log("began"); setTimeout(() => {}, 600000); }
for (const kept = []; facts.do === "memory";) kept.push(Buffer.alloc(1 << 20, 120));
const lines = fs.readFileSync("/proc/self/status", "utf8").split("\\n").filter(Boolean);
const about = lines.map((line) => line.split(/:(.*)/s));
const tell = (reached) => { console.log(JSON.stringify({
  reads: facts.reads.filter((path) => works(() => fs.closeSync(fs.openSync(path)))),
  writes: facts.writes.filter((path) => works(() => fs.closeSync(fs.openSync(path, "w")))), reached,
  interfaces: fs.existsSync("/sys/class/net") ? fs.readdirSync("/sys/class/net") : [],
  others: fs.readdirSync("/proc").filter((name) => /^[0-9]+$/.test(name) && Number(name) !== process.pid),
  status: Object.fromEntries(about.map(([name, value]) => [name, value.trim()])),
  variables: Object.values(process.env), uid: process.getuid(),
})); process.exit(0); };
if (facts.do === "look")
  require("net").connect(facts.port, "127.0.0.1").on("connect", () => tell(true)).on("error", () => tell(false));
"""


async def prove(backend: ScriptBackend, program: str, engine: Engine, made: Sequence[str]) -> list[IsolationCheck]:
    """Try out every property of containers in which a program runs, and return what was observed of each; `made` are
    the ids of those that are there at any time. Raises `ServiceUnavailable` where it does not get to its end."""
    async with asyncio.timeout(_SECONDS):
        checks = [*await _look(backend, program), await _use_up_memory(backend, program)]
        checks.append(await _end(backend, program, engine, made))
    return [check.model_copy(update={"name": f"{program}: {check.name}"}) for check in checks]


async def _look(backend: ScriptBackend, program: str) -> list[IsolationCheck]:
    token = f"canary-{secrets.token_hex(8)}"
    with tempfile.TemporaryDirectory(prefix=token) as name, socket.create_server(("127.0.0.1", 0)) as server:
        folder = Path(name)
        await asyncio.to_thread(_lay_out, folder, token)
        paths = ["/read/given", "/read/new", "/output/new", "/escaped", str(folder / "secret" / "given")]
        facts = {"do": "look", "reads": paths, "writes": paths, "port": server.getsockname()[1]}
        mounts = [
            SandboxMount(target="/read", source=str(folder / "read")),
            SandboxMount(target="/output", source=str(folder / "output"), mode="staged"),
        ]
        stdout, stderr, ended = await _run(backend, program, facts, mounts, {"GIVEN": "1"})
        try:
            found = json.loads(stdout)
        except ValueError:
            said = (stderr or ended.data or stdout).decode("utf-8", "replace").strip()
            raise ServiceUnavailable(f"the program that tries out {program} did not get to its end: {said}") from None
        kept = sorted(path.name for path in (folder / "output").iterdir())
        return [*_judged(found, token), _check("copying out", kept == ["given", "new"], kept)]


def _lay_out(folder: Path, token: str) -> None:
    folder.chmod(0o755)
    for inner in ("read", "output", "secret"):
        (folder / inner).mkdir()
        (folder / inner / "given").write_text(token, encoding="utf-8")


def _judged(found: dict[str, Any], token: str) -> list[IsolationCheck]:
    """Return the meaning of the facts that a program inside has found."""
    status = found["status"]
    capabilities = {status.get(name, "") for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    leaked = [value for value in found["variables"] if token in value]
    return [
        _check("files", found["reads"] == ["/read/given"], found["reads"]),
        _check("writing", found["writes"] == ["/output/new"], found["writes"]),
        _check("network", not found["reached"] and {*found["interfaces"]} <= {"lo"}, found["interfaces"]),
        _check("processes", not found["others"], found["others"]),
        _check("user", found["uid"] != 0, found["uid"]),
        _check("capabilities", all(set(one) == {"0"} for one in capabilities), sorted(capabilities)),
        _check("new privileges", status.get("NoNewPrivs") == "1", status.get("NoNewPrivs")),
        _check("system calls", status.get("Seccomp") == "2", status.get("Seccomp")),
        _check("environment", "1" in found["variables"] and not leaked, f"{len(found['variables'])} variables"),
    ]


async def _use_up_memory(backend: ScriptBackend, program: str) -> IsolationCheck:
    _, _, ended = await _run(backend, program, {"do": "memory"})
    return _check("memory", ended.reason == "memory", f"ended by {ended.reason or ended.exit_code}")


async def _end(backend: ScriptBackend, program: str, engine: Engine, made: Sequence[str]) -> IsolationCheck:
    began: list[str] = []
    async with aclosing(backend.run(_launch(program), _stdin_of({"do": "sleep"}))) as outputs:  # type: ignore[type-var]
        async for output in outputs:
            began = [*made] if output.kind == "stdout" else []
            break
    left = [one for one in began if await about(engine, one, "State")]
    return _check("ending", bool(began) and not left, f"containers before it: {len(began)}, after it: {len(left)}")


def _check(name: str, holds: bool, observed: object) -> IsolationCheck:
    return IsolationCheck(name=name, holds=holds, observed=str(observed))


def _launch(
    program: str, mounts: Sequence[SandboxMount] = (), environment: dict[str, str] | None = None
) -> SandboxLaunch:
    code = ["-c", _PYTHON] if program == "python3" else ["-e", _SCRIPT]
    argv = [program, *code]
    return SandboxLaunch(argv=argv, mounts=[*mounts], environment=environment or {}, limits=_LIMITS, folder="/tmp")


async def _run(
    backend: ScriptBackend,
    program: str,
    facts: dict[str, JsonValue],
    mounts: Sequence[SandboxMount] = (),
    environment: dict[str, str] | None = None,
) -> tuple[bytes, bytes, SandboxOutput]:
    said = {"stdout": b"", "stderr": b""}
    ended = SandboxOutput(kind="ended", reason="broken")
    launch = _launch(program, mounts, environment)
    async with aclosing(backend.run(launch, _stdin_of(facts))) as outputs:  # type: ignore[type-var]
        async for output in outputs:
            if output.kind == "ended":
                ended = output
            else:
                said[output.kind] += output.data
    return said["stdout"], said["stderr"], ended


async def _stdin_of(facts: dict[str, JsonValue]) -> AsyncIterator[bytes]:
    yield json.dumps(facts).encode()
