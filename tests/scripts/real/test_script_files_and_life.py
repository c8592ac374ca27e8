"""Files that scripts read and leave; what is left of a script that was cancelled; which sandbox is in force."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from pathlib import Path

import pytest
from helpers.repetition import Failures

from tavern_host import Host
from tavern_host.contracts.audit import AUDIT
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_host.projects import make_project
from tavern_scripts.api.scripts import SCRIPT_EXECUTION, ScriptErrorType, ScriptRequest
from tavern_scripts.results.project_files import copy_in, copy_out
from tests.scripts.sandboxes import processes_with
from tests.scripts.scripthost import Scripts, scripts_of

pytestmark = pytest.mark.asyncio(loop_scope="module")


def files_of(scripts: Scripts) -> list[str]:
    """Return the files in the project's files folder."""
    root = scripts.host.project.folder("files")
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


# --- files ----------------------------------------------------------------------------------------


async def test_a_script_reads_the_files_that_it_was_given_and_no_others(scripts: Scripts) -> None:
    scripts.put("data/a.csv", "1,2", folder="files")
    scripts.put("data/b.csv", "3,4", folder="files")
    code = """
import json, os
root = os.environ["TAVERN_FILES"]
paths = [os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names]
print(json.dumps({os.path.relpath(path, root): open(path).read() for path in paths}))
"""
    assert await scripts.output(code=code, language="python", files=["/data/a.csv"]) == {"data/a.csv": "1,2"}
    fail = "open('/files/data/a.csv', 'a')"
    assert "Error" in await scripts.error(ScriptErrorType.SCRIPT, code=fail, language="python", files=["data/a.csv"])


async def test_a_file_that_is_none_cannot_be_given(scripts: Scripts) -> None:
    root = scripts.host.project.folder("files")
    scripts.put("data/a.csv", "1", folder="files")
    (root / "link.txt").symlink_to("../tavern.yaml")
    (root / "folder").symlink_to("..")
    os.mkfifo(root / "pipe")
    with Failures() as failures:
        for path in ("nowhere.txt", "../tavern.yaml", "link.txt", "folder/tavern.yaml", "data", "", "pipe"):
            with failures.row(path), pytest.raises(NotFound if path == "nowhere.txt" else InvalidInput):
                await scripts.python("1", files=[path])


async def test_files_that_a_script_leaves_are_kept_in_the_project(scripts: Scripts) -> None:
    code = """
import os
os.makedirs("charts")
open("charts/plot.png", "wb").write(b"\\x89PNG")
open(os.path.join(os.environ["TAVERN_OUTPUT"], "数据.csv"), "w").write("1")
"""
    result = await scripts.python(code)
    assert result.error is None
    folder = result.files[0].path.split("/")[1]
    assert [(file.path, file.size, file.mime_type) for file in result.files] == [
        (f"scripts/{folder}/charts/plot.png", 4, "image/png"),
        (f"scripts/{folder}/数据.csv", 1, "text/csv"),
    ]
    assert files_of(scripts) == [file.path for file in result.files]
    assert (scripts.host.project.folder("files") / result.files[0].path).read_bytes() == b"\x89PNG"
    failed = await scripts.python("open('a.txt', 'w').write('x')\nraise SystemExit(1)")
    assert (failed.files, files_of(scripts)) == ([], [file.path for file in result.files])


async def test_what_is_not_kept_is_told(tmp_path: Path) -> None:
    many = "for n in range(5): open(f'{n}.txt', 'w').close()"
    odd = "open('bad\\nname', 'w').close(); open('good', 'w').write('x')\nimport os; os.symlink('/etc/passwd', 'link')"
    async with scripts_of(tmp_path, maxFiles=2, concurrentRuns=4) as scripts:
        result, left = await scripts.python(many), await scripts.python(odd)
        assert [file.path[-5:] for file in result.files] == ["0.txt", "1.txt"]
        assert result.logs == ["'2.txt' and what comes after it is not kept: more than 2 files"]
        assert [file.path.rpartition("/")[2] for file in left.files] == ["good"]
        assert [name for name in ("link", "bad") if name not in "".join(left.logs)] == []
        results = await asyncio.gather(*(scripts.python(f"print({n})") for n in range(12)))  # many at once end well
        assert [result.output_data for result in results] == list(range(12))


async def test_room_and_second_names_bound_what_is_copied(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in "abc":
        (source / name).write_text("12")
    (tmp_path / "twin").hardlink_to(source / "c")
    assert copy_in(source, ["a", "b"], tmp_path / "in", most=4) == ["a", "b"]
    with pytest.raises(InvalidInput, match="no room left for 'b'"):
        copy_in(source, ["a", "b"], tmp_path / "less", most=3)
    kept = copy_out(source, tmp_path / "files", "run", most_files=3, most_bytes=2)
    assert [file.path for file in kept.files] == ["scripts/run/a"]
    assert kept.notes == ("'b' is not kept: there is no room left for it", "'c' is not kept: it is no file of its own")


async def test_a_link_in_the_project_does_not_lead_files_astray(scripts: Scripts, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (scripts.host.project.folder("files") / "scripts").symlink_to(outside)
    result = await scripts.python("open('a.txt', 'w').close()")
    assert (result.files, list(outside.iterdir())) == ([], [])
    assert "is not kept" in result.logs[0]


# --- the life of a run ----------------------------------------------------------------------------


FAMILY = """
import os, subprocess, sys, time
stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
for _ in range(3):
    subprocess.Popen([sys.executable, "-c", stubborn, sys.argv[1]], start_new_session=True)
print("::progress begun", file=sys.stderr, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["cancelled", "closed", "timeout"])
async def test_nothing_is_left_of_a_script_that_is_ended(scripts: Scripts, how: str) -> None:
    mark = f"mark-{os.urandom(6).hex()}"
    scripts.put("family.py", FAMILY)
    timeout_ms = 1500 if how == "timeout" else None
    request = ScriptRequest(command=f"python family.py {mark}", timeout_ms=timeout_ms)
    begun = asyncio.Event()

    async def follow() -> None:
        async with aclosing(scripts.service.stream(request)) as events:  # type: ignore[type-var]
            async for event in events:
                if event.kind == "progress":
                    begun.set()
                    if how == "closed":
                        return

    task = asyncio.create_task(follow())
    waiting = asyncio.create_task(begun.wait())  # its time may be over before it begins
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if how == "cancelled":
        assert processes_with(mark, everywhere=True)
        task.cancel()
    await asyncio.wait([task])
    assert processes_with(mark, everywhere=True) == []
    assert list((scripts.host.project.private / "plugins" / "tavern-scripts" / "runs").glob("*/*/*")) == []


async def test_a_host_leaves_no_script_behind(tmp_path: Path) -> None:
    mark = f"mark-{os.urandom(6).hex()}"
    runs = tmp_path / "project" / ".tavern" / "plugins" / "tavern-scripts" / "runs"
    make_project(tmp_path / "project")
    (runs / "abc" / "run").mkdir(parents=True)
    (runs / "abc" / "in-use").touch()  # of a host that was killed
    async with scripts_of(tmp_path) as scripts:
        scripts.put("family.py", FAMILY)
        task = asyncio.create_task(scripts.run(command=f"python family.py {mark}"))
        while not processes_with(mark, everywhere=True):
            await asyncio.sleep(0.02)
        assert not (runs / "abc").exists()
    await asyncio.wait([task])
    assert processes_with(mark, everywhere=True) == []
    assert task.cancelled() or task.exception() is not None or task.result().error is not None
    assert not list(runs.iterdir())


async def test_who_ran_what_is_in_the_audit_log_without_code_and_data(scripts: Scripts) -> None:
    await scripts.python("print('a secret')", input_data="another secret", tool_id="acme:tool")
    (entry,) = [e for e in await scripts.host.services.get(AUDIT).tail() if e.subject == "acme:tool"]
    assert (entry.action, entry.details["success"], entry.details["language"]) == ("script.ran", True, "python")
    assert "secret" not in entry.model_dump_json()


# --- sandboxes ------------------------------------------------------------------------------------


BACKEND = """
from tavern_host import hookimpl
from tavern_scripts.api.scripts import IsolationCheck, SandboxOutput, ScriptBackendInfo


class Parrot:
    def __init__(self, context):
        self.context = context

    async def prove(self):
        return [IsolationCheck(name="cage", holds=HOLDS, observed="a parrot")]

    async def prepare(self, launch):
        pass

    async def run(self, launch, stdin):
        async for data in stdin:
            yield SandboxOutput(kind="stdout", data=data)
        yield SandboxOutput(kind="ended", exit_code=0)


@hookimpl
def tavern_register_script_backends():
    return [ScriptBackendInfo(name="parrot", handler=f"{Parrot.__module__}:Parrot")]
"""


@pytest.mark.parametrize(("holds", "backend"), [(True, "acme:parrot"), (False, None)])
async def test_a_plugin_brings_a_sandbox_of_its_own(tmp_path: Path, holds: bool, backend: str | None) -> None:
    plugin = tmp_path / "acme"
    plugin.mkdir()
    (plugin / "__init__.py").write_text(BACKEND.replace("HOLDS", str(holds)))
    (plugin / "plugin.yaml").write_text(
        "name: acme\ndisplayName: Acme\nversion: 1.0.0\n"
        'permissions: {hooks: ["hook:server:scripts:register-backends"]}\n'
    )
    make_project(tmp_path / "project")
    async with Host(tmp_path / "project", plugins=[plugin], trust=["acme"]) as host:
        assert host.plugin("acme").problems == []
        service = host.services.get(SCRIPT_EXECUTION)
        reports = {report.name: report for report in await service.backends()}
        assert (reports["acme:parrot"].usable, reports["acme:parrot"].chosen) == (holds, holds)
        if backend is not None:
            result = await service.execute(code="whatever", language="python", input_data={"said": "hello"})
            assert result.output_data == {"said": "hello"}
            assert result.enforced is not None and result.enforced.backend == backend
