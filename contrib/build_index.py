"""`python contrib/build_index.py FOLDER`: builds wheels of the plugins beside this file, and an index that names them,
so that `tavern plugins install NAME` finds them. It needs hatchling. Those with a front end to build are left out."""

from __future__ import annotations

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


def build(folder: Path, project: dict[str, Any], into: Path) -> Path:
    """Build a plugin's wheel and return it."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(into)]
    built = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if built.returncode != 0:
        sys.exit(f"{folder.name} cannot be built:\n{built.stderr}")
    (wheel,) = into.glob(f"{project['name'].replace('-', '_')}-{project['version']}-*.whl")
    return wheel


def main() -> None:
    """Write the wheels and `index.json` into the folder that is named."""
    if len(sys.argv) != 2:
        sys.exit("which folder? python contrib/build_index.py FOLDER")
    into = Path(sys.argv[1]).resolve()
    into.mkdir(parents=True, exist_ok=True)
    wheels = [build(folder, project, into) for folder, project in projects()]
    index = into / "index.json"
    index.unlink(missing_ok=True)
    words = ["plugins", "index", *map(str, wheels), "--into", str(index)]
    subprocess.run([sys.executable, "-m", "tavern_host.cli", *words], check=True, stdout=subprocess.DEVNULL)
    print(f"{len(wheels)} plugins are in {index}; to install them by name:")
    print(f"tavern settings set tavern-packages.index {index}")


if __name__ == "__main__":
    main()
