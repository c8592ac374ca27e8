"""`plugin.yaml` as a frozen model (`spec/000` §6.2, §15.1.1, §17.1, and our additions).

Reading a manifest imports nothing of the plugin.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, Field, JsonValue, model_validator

from tavern_host.contracts.plugins import FrontendInfo
from tavern_host.contracts.wire import Model
from tavern_host.yamlfile import read_yaml

MANIFEST = "plugin.yaml"
RESERVED = "tavern-host"
"""The name under which the host provides services of its own."""
_KEBAB = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def _name(value: str) -> str:
    if not _KEBAB.fullmatch(value):
        raise ValueError("must be kebab-case: lower-case letters and digits, words joined by '-'")
    if value == RESERVED:
        raise ValueError(f"must be another name; {RESERVED!r} is the host itself")
    return value


def _version(value: str) -> str:
    try:
        Version(value)
    except InvalidVersion:
        raise ValueError("must be a version such as 1.0.0") from None
    return value


def _range(value: str) -> str:
    try:
        SpecifierSet(value)
    except InvalidSpecifier:
        raise ValueError("must be a version range such as '>=0.1,<0.2'") from None
    return value


def _inside(value: str) -> str:
    parts = Path(value).parts
    if not value or Path(value).is_absolute() or ".." in parts:
        raise ValueError("must be a path inside the plugin's folder")
    return value


Name = Annotated[str, AfterValidator(_name)]
VersionText = Annotated[str, AfterValidator(_version)]
Range = Annotated[str, AfterValidator(_range)]
InnerPath = Annotated[str, AfterValidator(_inside)]


class Entry(Model):
    """A folder or file of the plugin."""

    entry: InnerPath


class NodesEntry(Entry):
    """Where node modules are; `namespace` defaults to the plugin's name, `core` is first-party only."""

    namespace: str | None = None


class FrontendBuild(Model):
    """A built front end; `output_dir` defaults to the folder of the entry."""

    entry: InnerPath
    styles: list[InnerPath] = Field(default_factory=list)
    output_dir: InnerPath | None = None


class FrontendVanilla(Model):
    """Hand-written files; a theme has `styles` and no `entry`."""

    entry: InnerPath | None = None
    styles: list[InnerPath] = Field(default_factory=list)
    root_dir: InnerPath = "web"


class Frontend(Model):
    """The browser part of a plugin."""

    type: Literal["vite", "vanilla"] | None = None
    dev: Entry | None = None
    build: FrontendBuild | None = None
    vanilla: FrontendVanilla | None = None

    def folder(self) -> str | None:
        """Return the folder whose files are served under `/plugins/{name}/`, or None."""
        if self.vanilla is not None and self.type != "vite":
            return self.vanilla.root_dir
        if self.build is not None:
            return self.build.output_dir or str(Path(self.build.entry).parent)
        return None

    def info(self, plugin: str) -> FrontendInfo | None:
        """Return the addresses at which a browser finds the front end."""
        part = self.vanilla if self.vanilla is not None and self.type != "vite" else self.build
        folder = self.folder()
        if part is None or folder is None:
            return None

        def url(path: str) -> str:
            inner = Path(path)
            inner = inner.relative_to(folder) if inner.is_relative_to(folder) else inner
            return f"/plugins/{plugin}/{inner.as_posix()}"

        return FrontendInfo(
            entry_url=url(part.entry) if part.entry else None, style_urls=[url(style) for style in part.styles]
        )


class UiPermissions(Model):
    """What of the user interface a plugin touches."""

    wrap: list[str] = Field(default_factory=list)
    inject: list[str] = Field(default_factory=list)
    override: list[str] = Field(default_factory=list)


class ServicePermissions(Model):
    """Which services a plugin replaces, and which acting methods it uses."""

    override: list[str] = Field(default_factory=list)
    use: list[str] = Field(default_factory=list)


class Permissions(Model):
    """What a plugin asks for (DESIGN §3, *Permissions*)."""

    hooks: list[str] = Field(default_factory=list)
    ui: UiPermissions = Field(default_factory=UiPermissions)
    services: ServicePermissions = Field(default_factory=ServicePermissions)


class Requires(Model):
    """What must be there: other plugins, each with a version range."""

    plugins: dict[Name, Range] = Field(default_factory=dict)


class Runtime(Model):
    """Where the plugin may run, and the wire version it was written for."""

    placement: Literal["any", "in-process", "process"] = "any"
    wire: int = 1


class Manifest(Model):
    """A plugin's manifest."""

    name: Name
    display_name: str
    version: VersionText
    description: str | None = None
    api_version: Range = ">=0.1"
    requires: Requires = Field(default_factory=Requires)
    runtime: Runtime = Field(default_factory=Runtime)
    nodes: NodesEntry | None = None
    tools: Entry | None = None
    workflows: Entry | None = None
    sample: Entry | None = None
    frontend: Frontend | None = None
    config_options: list[dict[str, JsonValue]] = Field(default_factory=list)
    permissions: Permissions = Field(default_factory=Permissions)

    @model_validator(mode="after")
    def _options_are_its_own(self) -> Manifest:
        prefix = f"extensions.{self.name}."
        for option in self.config_options:
            key = option.get("key")
            if not isinstance(key, str) or not key.startswith(prefix) or key == prefix:
                raise ValueError(f"configOptions: the key {key!r} must begin with '{prefix}'")
        return self


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a plugin folder. Raises `InvalidFile`, `FileNotFoundError`."""
    path = folder / MANIFEST
    return read_yaml(path, Manifest, label=f"{folder.name}/{MANIFEST}")
