"""Scripts in containers: how an engine is called, what is left, and why there are none. Where TAVERN_CONTAINER_ENGINE
and TAVERN_CONTAINER_IMAGE name a real engine and an image, they run there too."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.waiting import until

from tavern_containers.arguments import Engine
from tavern_containers.backend import Containers
from tavern_containers.engines import remove_orphans
from tavern_host import Host
from tavern_host.projects import make_project
from tavern_scripts.api.scripts import SandboxLaunch, ScriptErrorType
from tests.scripts.sandboxes import LIMITS, collected, processes_with, read, staged, stdin_of
from tests.scripts.scripthost import PREFIX, Scripts
from tests.scripts.test_containers import DIGEST

OWN = "extensions.tavern-containers."
RECORDER = """#!{python}
import json, os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "calls"), "a") as calls:
    calls.write(json.dumps([sys.argv[1:], dict(os.environ)]) + "\\n")
do = sys.argv[1]
if do == "create" and os.path.exists(os.path.join(here, "refuse")):
    sys.exit("no space left on device")
if do == "create":
    print("a warning", file=sys.stderr)
    print("{id}")
elif do == "start" and os.path.exists(os.path.join(here, "sleep")):
    print("began", flush=True)
    time.sleep(600)
elif do == "start":
    sys.stdout.write(sys.stdin.read())
elif do == "container":
    print(json.dumps([{{"State": {{"ExitCode": 0, "OOMKilled": False, "Error": ""}}}}]))
"""
"""Records how it was called. It is no engine: a host that tries its containers out uses none of them."""

ID = "ab" * 32


class Recorded:
    """The recorder, and the sandbox that calls it."""

    def __init__(self, folder: Path, backend: Containers) -> None:
        self.folder = folder
        self.backend = backend

    def calls(self) -> list[list[str]]:
        return [json.loads(line)[0] for line in (self.folder / "calls").read_text().splitlines()]

    def launch(self) -> SandboxLaunch:
        for name in ("script", "output"):
            (self.folder / name).mkdir()
        mounts = [read("/script", self.folder / "script"), staged("/output", self.folder / "output")]
        environment = {"TAVERN_CONFIG_KEY": "a secret"}
        return SandboxLaunch(argv=["python3", "/script/x.py"], environment=environment, mounts=mounts, limits=LIMITS)


@asynccontextmanager
async def host_of(tmp_path: Path, **settings: Any) -> AsyncIterator[Host]:
    if not (tmp_path / "project").exists():
        make_project(tmp_path / "project")
    named = {f"{OWN}{key}": value for key, value in settings.items()}
    async with Host(tmp_path / "project", settings=named) as host:
        yield host


def run_command(*argv: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(argv, capture_output=True, check=False)


@pytest.fixture
async def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Recorded]:
    folder = tmp_path / "engine"
    (folder / "boxes").mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(folder / "boxes"))
    program = folder / "recorder"
    program.write_text(RECORDER.format(python=sys.executable, id=ID))
    program.chmod(0o755)
    async with host_of(tmp_path, images={"python": DIGEST}, engine=str(program)) as host:
        yield Recorded(folder, Containers(host._manager.active["tavern-containers"].context))


async def test_a_container_is_made_started_fed_and_removed_by_its_id(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_HOST", "secret")
    came = await collected(recorded.backend.run(recorded.launch(), stdin_of(b'{"a":', b"1}")))
    assert (came.stdout, came.ended.exit_code, came.ended.reason) == (b'{"a":1}', 0, None)
    calls = recorded.calls()
    assert [call[0] for call in calls] == ["info", "create", "start", "container", "rm"]
    assert calls[2:] == [
        ["start", "--attach", "--interactive", ID],
        ["container", "inspect", ID],
        ["rm", "--force", "--volumes", ID],
    ]
    text = (recorded.folder / "calls").read_text()
    assert "A_SECRET_OF_THE_HOST" not in text
    assert "a secret" not in json.dumps(calls) and text.count("a secret") == 1
    assert recorded.backend.made == [] and [*(recorded.folder / "boxes").iterdir()] == []


async def test_who_stops_listening_removes_the_container_and_leaves_nothing(recorded: Recorded) -> None:
    (recorded.folder / "sleep").touch()
    async with aclosing(recorded.backend.run(recorded.launch(), stdin_of())) as outputs:  # type: ignore[type-var]
        async for output in outputs:
            assert output.data == b"began\n"
            break
    assert recorded.calls()[-1] == ["rm", "--force", "--volumes", ID]
    assert await asyncio.to_thread(processes_with, str(recorded.folder / "recorder")) == []
    assert [*(recorded.folder / "boxes").iterdir()] == []


async def test_cancelling_while_a_container_is_made_removes_it(recorded: Recorded) -> None:
    running = asyncio.create_task(collected(recorded.backend.run(recorded.launch(), stdin_of())))
    await until(lambda: (recorded.folder / "calls").exists() and "create" in (recorded.folder / "calls").read_text())
    running.cancel()
    await asyncio.wait([running])
    assert recorded.calls()[-1] == ["rm", "--force", "--volumes", ID]
    assert [*(recorded.folder / "boxes").iterdir()] == []


async def test_an_engine_that_makes_no_container_says_why(recorded: Recorded) -> None:
    (recorded.folder / "refuse").touch()
    came = await collected(recorded.backend.run(recorded.launch(), stdin_of()))
    assert came.ended.reason == "broken" and "made no container: no space left on device" in came.said
    foreign = SandboxLaunch(argv=["/usr/bin/uv"], limits=LIMITS)
    came = await collected(recorded.backend.run(foreign, stdin_of()))
    assert "/usr/bin/uv is in no image" in came.said
    channel = SandboxLaunch(argv=["python3"], limits=LIMITS, channel=True)
    assert "has no descriptors" in (await collected(recorded.backend.run(channel, stdin_of()))).said


async def test_without_an_engine_scripts_run_as_ever_and_the_reason_is_said(tmp_path: Path) -> None:
    async with host_of(tmp_path, images={"python": DIGEST}, engine="/nowhere/podman") as host:
        reports = {report.name: report for report in await Scripts(host).service.backends()}
        report = reports["tavern-containers:engine"]
        assert (report.usable, report.languages) == (False, ["python"])
        assert report.reason == "there is no /nowhere/podman on this machine: install podman or docker"
        usable = [one.chosen for one in reports.values() if one.usable and not one.languages]
        assert any(usable) == bool(usable)


async def test_a_client_without_its_engine_says_so(tmp_path: Path) -> None:
    docker = shutil.which("docker")
    if docker is None or (await asyncio.to_thread(run_command, docker, "info")).returncode == 0:
        pytest.skip("needs a docker client without an engine")
    async with host_of(tmp_path, images={"python": DIGEST}, engine=docker) as host:
        reports = {report.name: report for report in await Scripts(host).service.backends()}
        assert f"{docker} runs no containers: " in reports["tavern-containers:engine"].reason
        assert "daemon" in reports["tavern-containers:engine"].reason


async def test_a_language_without_an_image_has_no_such_sandbox(tmp_path: Path) -> None:
    async with host_of(tmp_path, images={}) as host:
        names = {report.name for report in await Scripts(host).service.backends()}
        assert "tavern-containers:engine" not in names


# --- with an engine -------------------------------------------------------------------------------


@pytest.fixture
async def containers(tmp_path: Path) -> AsyncIterator[Scripts]:
    engine, image = os.environ.get("TAVERN_CONTAINER_ENGINE"), os.environ.get("TAVERN_CONTAINER_IMAGE")
    if not engine or not image:
        pytest.skip("needs an engine of containers and an image with Python: see CONTRIBUTING.md")
    make_project(tmp_path / "project")
    settings = {f"{OWN}images": {"python": image}, f"{OWN}engine": engine, f"{PREFIX}memoryMegabytes": 128}
    async with Host(tmp_path / "project", settings=settings) as host:
        yield Scripts(host)


async def test_scripts_run_in_real_containers(containers: Scripts) -> None:
    (report,) = [one for one in await containers.service.backends() if one.name == "tavern-containers:engine"]
    assert report.chosen, report
    code = "import json, sys\nopen('kept.txt', 'w').write('x')\nprint(json.dumps([json.load(sys.stdin)]))"
    result = await containers.python(code, input_data={"a": 1}, config={"key": "v"})
    assert result.output_data == [{"a": 1}], result.error
    assert result.enforced is not None and result.enforced.backend == report.name
    assert [file.size for file in result.files] == [1]
    for code, type, said in (
        ("raise SystemExit(3)", ScriptErrorType.SCRIPT, "exit code 3"),
        ("kept = []\nwhile True: kept.append(b'x' * (1 << 20))", ScriptErrorType.RESOURCE, "memory"),
        ("import time\ntime.sleep(100)", ScriptErrorType.TIMEOUT, "did not end within"),
    ):
        assert said in await containers.error(type, code=code, language="python", timeout_ms=5000)
    asking = "# /// script\n# dependencies = ['x']\n# ///\n"
    said = await containers.error(ScriptErrorType.DEPENDENCY, code=asking, language="python")
    assert "brings its own" in said
    asked = [os.environ["TAVERN_CONTAINER_ENGINE"], "create", "--label=tavern-host=999999999"]
    orphan = (
        await asyncio.to_thread(run_command, *asked, os.environ["TAVERN_CONTAINER_IMAGE"], "python3")
    ).stdout.strip()
    assert orphan
    await remove_orphans(Engine(os.environ["TAVERN_CONTAINER_ENGINE"]))
    tasks = [asyncio.create_task(containers.python("import time\ntime.sleep(100)")) for _ in range(3)]
    await asyncio.sleep(1)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    left = await asyncio.to_thread(run_command, os.environ["TAVERN_CONTAINER_ENGINE"], "ps", "-aq")
    assert left.stdout.strip() == b""
