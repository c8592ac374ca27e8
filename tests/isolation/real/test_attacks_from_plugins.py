"""The attacks on the sandbox of scripts, from the code of an isolated plugin: nothing gets out of its sandbox either.

That each attack works without a sandbox is shown where scripts attempt it (`tests/scripts/real/attacks`).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.repetition import Failures

from tavern_host import AUDIT, Host
from tavern_host.contracts.plugins import PluginState
from tests.isolation.attempts import attempt, attempted, write_attempting
from tests.scripts.ordinary import run_as_ordinary_user, why_not
from tests.scripts.real.attacks import program
from tests.scripts.real.attacks.hosts import HostProcess, Unavailable, start, token_of

IN_ITS_OWN = {
    "leaves_something_where_every_later_script_would_find_it",
    "writes_in_the_next_run_through_a_link_of_this_one",
}
"""These attack the next run of another script: what a plugin leaves in its own folders it finds again."""

ATTACKS = [
    each
    for each in program.ATTACKS.values()
    if not (each.alone or each.no_attack or each.keeps_its_loot or each.name in IN_ITS_OWN)
]

RUNS = """
        import subprocess
        for name in ("output", "cache"):
            (context.data_dir / name).mkdir(exist_ok=True)
        running = ([sys.executable, "attack.py", {token!r}], {folder!r}, {given!r})
        def run():
            return subprocess.run(running[0], cwd=running[1], input=running[2], capture_output=True, text=True)
        KEPT["running"] = asyncio.create_task(asyncio.to_thread(run))
"""
ENDED = """
        done, _ = await asyncio.wait([KEPT["running"]], timeout=5)
        ended = KEPT["running"].result() if done else None
        return json.dumps([ended.stdout, ended.stderr]) if ended else ""
"""


@pytest.fixture
def attacked() -> Iterator[HostProcess]:
    """A process with secrets, servers and a process of its own that must not be reached."""
    try:
        host = start("root" if os.geteuid() == 0 else "user")
    except Unavailable as error:
        pytest.skip(str(error))
    yield host
    host.close()
    host.free()


@pytest.mark.timeout(240)
async def test_no_attack_gets_out_of_the_sandbox_of_a_plugin(attacked: HostProcess, tmp_path: Path) -> None:
    ground = attacked.playground()
    runtime = {"placement": "process", "files": {"read": [str(ground.script)]}}
    write_attempting(tmp_path / "project" / "plugins" / "acme", runtime=runtime)
    before = attacked.ask("renew")
    async with Host(tmp_path / "project", create=True, trust=["acme"]) as host:
        plugin = host.plugin("acme")
        assert plugin.state is PluginState.STARTED and plugin.process is not None, plugin.problems
        assert "bubblewrap" in plugin.process.sandbox
        data = host.project.private / "plugins" / "acme"
        target = attacked.target(ATTACKS, ground, inside=True)
        target |= {"script": str(ground.script), "output": f"{data}/output", "cache": f"{data}/cache"}
        given = json.dumps(target) + "\n"
        await attempt(host, RUNS.format(token=token_of(ground), folder=str(ground.script), given=given))
        while (said := await attempt(host, ENDED)) == "''":
            pass
    stdout, stderr = json.loads(said[1:-1].encode().decode("unicode_escape"))
    ended = [line for line in stdout.splitlines() if line.startswith("ended [")]
    assert ended, stderr
    verdicts = json.loads(ended[0].removeprefix("ended "))
    with Failures() as failures:
        for each, (loot, error) in zip(ATTACKS, verdicts, strict=True):
            with failures.row(each.name):
                assert not loot, f"it got {loot!r}"
                expected = (*each.refused, *filter(None, [each.may_lack]))
                assert any(one in error for one in expected), f"something else stopped it: {error}"
    assert len(verdicts) > 50 and attacked.secret not in stdout + stderr
    assert ground.damage() == []
    after = attacked.ask("state")
    assert after["arrived"] == [] and after["victim"], "a server of the host was reached, or a process harmed"
    assert {kind: after[kind] for kind in ("children", "mounts")} == {
        kind: before[kind] for kind in ("children", "mounts")
    }


BOUNDS = {
    "processes": """
        import subprocess
        made = []
        try:
            while len(made) < 300:
                made.append(subprocess.Popen(["/bin/sleep", "60"]))
        except OSError as error:
            return error.errno == 11 and len(made) < 256
        finally:
            for each in made:
                each.kill()
                each.wait()
    """,
    "open files": """
        made = []
        try:
            while len(made) < 2_000:
                made.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as error:
            return error.errno == 24 and len(made) < 1024
        finally:
            for each in made:
                os.close(each)
    """,
    "files in memory": """
        try:
            with open("/tmp/large", "wb") as file:
                for _ in range(100):
                    file.write(bytes(1 << 20))
                    file.flush()
        except OSError as error:
            return error.errno == 28
        finally:
            os.unlink("/tmp/large")
    """,
    "the length of a file": """
        try:
            with open(context.data_dir / "large", "wb") as file:
                file.truncate(1 << 31)
        except OSError as error:
            return error.errno == 27
        finally:
            os.unlink(context.data_dir / "large")
    """,
}


async def test_what_it_uses_of_the_machine_is_bounded(tmp_path: Path) -> None:
    write_attempting(tmp_path / "project" / "plugins" / "acme")
    async with Host(tmp_path / "project", create=True, trust=["acme"]) as host:
        found = await attempted(host, BOUNDS)
        assert found == dict.fromkeys(BOUNDS, "True")
        process = host.plugin("acme").process
        assert process is not None and process.starts == 1


async def test_it_reaches_the_hosts_that_it_was_granted_and_no_others(tmp_path: Path) -> None:
    asked: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(writer.get_extra_info("sockname")[1])
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        await writer.drain()
        writer.close()

    async with (
        await asyncio.start_server(serve, "127.0.0.1", 0) as one,
        await asyncio.start_server(serve, "127.0.0.1", 0) as another,
    ):
        granted, other = (each.sockets[0].getsockname()[1] for each in (one, another))
        runtime = {"placement": "process", "network": [f"127.0.0.1:{granted}"]}
        write_attempting(tmp_path / "project" / "plugins" / "acme", runtime=runtime)
        get = """
            async with context.http.session().get("http://127.0.0.1:{}/") as answer:
                return answer.status, await answer.text()
        """
        connect = "import socket; return socket.create_connection(('127.0.0.1', {}), timeout=1)"
        async with Host(tmp_path / "project", create=True, trust=["acme"]) as host:
            ways = {"granted": get.format(granted), "other": get.format(other), "around": connect.format(granted)}
            found = await attempted(host, ways)
            recorded = [each.action for each in await host.services.get(AUDIT).tail(50)]
    assert found["granted"] == "(200, 'hello')" and asked == [granted]
    assert found["other"].startswith("(403") and "refused" in found["around"]
    assert {"script.connected", "script.kept-out"} <= {*recorded}


@pytest.mark.timeout(300)
def test_what_holds_for_root_holds_for_an_ordinary_user() -> None:
    if reason := why_not():
        pytest.skip(reason)
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(Path(__file__).parents[3]), "-k", "not for_root"]
    done = run_as_ordinary_user([sys.executable, "-m", "pytest", *options, __file__])
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout[-6000:] + done.stderr[-2000:]
