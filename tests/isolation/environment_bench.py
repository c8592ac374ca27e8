"""Environments of plugins for tests: distributions that are written by hand, a builder of a real host, and a process
that has an environment and the host's own code, and nothing else."""

from __future__ import annotations

import os
import subprocess
import zipfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.plugin_files import write
from helpers.wheel_maker import wheel

from tavern_host import Host, PluginContext
from tavern_host.projects import make_project
from tavern_isolation.environment import Builds, Environment, environment_of
from tavern_isolation.package_check import check_against
from tavern_scripts.api.environments import package_builder
from tests.scripts.sandboxes import bubblewrap

ROOT = Path(__file__).parents[2]


def install(site: Path, name: str, version: str = "1.0", files: dict[str, str] | None = None, *requires: str) -> Path:
    """Write an installed distribution with one module, or with these files; return the folder of its metadata."""
    site.mkdir(parents=True, exist_ok=True)
    made = wheel(site, name, version, files or {f"{name}.py": f"version = {version!r}"}, requires=requires)
    with zipfile.ZipFile(made) as opened:
        opened.extractall(site)
    made.unlink()
    return site / f"{name}-{version}.dist-info"


@dataclass
class Bench:
    """Environments of plugins in a folder, and what is said while they are made."""

    folder: Path
    context: PluginContext
    builds: Builds
    reports: list[str] = field(default_factory=list)

    async def of(self, project: str | None = None, *, requirements: str | None = None, **asked: Any) -> Environment:
        """Return the environment of a folder with this `pyproject.toml` or `requirements.txt`."""
        root = self.folder / "acme_notes"
        root.mkdir(exist_ok=True)
        for name, text in (("pyproject.toml", project), ("requirements.txt", requirements)):
            (root / name).unlink(missing_ok=True)
            if text is not None:
                write(root / name, text)
        return await environment_of("acme-notes", root=root, builds=self.builds, **asked)

    async def requiring(self, *lines: str, **asked: Any) -> Environment:
        """Return the environment of a folder that requires this."""
        return await self.of(project(*lines), **asked)

    def said(self, environment: Environment, code: str, *paths: Path) -> str:
        """Return what code prints in a process that has an environment, and these folders besides."""
        seen = self.folder / environment.hash
        for name, source in environment.packages.items():
            (seen / name).parent.mkdir(parents=True, exist_ok=True)
            if not (seen / name).exists():
                (seen / name).symlink_to(source)
        path = os.pathsep.join(map(str, [*paths, *environment.folders, seen]))
        argv = [str(environment.interpreter), "-S", "-B", "-c", code]
        done = subprocess.run(argv, env={"PYTHONPATH": path}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def project(*lines: str, name: str = "acme-notes", **table: str) -> str:
    """Return a `pyproject.toml` that requires this."""
    more = "".join(f"{key.replace('_', '-')} = {value!r}\n" for key, value in table.items())
    return f"[project]\nname = {name!r}\n{more}dependencies = {list(lines)!r}\n"


@asynccontextmanager
async def bench(folder: Path, *, database: str = "", accepted: Sequence[str] = ()) -> AsyncIterator[Bench]:
    """Give a bench with the builder of a real host."""
    make_project(folder / "project")
    async with Host(folder / "project") as host:
        context = host._manager.active["tavern-isolation"].context
        reports: list[str] = []
        builder = package_builder(context, folder / "environments", bubblewrap())
        check = check_against(context, "acme-notes", database, accepted)
        yield Bench(folder, context, Builds(builder, reports.append, check), reports)
