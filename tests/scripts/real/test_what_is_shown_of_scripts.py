"""What is shown of scripts and their settings: no path of this machine, what is in force, and who ran what."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from helpers.command_line import tavern

from tavern_host import Host
from tavern_scripts.api.scripts import SCRIPT_EXECUTION, ScriptRequest
from tavern_scripts.sandbox import choose as choosing

FAILS = """
import json, os, sys
print(sys.path, sys.executable, os.getcwd(), file=sys.stderr)
json.loads("[")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with a script that fails."""
    folder = tmp_path / "inn"
    assert tavern("init", "--empty", folder).code == 0
    (folder / "scripts").mkdir()
    (folder / "scripts" / "fails.py").write_text(FAILS)
    return folder


@pytest.mark.parametrize("unsandboxed", [False, True])
async def test_no_path_of_this_machine_is_shown(
    project: Path, unsandboxed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "extensions.tavern-scripts.unsafeAllowUnsandboxed"
    requests = [ScriptRequest(script_path=name) for name in ("fails.py", "absent.py")]
    requests += [ScriptRequest(code=FAILS, language="python", session=name) for name in (None, "sums")]
    async with Host(project, settings={key: unsandboxed}) as host:
        if unsandboxed:
            requests = requests[:3]
            monkeypatch.setattr(choosing, "find_bubblewrap", list)
        for request in requests:
            result = await host.services.get(SCRIPT_EXECUTION).run(request)
            assert result.enforced is None or (result.enforced.backend == "unsandboxed") == unsandboxed
            shown = result.model_dump_json()
            assert "JSONDecodeError" in shown or "there is no script 'absent.py' in the folder scripts" in shown
            for place in (project, Path(sys.executable).resolve().parent.parent):
                assert str(place) not in shown
        code = "import json, sys; print(json.load(sys.stdin), file=sys.stderr); print(1)"
        texts = {f"{project}/a": "<project>/a", f"{project}a": f"{project}a", f"x{project}": f"x{project}"}
        for text, hidden in texts.items():  # whole paths only
            request = ScriptRequest(code=code, language="python", input_data=text)
            assert (await host.services.get(SCRIPT_EXECUTION).run(request)).logs == [hidden]


def test_projects_do_not_decide_operators_settings(project: Path) -> None:
    options = {"tavern-scripts.unsafeAllowUnsandboxed": True, "tavern-scripts.memoryMegabytes": 9999}
    options |= {"tavern-tools.callbackHosts": ["*:80"], "tavern-tools.nodeTools": ["*"], "tavern-tools.access": {}}
    options |= {"tavern-operations.webhook": "http://127.0.0.1:9/", "tavern-operations.alarmDenials": 0}
    settings = {f"extensions.{key}": value for key, value in options.items()}
    (project / "tavern.yaml").write_text(json.dumps({"settings": settings}))
    listed = {value["key"]: value for value in tavern("--project", project, "settings", "list", "--json").json()}
    warned = tavern("--project", project, "settings", "list").err
    for key, value in settings.items():
        assert (listed[key]["value"], listed[key]["origin"]) != (value, "project")
        assert f"the project's setting {key!r} does not count: it is the operator's to decide" in warned
    assert listed["extensions.tavern-scripts.unsafeAllowUnsandboxed"]["value"] is False
    assert asyncio.run(memory_of(project)) == 512 << 20


async def memory_of(project: Path) -> float:
    async with Host(project) as host:
        request = ScriptRequest(code="1", language="python")
        return (await host.services.get(SCRIPT_EXECUTION).review(request)).limits.memory


def test_the_operators_scripts_are_audited_as_theirs(project: Path) -> None:
    (project / "scripts" / "one.py").write_text("print(1)")
    tavern("--project", project, "scripts", "run", project / "scripts" / "one.py")
    entries = tavern("--project", project, "audit", "tail", "--json").json()
    assert [entry["actor"] for entry in entries if entry["action"] == "script.ran"] == ["user:operator"]
