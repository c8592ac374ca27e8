"""`plugin.yaml` as a frozen model (`spec/000` §6.2, §15.1.1, §17.1, and our additions).

Reading a manifest imports nothing of the plugin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Annotated, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, Field

from tavern_host.contracts.names import plugin_name
from tavern_host.contracts.plugins import MANIFEST, FrontendInfo, Problem
from tavern_host.contracts.services import Level
from tavern_host.contracts.settings import SettingItem
from tavern_host.contracts.wire import Model
from tavern_host.hooks.names import canonical
from tavern_host.plugins.tool_settings import tool_options
from tavern_host.storage.yaml_file import Location, Mistake, Places, read_partly

_EVENT_PATTERN = re.compile(r"[A-Za-z][\w.-]*\*?|\*")
_CAMEL = re.compile(r"[a-z][A-Za-z0-9]*")
_VERB = re.compile(r"[a-z][a-z-]*")
_SNAKE = re.compile(r"[a-z][a-z0-9_]*")
_MODULE = re.compile(r"[\w.]+")


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


Name = Annotated[str, AfterValidator(plugin_name)]
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

    def problems(self, root: Path, places: Places) -> list[Problem]:
        """Return why a browser could not load this front end from the plugin folder `root`."""
        wanted = self.type or ("vanilla" if self.vanilla is not None else "vite")
        key = "vanilla" if wanted == "vanilla" else "build"
        part = self.vanilla if wanted == "vanilla" else self.build
        place: Location = ("frontend", key)

        def problem(place: Location, message: str, hint: str) -> Problem:
            return places.problem(place, message, f"{hint}; the rest of the plugin works")

        if part is None:
            hint = f"say under frontend.{key} which files a browser loads"
            return [problem(place, f"frontend: a {wanted} front end needs {key!r}", hint)]
        if part.entry is None and not part.styles:
            return [
                problem(place, "frontend.vanilla: there is nothing to load", "give an entry, or styles for a theme")
            ]
        folder = root / (self.folder() or ".")
        paths: list[tuple[Location, str]] = [((*place, "styles", i), path) for i, path in enumerate(part.styles)]
        if part.entry is not None:
            paths.insert(0, ((*place, "entry"), part.entry))
        problems = []
        for place, path in paths:
            file = self._file(root, path)
            if not _is(Path.is_file, file):
                hint = "build the front end first" if wanted == "vite" else "name a file that is there"
                problems.append(problem(place, f"frontend: there is no file {path!r}", hint))
            elif not file.resolve().is_relative_to(folder.resolve()):
                hint = f"only what is in {folder.name} is served"
                problems.append(problem(place, f"frontend: {path!r} is not in {self.folder()!r}", hint))
        return problems

    def _file(self, root: Path, path: str) -> Path:
        """Return the file that a path means: relative to the plugin's folder, or to the folder that is served."""
        inside = root / (self.folder() or ".") / path
        return inside if _is(Path.is_file, inside) else root / path

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
    """What a plugin asks for (DESIGN §3, *Permissions*)."""

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
    `module:Class` inside the plugin's package. Whoever uses or overrides it names the plugin in `requires`."""

    name: str
    interface: str
    permissions: list[PublishedPermission] = Field(default_factory=list)


class PublishedHook(Model):
    """A hook of the plugin's own. `spec` is `module:function` inside its package; the function's name begins with
    the plugin's name in snake_case, `permission` with `hook:plugin:{name}:`."""

    spec: str
    permission: str
    level: Level = "intercept"
    allows: str


class Publishes(Model):
    """What a plugin offers other plugins to build on, said here so that it can be reviewed without an import."""

    services: list[PublishedService] = Field(default_factory=list)
    hooks: list[PublishedHook] = Field(default_factory=list)


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
    config_options: list[SettingItem] = Field(default_factory=list)
    permissions: Permissions = Field(default_factory=Permissions)
    publishes: Publishes = Field(default_factory=Publishes)


def own_mistakes(manifest: Manifest) -> Iterator[Mistake]:
    """Yield what a plugin declares or publishes under another name than its own, or twice, each with its location."""
    prefix, seen = f"extensions.{manifest.name}.", set()
    for index, option in enumerate(manifest.config_options):
        place: Location = ("configOptions", index, "key")
        if not option.key.startswith(prefix) or option.key == prefix:
            yield place, f"configOptions: the key {option.key!r} must begin with '{prefix}'"
        elif option.key in seen:
            yield place, f"configOptions: the key {option.key!r} stands there twice"
        seen.add(option.key)
    for index, service in enumerate(manifest.publishes.services):
        place = ("publishes", "services", index)
        if not _is_under(f"{manifest.name}.", service.name, _CAMEL):
            text = f"publishes.services: {service.name!r} must be '{manifest.name}.' and a camelCase word"
            yield (*place, "name"), text
            continue
        for number, permission in enumerate(service.permissions):
            if not _is_under(f"{service.name}:", permission.name, _VERB):
                text = f"publishes.services: {permission.name!r} must be '{service.name}:' and a word"
                yield (*place, "permissions", number, "name"), text
    snake, prefix = f"{manifest.name.replace('-', '_')}_", f"hook:plugin:{manifest.name}:"
    for index, hook in enumerate(manifest.publishes.hooks):
        place = ("publishes", "hooks", index)
        module, _, function = hook.spec.partition(":")
        if not _MODULE.fullmatch(module) or not _is_under(snake, function, _SNAKE):
            yield (*place, "spec"), f"publishes.hooks: {hook.spec!r} must be 'module:{snake}…'"
        if not _is_under(prefix, hook.permission, _VERB):
            yield (*place, "permission"), f"publishes.hooks: {hook.permission!r} must be '{prefix}' and a word"


def _is_under(prefix: str, name: str, rest: re.Pattern[str]) -> bool:
    return name.startswith(prefix) and rest.fullmatch(name, len(prefix)) is not None


def missing_entries(manifest: Manifest, folder: Path, places: Places) -> tuple[list[Problem], list[Problem]]:
    """Return which entries are not in the plugin's folder: its node modules, without which it cannot be loaded,
    and folders whose lack costs it no more than these."""
    nodes, folders = [], []
    if manifest.nodes is not None and not _is_module(folder, Path(manifest.nodes.entry)):
        hint = "make this module or package in the plugin's folder, or leave `nodes` out"
        nodes.append(places.problem(("nodes", "entry"), f"nodes.entry: there is no {_plain(manifest.nodes)!r}", hint))
    for key, entry in (("tools", manifest.tools), ("workflows", manifest.workflows), ("sample", manifest.sample)):
        if entry is not None and not _is(Path.is_dir, folder / entry.entry):
            hint = f"make it in the plugin's folder, or leave `{key}` out; the rest of the plugin works"
            folders.append(places.problem((key, "entry"), f"{key}.entry: there is no folder {_plain(entry)!r}", hint))
    return nodes, folders


def _plain(entry: Entry) -> str:
    return Path(entry.entry).as_posix()


def _is_module(folder: Path, entry: Path) -> bool:
    if not entry.name:
        return False  # the package itself
    module = folder / entry.with_suffix("")
    files = (module.with_name(module.name + suffix) for suffix in all_suffixes())
    return _is(Path.is_dir, module) or any(_is(Path.is_file, file) for file in files)


def _is(kind: Callable[[Path], bool], path: Path) -> bool:
    """Return whether a path is of a kind; what cannot be looked at is not."""
    try:
        return kind(path)
    except OSError:  # a name that is too long, a folder that may not be read
        return False


def read_manifest(folder: Path) -> tuple[Manifest, list[Problem]]:
    """Return the manifest of a plugin folder with the settings of its tools, and what is wrong with its front end and
    with those settings, which costs no more than that.

    Raises `InvalidFile`, `FileNotFoundError`.
    """
    manifest, problems, _ = read_with_places(folder)
    return manifest, problems


def read_with_places(folder: Path) -> tuple[Manifest, list[Problem], Places]:
    """Return what `read_manifest` returns, and where everything stands in the file. Raises as it does."""
    manifest, problems, places = read_partly(
        folder / MANIFEST,
        Manifest,
        label=f"{folder.name}/{MANIFEST}",
        dispensable=frozenset({"frontend"}),
        check=own_mistakes,
    )
    if manifest.frontend is not None and not problems:
        problems = manifest.frontend.problems(folder, places)
        if problems:
            manifest = manifest.model_copy(update={"frontend": Frontend()})
    if manifest.tools is not None and _is(Path.is_dir, folder / manifest.tools.entry):
        options, wrong = tool_options(manifest.name, folder / manifest.tools.entry, folder)
        problems = [*problems, *wrong]
        if options:
            manifest = manifest.model_copy(update={"config_options": [*manifest.config_options, *options]})
    return manifest, problems, places
