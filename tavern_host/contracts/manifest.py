"""A plugin's manifest, `plugin.yaml`, as a frozen model. `tavern_host.plugins.manifest` reads and checks the file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from tavern_host.contracts.names import plugin_name
from tavern_host.contracts.services import Level
from tavern_host.contracts.settings import SettingItem
from tavern_host.contracts.ui import FrontendCommand, FrontendFiles, FrontendInfo, FrontendPanel, UiDeclaration
from tavern_host.contracts.wire import Model

CLIENT_HOOKS: dict[str, str] = {
    "hook:client:workflow:before-execute": (
        "See a workflow's inputs in the browser before it is run, and change them or stop the run."
    ),
    "hook:client:node:render:after": "Change how a node looks after it was drawn.",
    "hook:client:settings:before-save": "See settings before they are saved, and change or refuse them.",
    "hook:client:auth:login": "Do something in the browser after somebody logged in.",
}
"""Hooks that a plugin's front end implements, each with what it allows."""

_CLIENT = "hook:client:"
_VERB_FIRST = re.compile(r"(?<=:)([a-z-]+):(before|after)$")
_MOMENT_FIRST = re.compile(r"(?<=:)(before|after)-([a-z-]+)$")

ALIASES: dict[str, str] = {
    spelling: name
    for name in CLIENT_HOOKS
    for whole in (_MOMENT_FIRST.sub(r"\2:\1", name), _VERB_FIRST.sub(r"\2-\1", name))
    for spelling in (whole, whole.removeprefix(_CLIENT))
    if spelling != name
}
"""Other names of client hooks, each with the name that the host uses: the ComfyTavern documents write `save:before` as
well as `before-save`, and leave out what stands before the name."""


def canonical(name: str) -> str:
    """Return the name that the host uses for a hook's permission."""
    return _VERB_FIRST.sub(r"\2-\1", name) if name.startswith("hook:server:") else ALIASES.get(name, name)


_EVENT_PATTERN = re.compile(r"[A-Za-z][\w.-]*\*?|\*")


def _version(value: str) -> str:
    from packaging.version import InvalidVersion, Version

    try:
        Version(value)
    except InvalidVersion:
        raise ValueError("must be a version such as 1.0.0") from None
    return value


def _range(value: str) -> str:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        SpecifierSet(value)
    except InvalidSpecifier:
        raise ValueError("must be a version range such as '>=0.1,<0.2'") from None
    return value


def _icon(value: str) -> str:
    if not value or (len(value) > 2 and not re.fullmatch(r"[a-z]{3,16}", value) and value.isascii()) or len(value) > 16:
        raise ValueError("must be one or two letters, an emoji, or the name of an icon such as 'book'")
    return value


def _folder_name(value: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", value):
        raise ValueError("must be the name of one folder, in lower case")
    return value


def _inside(value: str) -> str:
    parts = Path(value).parts
    if not value or Path(value).is_absolute() or ".." in parts:
        raise ValueError("must be a path inside the plugin's folder")
    if "__pycache__" in parts:
        raise ValueError("must not lead through __pycache__, where only Python keeps files")
    return value


Name = Annotated[str, AfterValidator(plugin_name)]
VersionText = Annotated[str, AfterValidator(_version)]
Range = Annotated[str, AfterValidator(_range)]
InnerPath = Annotated[str, AfterValidator(_inside)]
Icon = Annotated[str, AfterValidator(_icon)]
FolderName = Annotated[str, AfterValidator(_folder_name)]


class Entry(Model):
    """A folder or file of the plugin."""

    entry: InnerPath


class ModulesEntry(Entry):
    """A module or package whose contents have a namespace, by default the plugin's name; `core` is first-party only."""

    namespace: str | None = None


ENTRY_FILES: Mapping[str, str] = {
    "nodes": "*.py",
    "tools": "*.tool.json",
    "workflows": "*.json",
    "agents": "*.json",
    "knowledge": "*.json",
    "triggers": "*.json",
    "sample": "tavern.yaml",
    "locale": "*.json",
}
"""What the files of each entry are like, by its key: a folder of that name with such a file was meant to be one."""

PACKAGES = "node_modules"
"""The folder with what a front end is built with, beside its sources."""


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
    """The browser part of a plugin. `mode` is where its code runs: in the page, or for its panels alone in frames that
    reach nothing."""

    type: Literal["vite", "vanilla"] | None = None
    mode: Literal["page", "sandbox"] = "page"
    commands: list[FrontendCommand] = Field(default_factory=list)
    panels: list[FrontendPanel] = Field(default_factory=list)
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

    def part(self) -> FrontendBuild | FrontendVanilla | None:
        """Return the file that a browser loads."""
        return self.vanilla if self.vanilla is not None and self.type != "vite" else self.build

    def info(
        self, plugin: str, files: FrontendFiles | None = None, declared: Sequence[UiDeclaration] = ()
    ) -> FrontendInfo | None:
        """Return the front end as the page knows it; of one that is loaded, with its files and declarations."""
        part, folder = self.part(), self.folder()
        if part is None or folder is None:
            return None

        def url(path: str) -> str:
            inner = Path(path)
            inner = inner.relative_to(folder) if inner.is_relative_to(folder) else inner
            return f"/plugins/{plugin}/{files.version if files is not None else ''}{inner.as_posix()}"

        return FrontendInfo(
            entry_url=url(part.entry) if part.entry else None,
            style_urls=[url(style) for style in part.styles],
            mode=self.mode,
            commands=self.commands,
            panels=self.panels,
            declarations=[*declared],
            dev_entry=self.dev.entry if self.dev is not None else None,
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


def _pattern(value: str) -> str:
    if not _EVENT_PATTERN.fullmatch(value):
        raise ValueError("must be an event type such as NODE_ERROR, or begin one and end with '*': NODE_*")
    return value


HookName = Annotated[str, AfterValidator(canonical)]
EventPattern = Annotated[str, AfterValidator(_pattern)]


class EventPermissions(Model):
    """Which events of others a plugin reads, and which types that are not its own it publishes; patterns may
    end with `*`. Types that begin with the plugin's name and a dot are its own and need no permission."""

    subscribe: list[EventPattern] = Field(default_factory=list)
    publish: list[EventPattern] = Field(default_factory=list)


class Permissions(Model):
    """What a plugin asks for; the operator decides what of it is granted."""

    hooks: list[HookName] = Field(default_factory=list)
    ui: UiPermissions = Field(default_factory=UiPermissions)
    services: ServicePermissions = Field(default_factory=ServicePermissions)
    events: EventPermissions = Field(default_factory=EventPermissions)


class PublishedPermission(Model):
    """A permission to act on a published service: its name (`{service}:{verb}`), level, and what it allows."""

    name: str
    level: Level = "intercept"
    allows: str


class PublishedService(Model):
    """A service interface of the plugin's own. `name` begins with the plugin's name and a dot; `interface` is
    `module:Class` inside the plugin's package. A plugin that uses or overrides it names this one in `requires`.

    Names of first-party plugins need no beginning, and nobody who uses them says so in `requires`; `records` are the
    first words of what only providers of such a service record in the audit log."""

    name: str
    interface: str
    permissions: list[PublishedPermission] = Field(default_factory=list)
    records: list[str] = Field(default_factory=list)

    @property
    def is_prefixed(self) -> bool:
        """Whether the name begins with that of a plugin."""
        return "." in self.name


class PublishedHook(Model):
    """A hook of the plugin's own. `spec` is `module:function` inside its package; the function's name begins with
    the plugin's name in snake_case, `permission` with `hook:plugin:{name}:`; those of first-party plugins need not."""

    spec: str
    permission: str
    level: Level = "intercept"
    allows: str

    @property
    def is_prefixed(self) -> bool:
        """Whether the permission begins with the name of a plugin."""
        return self.permission.startswith("hook:plugin:")


class Publishes(Model):
    """What a plugin offers other plugins to build on, said here so that it can be reviewed without an import."""

    services: list[PublishedService] = Field(default_factory=list)
    hooks: list[PublishedHook] = Field(default_factory=list)

    @property
    def names(self) -> tuple[str, ...]:
        """What is published, as `module:name` inside the plugin's package."""
        return (*(one.interface for one in self.services), *(one.spec for one in self.hooks))


class Requires(Model):
    """What must be there: other plugins, each with a version range."""

    plugins: dict[Name, Range] = Field(default_factory=dict)


class RuntimeFiles(Model):
    """Files and folders beside its own that a plugin reads or changes in a process of its own: absolute paths, or
    paths in the project."""

    read: list[str] = Field(default_factory=list)
    write: list[str] = Field(default_factory=list)


class Runtime(Model):
    """Where the plugin may run, and the wire version it was written for; for a process of its own also which Python it
    needs, how many megabytes of memory it may use, the hosts that it reaches (`api.example.com`, `*.example.com`,
    `host:port`) and its files."""

    placement: Literal["any", "in-process", "process"] = "any"
    wire: int = 1
    python: str | None = None
    memory: int = Field(default=512, ge=64)
    network: list[str] = Field(default_factory=list)
    files: RuntimeFiles = Field(default_factory=RuntimeFiles)


class FileSettings(Model):
    """Settings that plugins declare in JSON files of their own, beside `configOptions`.

    `folder` is the field of the manifest that names the folder, `suffix` what the names of the files end with,
    `options` the key of their list in such a file; `owner` are the keys of which the first that is there says what in
    the folder they are of. An option has a short `key`; the full one is `extensions.{plugin}.{folder}.{owner}.{key}`.
    """

    folder: str
    suffix: str
    options: str
    owner: list[str]


class Manifest(Model):
    """A plugin's manifest. `project_folders` and `settings_in_files` count in first-party plugins only: the folders
    that a new project has, and how files of any plugin declare settings. `test_options` are options of the pytest
    marker `tavern`, each with `module:function`, which is called with the folder of the project and the value."""

    name: Name
    display_name: str
    version: VersionText
    description: str | None = None
    icon: Icon | None = None
    api_version: Range = ">=0.1"
    requires: Requires = Field(default_factory=Requires)
    runtime: Runtime = Field(default_factory=Runtime)
    nodes: ModulesEntry | None = None
    tools: Entry | None = None
    workflows: Entry | None = None
    agents: Entry | None = None
    knowledge: Entry | None = None
    triggers: Entry | None = None
    sample: Entry | None = None
    locale: Entry | None = None
    frontend: Frontend | None = None
    config_options: list[SettingItem] = Field(default_factory=list)
    settings_in_files: list[FileSettings] = Field(default_factory=list)
    project_folders: list[FolderName] = Field(default_factory=list)
    test_options: dict[str, str] = Field(default_factory=dict)
    permissions: Permissions = Field(default_factory=Permissions)
    publishes: Publishes = Field(default_factory=Publishes)

    def entries(self) -> dict[str, Entry]:
        """Return the sources of files that the plugin contributes, by field: a folder of its own, or a module."""
        found = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: value for name, value in found.items() if isinstance(value, Entry)}

    def frontend_mistakes(self) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
        """Yield what of the front end does not go together: its place, what is wrong, and what to do about it."""
        front = self.frontend or Frontend()
        part, ui = front.part(), self.permissions.ui
        for key in ("commands", "panels"):
            ids = [one.id for one in getattr(front, key)]
            for index, one in enumerate(ids):
                if one in ids[:index]:
                    yield ("frontend", key, index, "id"), f"the id {one!r} stands there twice", "give each its own"
        if part is not None and part.entry is None:
            for key in ("commands", "panels", "mode"):
                if getattr(front, key) != Frontend.model_fields[key].get_default(call_default_factory=True):
                    yield ("frontend", key), "there is no code that it is of", "give the front end an entry"
        if front.mode == "page":
            return
        if not front.panels:
            yield ("frontend", "mode"), "a sandboxed front end shows panels and nothing else", "declare some"
        hooks = [hook for hook in self.permissions.hooks if hook.startswith("hook:client:")]
        for one in [*ui.wrap, *ui.inject, *ui.override, *hooks][:1]:
            yield ("frontend", "mode"), f"a sandboxed front end cannot use {one}", "take `mode: page`, or leave it out"
