"""What the plugin needs is in the wheel that its project builds."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from tavern_devtools.api.findings import CheckedPlugin
from tavern_devtools.manifests import checked_plugin
from tavern_devtools.rules.subject import Project, Subject
from tavern_host.contracts.manifest import Frontend
from tavern_host.contracts.plugins import MANIFEST, Problem

_SETUPTOOLS = "setuptools"


def check(subject: Subject) -> Iterator[Problem]:
    """Yield files that would be missing, as far as hatchling or the settings of setuptools say which there are."""
    project, folder = subject.project, subject.folder
    if project is None or not folder.is_relative_to(project.root):
        return
    build = str(project.table("build-system").get("build-backend", "setuptools.build_meta"))
    plugin = checked_plugin(folder, subject.info.name, is_loaded=False)
    wanted = [folder / MANIFEST, *_files(plugin)]
    if build.startswith("hatchling"):
        yield from _by_hatchling(project, folder, wanted)
    elif build.startswith(_SETUPTOOLS):
        yield from _by_setuptools(project, folder, wanted)
    yield from _unbuilt(plugin.part("frontend", Frontend), project, folder)


def _files(plugin: CheckedPlugin) -> list[Path]:
    """Return a file of each folder that the manifest names."""
    each = (sorted(Path(path).rglob("*")) for path in plugin.folders.values())
    found = (next((one for one in paths if one.is_file()), None) for paths in each)
    return [path for path in found if path is not None]


def _by_hatchling(project: Project, folder: Path, wanted: list[Path]) -> Iterator[Problem]:
    try:
        from hatchling.builders.wheel import WheelBuilder
    except ImportError:  # it is there where plugins are built
        return
    try:
        included = {Path(one.path).resolve() for one in WheelBuilder(str(project.root)).recurse_included_files()}
    except Exception as error:  # of the settings: hatchling says what is wrong
        yield Problem(
            message=f"hatchling cannot build it: {error}", hint="mend it there", file="pyproject.toml", line=1
        )
        return
    for path in wanted:
        if path.resolve() not in included:
            hint = f'name the package under [tool.hatch.build.targets.wheel]: packages = ["{_inner(project, folder)}"]'
            if (folder / MANIFEST).resolve() in included or path.suffix == ".py":
                hint = "say so under [tool.hatch.build]: artifacts, or take it out of .gitignore and `exclude`"
            yield _missing(project, path, hint)


def _by_setuptools(project: Project, folder: Path, wanted: list[Path]) -> Iterator[Problem]:
    data = project.table("tool", _SETUPTOOLS, "package-data")
    name = _inner(project, folder).replace("/", ".").removeprefix("src.")
    patterns = [one for key in (name, "*") for one in (data.get(key) or []) if isinstance(one, str)]
    has_list = (project.root / "MANIFEST.in").is_file()
    for path in wanted:
        inner = path.relative_to(folder).as_posix()
        if path.suffix != ".py" and not has_list and not any(_fits(inner, one) for one in patterns):
            hint = f'add [tool.setuptools.package-data] with {name} = ["{inner}", …]'
            yield _missing(project, path, hint)


def _fits(path: str, pattern: str) -> bool:
    return fnmatchcase(path, pattern.replace("**/", "*"))


def _unbuilt(front: Frontend | None, project: Project, folder: Path) -> Iterator[Problem]:
    build = front.build if front is not None and front.type != "vanilla" else None
    hooks = project.table("tool", "hatch", "build", "hooks") or project.table(
        "tool", "hatch", "build", "targets", "wheel", "hooks"
    )
    if build is not None and not hooks and not (folder / build.entry).is_file():
        message = f"the front end is not built: there is no {build.entry}"
        yield Problem(
            message=message,
            hint="build it before the wheel, or let a build hook do it",
            file=f"{folder.name}/{MANIFEST}",
            line=1,
        )


def _inner(project: Project, folder: Path) -> str:
    return folder.relative_to(project.root).as_posix()


def _missing(project: Project, path: Path, hint: str) -> Problem:
    message = f"{path.relative_to(project.root).as_posix()} would not be in the wheel"
    return Problem(message=message, hint=hint, file="pyproject.toml", line=1)
