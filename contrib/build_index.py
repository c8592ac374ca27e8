"""`python contrib/build_index.py FOLDER`: builds wheels of the plugins beside this file, and an index that names them,
so that `tavern plugins install NAME` finds them. It needs hatchling. Those with a front end to build are left out."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
GROUP = "tavern_host.plugins"


def projects() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the folders here with what their `pyproject.toml` says, by name: those with one plugin, and no step of
    their own when they are built."""
    for file in sorted(HERE.glob("*/pyproject.toml")):
        said = tomllib.loads(file.read_text(encoding="utf-8"))
        hatch = said.get("tool", {}).get("hatch", {}).get("build", {})
        if len(said["project"]["entry-points"][GROUP]) == 1 and "hooks" not in hatch:
            yield file.parent, said["project"]


def entry(folder: Path, project: dict[str, Any], into: Path) -> dict[str, str]:
    """Build a plugin's wheel and return its entry in the index."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(into)]
    built = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if built.returncode != 0:
        sys.exit(f"{folder.name} cannot be built:\n{built.stderr}")
    (name,) = project["entry-points"][GROUP]
    (wheel,) = into.glob(f"{project['name'].replace('-', '_')}-{project['version']}-*.whl")
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    about = {"name": name, "version": project["version"], "summary": project["description"]}
    return {**about, "path": wheel.name, "sha256": sha256}


def main() -> None:
    """Write the wheels and `index.json` into the folder that is named."""
    if len(sys.argv) != 2:
        sys.exit("which folder? python contrib/build_index.py FOLDER")
    into = Path(sys.argv[1]).resolve()
    into.mkdir(parents=True, exist_ok=True)
    entries = [entry(folder, project, into) for folder, project in projects()]
    index = into / "index.json"
    index.write_text(json.dumps({"plugins": entries}, indent=2) + "\n", encoding="utf-8")
    print(f"{len(entries)} plugins are in {index}; to install them by name:")
    print(f"tavern settings set tavern-packages.index {index}")


if __name__ == "__main__":
    main()
