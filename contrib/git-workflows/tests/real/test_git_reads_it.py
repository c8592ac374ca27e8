"""What the plugin writes is a repository that git itself reads, clones and finds nothing wrong with."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

from tavern_host import WORKFLOW_MANAGER, CallContext, Host
from tavern_host.contracts.calls import Principal
from tavern_host.contracts.workflows import Workflow

pytestmark = [
    pytest.mark.tavern(plugins=["../../git_workflows"]),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]


async def git(*arguments: str | Path) -> str:
    """Return git's output."""
    done = await asyncio.to_thread(subprocess.run, ["git", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_git_clones_it(host: Host, tavern_project: Path, tmp_path: Path) -> None:
    workflows = host.services.get(WORKFLOW_MANAGER)
    call = CallContext(principal=Principal(kind="user", id="ada"))
    for id, name in (("tale", "One"), ("sub/other", "Other"), ("tale", "Two")):
        await workflows.save(id, Workflow(name=name), call=call)
    repository = tavern_project / ".tavern" / "plugins" / "git-workflows" / "workflows.git"
    copy = tmp_path / "copy"
    await git("--git-dir", repository, "fsck", "--strict")
    await git("clone", repository, copy)
    log = await git("-C", copy, "log", "--format=%an <%ae> %s", "--follow", "workflows/tale.json")
    assert log.splitlines() == ["ada <user.ada@tavern.invalid> Save tale"] * 2
    assert '"name": "Two"' in (copy / "workflows" / "tale.json").read_text()
