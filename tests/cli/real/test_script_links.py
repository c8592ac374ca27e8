"""No link leads what a script keeps, or is told of, out of the project."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from tavern_host import Host
from tavern_scripts.api.scripts import SCRIPT_EXECUTION, FileAccess, ScriptRequest, SecurityContext


@pytest.fixture
def project(project: Path, tmp_path: Path) -> Path:
    """Return an empty project, in whose parent is a folder with things of somebody else's."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "requirements.txt").write_text("secret-of-another: [x")
    return project


async def test_what_a_script_keeps_stays_in_the_project(project: Path, tmp_path: Path) -> None:
    scripts = project / "scripts"
    scripts.mkdir()
    code = "import os; open('/script/.cache/new', 'w'); print(len(os.listdir('/script/.cache')))"
    (scripts / "a.py").write_text(code)
    (tmp_path / "outside" / ".cache").mkdir()
    name = sha256(os.fsencode(scripts)).hexdigest()[:24]
    kept = project / ".tavern" / "plugins" / "tavern-scripts" / "kept" / name
    asked = SecurityContext(file_access=FileAccess(allow_write=[".cache/**"]))
    request = ScriptRequest(script_path="a.py", security_context=asked)
    async with Host(project) as host:
        service = host.services.get(SCRIPT_EXECUTION)
        assert (await service.run(request)).output_data == 1
        assert (kept / ".cache" / "new").exists()
        for link, target in ((kept, "outside"), (kept / ".cache", "outside/.cache")):
            link.rename(link.with_name("before"))
            link.symlink_to(tmp_path / target)
            error = (await service.run(request)).error
            told = "a link leads what is kept of .cache out of the project, and nothing is written there"
            assert error.message == told
            link.unlink()
            link.with_name("before").rename(link)
    assert list((tmp_path / "outside" / ".cache").iterdir()) == []


async def test_requirements_are_read_beside_the_script_alone(project: Path, tmp_path: Path) -> None:
    (project / "scripts").mkdir()
    (project / "scripts" / "a.py").write_text("print(1)")
    async with Host(project) as host:
        for name in ("requirements.txt", "pyproject.toml", "uv.lock", "a.py.lock"):
            link = project / "scripts" / name
            link.symlink_to(tmp_path / "outside" / "requirements.txt")
            result = await host.services.get(SCRIPT_EXECUTION).run(ScriptRequest(script_path="a.py"))
            assert "secret-of" not in result.model_dump_json()
            link.unlink()
