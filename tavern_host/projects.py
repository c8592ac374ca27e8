"""Which project a host works on, and what the operator and the project say in their files.

The operator's `host.yaml` and the project's `tavern.yaml` are kept apart, so that a project that
somebody sent cannot bring its own permissions.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs
from pydantic import Field, JsonValue

from tavern_host.context import Project
from tavern_host.contracts.errors import InvalidInput, Misconfigured
from tavern_host.contracts.wire import Model
from tavern_host.plugins.operator_file import OperatorFile
from tavern_host.storage.files import write_atomic
from tavern_host.storage.yaml_file import InvalidFile, read_yaml

if TYPE_CHECKING:
    from tavern_host.contracts.manifest import Manifest

PROJECT_FILE, OPERATOR_FILE = "tavern.yaml", "host.yaml"
_APP = "tavern-host"
_OPERATORS = "this is the operator's to decide: write it in host.yaml, not in a project"


class ProjectFile(Model):
    """`tavern.yaml`: what a project says of itself."""

    name: str | None = None
    description: str | None = None
    settings: dict[str, JsonValue] = Field(default_factory=dict)


@dataclass(frozen=True)
class Folders:
    """Where the operator's files are: configuration, state (grants) and data (the default project)."""

    config: Path
    state: Path
    data: Path

    @classmethod
    def of_user(cls) -> Folders:
        """Return the folders of this user; `TAVERN_CONFIG_DIR` and its siblings take precedence."""

        def folder(variable: str, default: Path) -> Path:
            return Path(os.environ.get(variable) or default).expanduser().absolute()

        return cls(
            config=folder("TAVERN_CONFIG_DIR", platformdirs.user_config_path(_APP)),
            state=folder("TAVERN_STATE_DIR", platformdirs.user_state_path(_APP)),
            data=folder("TAVERN_DATA_DIR", platformdirs.user_data_path(_APP)),
        )

    def operator_file(self) -> OperatorFile:
        """Return `host.yaml`, or its defaults where there is none. Raises `InvalidFile`."""
        path = self.config / OPERATOR_FILE
        return read_yaml(path, OperatorFile) if path.exists() else OperatorFile()

    @property
    def packages(self) -> Path:
        """The folder of the plugins that were installed with `tavern plugins install`; see `contracts.packages`."""
        return self.state / "packages"

    def project_state(self, project: Project) -> Path:
        """Return the folder of what the operator decided about one project."""
        return self.state / "projects" / project.id

    def being_restored(self, project: Project) -> Path:
        """Return the file that is there while the project and its folder here are replaced, which takes two steps."""
        return self.project_state(project).with_name(f".{project.id}.restoring.lock")

    def kept(self, project: Project) -> list[Path]:
        """Return the folders with what is kept for one project, and for all of them together."""
        common = [path for path in self.state.glob("*/") if path.name != "projects"]
        return [project.private, self.project_state(project), *common]


@dataclass(frozen=True)
class OpenProject:
    """A project with its file. `is_new` where the folder is still to be made, which `make_project` does;
    finding a project writes nothing."""

    project: Project
    file: ProjectFile
    is_new: bool
    is_default: bool


def find_project(folder: Path | str | None, folders: Folders, *, create: bool = False) -> OpenProject:
    """Find the project and read its file.

    Order: `folder`, else `TAVERN_PROJECT`, else the current folder if it holds a `tavern.yaml`, else the
    default project in the user's data folder. Raises `InvalidInput` where a named folder is no project
    (with `create`, it is new instead) or where parts of one lead out of it, `InvalidFile` for a bad `tavern.yaml`.
    """
    named = folder or os.environ.get("TAVERN_PROJECT")
    if named:
        root = Path(named).expanduser().absolute()
    elif (Path.cwd() / PROJECT_FILE).is_file():
        root = Path.cwd()
    else:
        root = folders.data / "default"
    check_path(root)
    _refuse_links(root)
    if folders.being_restored(Project.of(root)).exists():
        raise Misconfigured(f"a restore of {root} has not ended: when it was interrupted, run `tavern restore` again")
    is_new = not (root / PROJECT_FILE).is_file()
    if is_new and named and not create:
        raise InvalidInput(f"{root} is not a project: it has no {PROJECT_FILE} (make one with `tavern init {root}`)")
    file = ProjectFile() if is_new else read_project_file(root)
    project = Project.of(root, file.name)
    return OpenProject(project, file, is_new, is_default=not named and root == folders.data / "default")


def check_path(path: Path | str) -> None:
    """Raise `InvalidInput` for the path of a project or plugin that is not UTF-8 and so cannot be written anywhere."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"the path {os.fsencode(path)!r} is not UTF-8: rename the folder") from None


def _refuse_links(root: Path) -> None:
    """Raise `InvalidInput` where a link leads a part of a project out of it: a project may come from anybody."""
    real = os.path.realpath(root)
    patterns = ("*", ".tavern/*", ".tavern/*/*", ".tavern/plugins/*/*")
    for link in (path for pattern in patterns for path in root.glob(pattern) if path.is_symlink()):
        part, leads_out = link.relative_to(root).parts[0], not Path(os.path.realpath(link)).is_relative_to(real)
        if leads_out and part in (PROJECT_FILE, "plugins", ".tavern", *_declared_folders()):
            message = f"{link} is a link that leads out of the project, and nothing of a project may"
            raise InvalidInput(f"{message}: put there what it leads to, or remove it")


def make_project(root: Path, samples: Iterable[Path] = ()) -> None:
    """Make a project in a folder: the folders that first-party plugins declare, the sample files, and a `tavern.yaml`
    if no sample has one. Raises `InvalidInput` where a part of it leads out of the folder."""
    check_path(root)
    _refuse_links(root)
    for part in ("plugins", ".tavern", *_declared_folders()):
        (root / part).mkdir(parents=True, exist_ok=True)
    for sample in samples:
        _copy_sample(sample, root)
    if not (root / PROJECT_FILE).exists():
        write_atomic(root / PROJECT_FILE, f"name: {json.dumps(root.name or 'project')}\n".encode())


def first_party_samples() -> list[Path]:
    """Return the folders of samples that the installed first-party plugins have."""
    return [root / one.sample.entry for root, one in _first_party() if one.sample is not None]


def _declared_folders() -> list[str]:
    return list(dict.fromkeys(name for _, one in _first_party() for name in one.project_folders))


@cache
def _first_party() -> tuple[tuple[Path, Manifest], ...]:
    """Return the folders and manifests of the installed first-party plugins, which stay what they are."""
    from tavern_host.plugins.discovery import discover

    found = [record for record in discover()[0].values() if record.first_party]
    return tuple((one.root, one.manifest) for one in found if one.root is not None and one.manifest is not None)


def read_project_file(root: Path) -> ProjectFile:
    """Return a project's `tavern.yaml`. Raises `InvalidFile`; keys that are the operator's are explained."""
    path = root / PROJECT_FILE
    try:
        return read_yaml(path, ProjectFile)
    except InvalidFile as error:
        operator_keys = [f"'{key}'" for key in OperatorFile.model_fields if key not in ProjectFile.model_fields]
        problems = [
            problem.model_copy(update={"hint": _OPERATORS})
            if any(k in problem.message for k in operator_keys)
            else problem
            for problem in error.problems
        ]
        raise InvalidFile(path, problems) from None


def _copy_sample(source: Path, root: Path) -> None:
    """Copy a plugin's sample files into a new project, never over an existing file."""
    for file in sorted(p for p in source.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
        target = root / file.relative_to(source)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(target, file.read_bytes())


def environment_settings() -> dict[str, Any]:
    """Return the settings in `TAVERN_SETTINGS`, a JSON object by full key. Raises `InvalidInput`."""
    text = os.environ.get("TAVERN_SETTINGS")
    if not text or not text.strip():
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"TAVERN_SETTINGS is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidInput('TAVERN_SETTINGS must be a JSON object, such as {"extensions.acme.key": 1}')
    return value
