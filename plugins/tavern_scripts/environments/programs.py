"""Programs that packages bring: what npm calls `bin`, and Python `console_scripts`. Reads what was installed; runs
nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tavern_host.contracts.errors import InvalidInput, Misconfigured
from tavern_scripts.api.scripts import PackagedProgram, ProgramPackage
from tavern_scripts.environments.jobs import MODULES, SITE
from tavern_scripts.environments.manifests import Manifest, NodeManifest, PythonManifest
from tavern_scripts.environments.packages import read_package
from tavern_scripts.environments.requirements import read_requirements
from tavern_scripts.results.refusal import Refused

_START = """
import site, sys
from importlib import import_module
folder, module, names, *sys.argv = sys.argv[1:]
site.addsitedir(folder)
found = import_module(module)
for name in names.split("."):
    found = getattr(found, name)
sys.exit(found())
"""


def manifest_of(wanted: ProgramPackage) -> Manifest:
    """Return the manifest that asks for the package of a program. Raises `InvalidInput` for what is no package."""
    source = f"the package {wanted.package}"
    try:
        if wanted.registry == "pypi":
            return PythonManifest(source, read_requirements(wanted.package, source))
        name, version = _npm_parts(wanted.package)
        return NodeManifest(source, read_package(json.dumps({"dependencies": {name: version}}), source))
    except Refused as refused:
        raise InvalidInput(str(refused)) from None


def program_of(wanted: ProgramPackage, environment: Path, interpreter: str) -> PackagedProgram:
    """Return the program of a package that was installed. Blocking. Raises `Misconfigured`."""
    make = _npm_program if wanted.registry == "npm" else _pypi_program
    return PackagedProgram(argv=make(wanted, environment, interpreter), folder=str(environment))


def _npm_program(wanted: ProgramPackage, environment: Path, node: str) -> list[str]:
    folder = environment / MODULES
    place = folder / _npm_parts(wanted.package)[0]
    try:
        about = json.loads((place / "package.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Misconfigured(f"the package {wanted.package} cannot be read: {error}") from None
    programs, own = about.get("bin"), str(about.get("name", "")).rpartition("/")[2]
    if isinstance(programs, str):
        programs = {own: programs}
    _, file = _chosen(programs if isinstance(programs, dict) else {}, own, wanted)
    program = (place / file).resolve()
    if not program.is_relative_to(folder.resolve()) or not program.is_file():
        raise Misconfigured(f"the package {wanted.package} has no file {file!r:.200}")
    return [node, str(program)]


def _pypi_program(wanted: ProgramPackage, environment: Path, python: str) -> list[str]:
    folder, own = environment / SITE, canonicalize_name(Requirement(wanted.package).name)
    found = next(iter(distributions(name=own, path=[str(folder)])), None)
    entries = found.entry_points if found is not None else ()
    name, value = _chosen({one.name: one.value for one in entries if one.group == "console_scripts"}, own, wanted)
    module, _, names = value.partition("[")[0].partition(":")
    return [python, "-I", "-S", "-c", _START, str(folder), module.strip(), names.strip(), name]


def _npm_parts(package: str) -> tuple[str, str]:
    name, _, version = package[1:].partition("@")
    return package[:1] + name, version or "*"


def _chosen(programs: Mapping[str, object], own: str, wanted: ProgramPackage) -> tuple[str, str]:
    """Return name and value of the program that is meant: the one that is named, that of the package's name, or the
    only one."""
    like = (one for one in programs if canonicalize_name(one) == canonicalize_name(own))
    name = wanted.program or next(like, None) or (next(iter(programs)) if len(programs) == 1 else None)
    if name is None or name not in programs:
        there = f"it has {', '.join(sorted(programs))}" if programs else "it has none"
        which = f"program {name!r:.100}" if name else "one program that is meant"
        raise Misconfigured(f"the package {wanted.package} has no {which}; {there}")
    return name, str(programs[name])
