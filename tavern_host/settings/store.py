"""Layered settings: each plugin's `configOptions`, over which project, operator and environment write.

Every value knows its origin. Values are checked against the declared control type when they are read in.
Who may change them, and which hooks see a change before, is decided in `service.py`.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import logging
import re
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args
from weakref import WeakSet

from pydantic import JsonValue

from tavern_host.contracts.documents import revision_of
from tavern_host.contracts.errors import Misconfigured, TavernError
from tavern_host.contracts.manifest import Manifest
from tavern_host.contracts.names import near_names, suggest
from tavern_host.contracts.plugins import Problem
from tavern_host.contracts.settings import Origin, SettingItem
from tavern_host.settings.file import SavedSettings, SettingsFile, differing
from tavern_host.storage.yaml_file import InvalidFile

LAYERS: tuple[Origin, ...] = get_args(Origin)
"""Lowest first; a later layer wins."""

MAX_REPORTED = 20
"""How many unknown settings of one layer are reported one by one."""

_LEFT_OUT = "it is left out until it is right"
_log = logging.getLogger("tavern.settings")


def prefix_of(plugin: str) -> str:
    """Return the prefix of the full keys of a plugin's settings."""
    return f"extensions.{plugin}."


def plugin_of(key: str) -> str | None:
    """Return the plugin that a full key belongs to, or None for what is no such key."""
    parts = key.split(".", 2)
    return parts[1] if len(parts) == 3 and parts[0] == "extensions" and parts[1] and parts[2] else None


def meant(key: str, plugin: str, declared: Iterable[str]) -> str | None:
    """Return `did you mean …?` for a plugin's setting that it does not declare; what all keys share does not count."""
    prefix = prefix_of(plugin)
    near = near_names(key.removeprefix(prefix), [name.removeprefix(prefix) for name in declared])
    start = prefix if key.startswith(prefix) else ""
    return f"did you mean {' or '.join(start + name for name in near)}?" if near else None


@dataclass
class Resolved:
    """One plugin's settings as they are now: by full key, the right value of each layer, lowest first; every value that
    was left out, with the reason; and by full key, in which layers values were."""

    layers: dict[str, dict[Origin, Any]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    left_out: dict[str, list[Origin]] = field(default_factory=dict)

    @functools.cached_property
    def digest(self) -> str:
        """Differs whenever a value does."""
        return revision_of(self.layers)

    def value(self, key: str) -> Any:
        """Return the value in force, None where there is none."""
        return next(reversed(self.layers.get(key, {"default": None}).values()))

    def origin(self, key: str) -> Origin:
        """Return the layer of the value in force."""
        return next(reversed(self.layers.get(key, {"default": None})))


@dataclass(frozen=True)
class _Source:
    """Values from one place. Two of them make up the operator's layer: `host.yaml`, and over it the saved values."""

    layer: Origin
    whose: str
    values: Mapping[str, Any]


class SettingsStore:
    """The settings of all plugins in their layers; keys are full (`extensions.{plugin}.{option}`).

    `project`, `operator` and `environment` are what was written for the host to read; `file` is where it saves
    what is changed while it runs. Without one, nothing can be saved. Changed on the host's event loop only; read
    on any thread.
    """

    def __init__(
        self,
        *,
        project: Mapping[str, Any],
        operator: Mapping[str, Any],
        environment: Mapping[str, Any],
        file: SettingsFile | None = None,
    ) -> None:
        self._project = project
        self._operator = operator
        self._environment = environment
        self._file = file
        self._saved = SavedSettings()
        self._damage: list[Problem] = []
        self._open: WeakSet[PluginSettings] = WeakSet()
        self.revision = 0
        self.is_unread = False
        if file is not None:
            try:
                self._saved = self._read(file)
            except InvalidFile:  # `unknown` reports it
                self.is_unread = True

    def set_files(self, project: Mapping[str, Any], operator: Mapping[str, Any]) -> dict[str, list[str]]:
        """Replace what the project's and the operator's files say; return the keys that changed, by plugin."""
        changed = {*differing(self._project, project), *differing(self._operator, operator)}
        self._project, self._operator = project, operator
        return self._notify(changed) if changed else {}

    def of(self, manifest: Manifest) -> PluginSettings:
        """Return one plugin's settings, which follow every change until they are closed."""
        settings = PluginSettings(self, manifest)
        self._open.add(settings)
        return settings

    def resolve(self, manifest: Manifest) -> Resolved:
        """Return one plugin's settings as they are now."""
        declared = {item.key: item for item in manifest.config_options}
        resolved = Resolved(
            {item.key: {"default": item.default_value} for item in declared.values() if item.has_default}
        )
        prefix = prefix_of(manifest.name)
        for source in self._sources():
            _add(resolved, source, prefix, declared)
        self._add_secrets(resolved, prefix, declared)
        for key, layers in resolved.layers.items():
            resolved.layers[key] = {name: layers[name] for name in LAYERS if name in layers}
        return resolved

    def problems(self, manifest: Manifest) -> list[Problem]:
        """Return every value that does not fit what the plugin declares."""
        return self.resolve(manifest).problems

    def unknown(self, names: Iterable[str]) -> list[Problem]:
        """Return the problems of settings that belong to none of these plugins, and of a damaged settings file."""
        known = set(names)
        problems = list(self._damage)
        for source in [*self._sources(), _Source("operator", "the saved", self._saved.secrets)]:
            keys = [key for key in source.values if not (isinstance(key, str) and plugin_of(key) in known)]
            problems += _problems(keys, functools.partial(_of_nobody, source.whose, known))
        return problems

    def is_saved(self, key: str) -> bool:
        """Return whether a value was saved for a setting, be it a right one or not."""
        return key in self._saved.values or key in self._saved.secrets

    async def save(
        self, values: Mapping[str, JsonValue], *, encrypted: Collection[str] = ()
    ) -> tuple[list[str], dict[str, list[str]]]:
        """Save values (None for none) over what is in the file at that moment; those of `encrypted` keys encrypted.

        Returns the keys that this changed, and by plugin all that changed since the file was last read. Raises
        `InvalidFile` where it was damaged, `Misconfigured` where it cannot be written, `DeadlineExceeded` while locked.
        """
        if (file := self._file) is None:
            raise Misconfigured("this host has no file to save settings in")
        async with file.locked():  # nothing within waits: neither a cancellation nor another save comes in between
            after = (before := self._read(file)).changed(values, encrypted, file.box)
            if mine := after.differences(before):
                file.write(after)
            return mine, self._take_over(after)

    def would_change(self, values: Mapping[str, JsonValue], *, encrypted: Collection[str] = ()) -> list[str]:
        """Return the keys that saving these values would change now; without a file, all. Raises `InvalidFile`."""
        if (file := self._file) is None:
            return [*values]
        return (before := self._read(file)).changed(values, encrypted, file.box).differences(before)

    def follow(self) -> dict[str, list[str]]:
        """Reload the file if another process wrote it; return the keys that changed, by plugin.

        Where it is damaged, the present values stay until it is mended.
        """
        if self._file is None or not self._file.has_changed():
            return {}
        try:
            return self._take_over(self._read(self._file))
        except InvalidFile as error:
            _log.error("saved settings cannot be followed: %s", error.message)
            return {}

    def forget(self, settings: PluginSettings) -> None:
        """Notify these settings of no more changes."""
        self._open.discard(settings)

    def _sources(self) -> list[_Source]:
        return [
            _Source("project", "the project's", self._project),
            _Source("operator", "the operator's", self._operator),
            _Source("operator", "the saved", self._saved.values),
            _Source("environment", "the environment's", self._environment),
        ]

    def _add_secrets(self, resolved: Resolved, prefix: str, declared: Mapping[str, SettingItem]) -> None:
        """Add the plugin's saved secrets to the operator's layer."""
        keys = [key for key in self._saved.secrets if key.startswith(prefix)]
        undeclared = [key for key in keys if key not in declared]
        resolved.problems += _problems(undeclared, functools.partial(_undeclared, "the saved", declared))
        for key in (key for key in keys if key in declared):
            try:
                resolved.layers.setdefault(key, {})["operator"] = self._secret(declared[key])
            except TavernError as error:
                hint = f"save it again with `tavern settings set {key} --stdin`"
                message = f"the saved secret {key!r} cannot be used: {error.message}"
                resolved.problems.append(Problem(message=message, hint=hint))

    def _secret(self, item: SettingItem) -> JsonValue:
        assert self._file is not None
        if not item.is_encrypted:  # a value given as a secret stays one, whatever the plugin declares now
            raise Misconfigured("the plugin does not declare it as a secret any more")
        value = self._file.box.decrypt(item.key, self._saved.secrets[item.key])
        if wrong := item.problem(value):
            raise Misconfigured(f"it {wrong}")
        return value

    def _read(self, file: SettingsFile) -> SavedSettings:
        try:
            return file.read()
        except InvalidFile as error:
            self._damage = error.problems
            raise

    def _take_over(self, saved: SavedSettings) -> dict[str, list[str]]:
        changed = saved.differences(self._saved)
        self._saved = saved
        self._damage = []
        self.is_unread = False
        return self._notify(changed)

    def _notify(self, keys: Iterable[str]) -> dict[str, list[str]]:
        self.revision += 1
        by_plugin: dict[str, list[str]] = {}
        for key in sorted(keys):
            plugin = plugin_of(key)
            if plugin is not None:
                by_plugin.setdefault(plugin, []).append(key)
        for settings in list(self._open):
            if settings.plugin in by_plugin:
                settings.offer(by_plugin[settings.plugin])
        return by_plugin


class PluginSettings:
    """One plugin's settings; see `tavern_host.context.Settings`. Made by `SettingsStore.of`."""

    def __init__(self, store: SettingsStore, manifest: Manifest) -> None:
        self.plugin = manifest.name
        self._prefix = prefix_of(manifest.name)
        self._manifest = manifest
        self.keys = [item.key.removeprefix(self._prefix) for item in manifest.config_options]  # those declared
        self._store: SettingsStore | None = store
        self._revision = -1
        self._resolved = Resolved()
        self._readers: WeakSet[SettingsChanges] = WeakSet()
        self._adding = threading.Lock()

    def get(self, key: str, default: Any = None) -> Any:
        """Return a copy of the value in force."""
        layers = self._layers(key)
        return _copy(next(reversed(layers.values()))) if layers else default

    def origin(self, key: str) -> str:
        """Return the layer that the value in force comes from."""
        layers = self._layers(key)
        return next(reversed(layers)) if layers else "default"

    def layers(self, key: str) -> dict[str, Any]:
        """Return a copy of the value of each layer that has a right one, lowest first."""
        return {name: _copy(value) for name, value in self._layers(key).items()}

    def left_out(self, key: str) -> list[str]:
        """Return the layers that may have a value which cannot be used: one that is not right, or a damaged file."""
        found: list[str] = list(self._current().left_out.get(self._prefix + key, ()))
        is_unread = self._store is not None and self._store.is_unread
        return [*found, "operator"] if is_unread and "operator" not in found else found

    @property
    def revision(self) -> int:
        """Grows whenever a setting changes, of whichever plugin; stays when these are closed."""
        store = self._store
        return store.revision if store is not None else self._revision

    @property
    def digest(self) -> str:
        """Differs whenever a value does, and is the same in every host."""
        return self._current().digest

    def changes(self) -> AsyncIterator[list[str]]:
        """Return an iterator over the keys that change from now on, without their prefix.

        Keys that change between two reads are given together, each once. It ends when the settings are closed.
        """
        reader = SettingsChanges(self)
        with self._adding:
            if self._store is None:
                reader.end()
            else:
                self._readers.add(reader)
        return reader

    def offer(self, keys: Iterable[str]) -> None:
        """Notify the readers of changes that these full keys changed."""
        short = [key.removeprefix(self._prefix) for key in keys]
        with self._adding:
            readers = list(self._readers)
        for reader in readers:
            reader.offer(short)

    def close(self) -> None:
        """Follow no more changes, and end every iterator over them; the present values can still be read."""
        store = self._store
        if store is None:
            return
        self._current()
        store.forget(self)
        with self._adding:
            self._store = None
            readers = list(self._readers)
        for reader in readers:
            reader.end()

    def _layers(self, key: str) -> dict[Origin, Any]:
        return self._current().layers.get(self._prefix + key, {})

    def _current(self) -> Resolved:
        store = self._store
        if store is not None and self._revision != store.revision:
            revision = store.revision  # before resolving: what changes meanwhile counts the next time
            self._resolved = store.resolve(self._manifest)
            self._revision = revision
        return self._resolved


class SettingsChanges(AsyncIterator[list[str]]):
    """One reader of changes. It keeps each key once, so that it never holds more than there are settings."""

    def __init__(self, source: PluginSettings) -> None:
        self._source = source  # keeps the settings alive: the store holds them weakly
        self._keys: dict[str, None] = {}
        self._is_over = False
        self._ready = asyncio.Event()

    def offer(self, keys: Iterable[str]) -> None:
        """Add keys that changed."""
        self._keys.update(dict.fromkeys(keys))
        self._ready.set()

    def end(self) -> None:
        """End the iteration, after the waiting keys were read."""
        self._is_over = True
        self._ready.set()

    async def __anext__(self) -> list[str]:
        while not self._keys:
            if self._is_over:
                raise StopAsyncIteration
            self._ready.clear()
            await self._ready.wait()
        keys = list(self._keys)
        self._keys.clear()
        return keys


def _add(resolved: Resolved, source: _Source, prefix: str, declared: Mapping[str, SettingItem]) -> None:
    """Add what a source says of one plugin's settings."""
    undeclared = []
    for key, value in source.values.items():
        if not (isinstance(key, str) and key.startswith(prefix)):
            continue
        item = declared.get(key)
        if item is None:
            undeclared.append(key)
            problem = None
        else:
            problem = _problem(source, item, value)
        if problem is None:
            resolved.layers.setdefault(key, {})[source.layer] = value
        else:
            resolved.problems.append(problem)
            resolved.left_out.setdefault(key, []).append(source.layer)
    resolved.problems += _problems(undeclared, functools.partial(_undeclared, source.whose, declared))


def _problem(source: _Source, item: SettingItem, value: Any) -> Problem | None:
    if source.layer == "project" and item.is_secret:
        message = f"the project's setting {item.key!r} is a secret, and a project holds none"
        hint = f"take it out of tavern.yaml, and save it with `tavern settings set {item.key} --stdin`"
        return Problem(message=message, hint=hint)
    if source.layer == "project" and item.operator_only:
        message = f"the project's setting {item.key!r} does not count: it is the operator's to decide"
        return Problem(message=message, hint="write it in host.yaml, not in a project")
    wrong = item.problem(value)
    return Problem(message=f"{source.whose} setting {item.key!r} {wrong}", hint=_LEFT_OUT) if wrong else None


def _problems(keys: list[Any], problem: Callable[[Any], Problem]) -> list[Problem]:
    """Return a problem for each of the first keys and one for all the others: each suggestion takes time."""
    problems = [problem(key) for key in keys[:MAX_REPORTED]]
    if len(keys) > MAX_REPORTED:
        more = len(keys) - MAX_REPORTED
        problems.append(Problem(message=f"{more} more like this: {_short(keys[MAX_REPORTED])} and so on"))
    return problems


def _undeclared(whose: str, declared: Collection[str], key: str) -> Problem:
    message = f"{whose} settings have {_short(key)}, which the plugin does not declare"
    return Problem(message=message, hint=meant(key, plugin_of(key) or "", declared) or _reset(whose, key))


def _of_nobody(whose: str, names: Collection[str], key: Any) -> Problem:
    plugin = plugin_of(key) if isinstance(key, str) else None
    if plugin is None:
        message = f"{whose} settings have {_short(key)}, which is no setting"
        return Problem(message=message, hint="keys are extensions.{plugin}.{option}")
    message = f"{whose} settings have {_short(key)}, but there is no plugin {_short(plugin)}"
    return Problem(message=message, hint=suggest(plugin, names) or _reset(whose, key))


def _reset(whose: str, key: str) -> str | None:
    """Return how a saved value is taken back, for a key that can stand in a command as it is."""
    is_plain = re.fullmatch(r"[\w.-]+", key) is not None
    return f"`tavern settings reset {key}` takes it back" if whose == "the saved" and is_plain else None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _copy(value: Any) -> Any:
    return value if isinstance(value, str | int | float | None) else copy.deepcopy(value)
