"""Lets what was installed in a folder of its own be imported, after all other modules: one version of it at a time.

Such a folder is `DISTRIBUTION/VERSION` in the operator's folder of packages.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

SEARCHED: set[str] = set()
"""The real paths of all folders that are, or were, searched."""


def search(path: Path) -> Callable[[], None]:
    """Search a folder for modules, in the place of that of another version; return what undoes that."""

    before = [place for place in sys.path if Path(place).parent == path.parent]

    def put(places: list[str]) -> None:
        sys.path[:] = [*(place for place in sys.path if Path(place).parent != path.parent), *places]
        importlib.invalidate_caches()

    SEARCHED.add(os.path.realpath(path))
    put([str(path)])
    return lambda: put(before)


def imported_otherwise(path: Path, package: str) -> list[str]:
    """Return the distributions in a folder of which the process has imported another version, out of another folder.
    The modules of the plugin's own `package` do not count, since they are imported again."""
    import importlib_metadata  # which a process of a plugin does not need

    packages = f"{path.parents[1]}{os.sep}"
    imported: dict[str, Path] = {}
    for name, module in sys.modules.copy().items():
        file = getattr(module, "__file__", None) or ""
        if file.startswith(packages) and name.partition(".")[0] != package:
            distribution, version, inner = file.removeprefix(packages).split(os.sep, 2)
            imported[inner] = Path(packages, distribution, version)
    found = []
    for one in importlib_metadata.distributions(path=[str(path)]) if imported else ():
        places = {imported[str(file)] for file in one.files or () if str(file) in imported}
        there = [importlib_metadata.distributions(name=one.name, path=[str(place)]) for place in places]
        if any(next((found.version for found in each), None) != one.version for each in there):
            found.append(one.name)
    return sorted(found)
