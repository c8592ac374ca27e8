"""The `settings` service: reads and saves the settings of all plugins, and publishes changes.

The layers and the value in force are resolved in `store.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pydantic import JsonValue

from tavern_host.common.redaction import restored, secrets_of
from tavern_host.contracts.calls import CallContext, system_call
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_host.contracts.manifest import Manifest
from tavern_host.contracts.names import did_you_mean, suggest
from tavern_host.contracts.plugins import Problem
from tavern_host.contracts.settings import (
    SETTINGS_CHANGED,
    SettingItem,
    Settings,
    SettingsChange,
    SettingValue,
    tool_settings_prefix,
)
from tavern_host.settings.redaction import MaskedValue, is_set, masked, unmasked
from tavern_host.settings.store import MAX_REPORTED, Resolved, SettingsStore, meant, plugin_of, prefix_of

HOOK = "tavern_before_save_settings"
AUDITED = "settings.saved"

MAX_VALUE = 1 << 20
MAX_VALUES = 1000
"""How long one value may be, as JSON, in characters; and how many values one change may have."""


class Filter(Protocol):
    """Passes a value through every implementation of a hook. Raises `Vetoed`."""

    async def __call__(self, hook: str, value: SettingsChange, /, *, call: CallContext) -> SettingsChange: ...


Decision = Callable[..., contextlib.AbstractAsyncContextManager[None]]
"""Writes a decision into the audit log before its block: `decision(action, subject=, actor=, details=, plugin=)`."""


class HostSettings(Settings):
    """The host's own provider. `manifests` returns those of all plugins by name, valid ones only."""

    def __init__(
        self,
        store: SettingsStore,
        manifests: Callable[[], Mapping[str, Manifest]],
        *,
        filter: Filter,
        publish: Callable[[str, dict[str, Any]], object],
        decision: Decision,
    ) -> None:
        self._store = store
        self._manifests = manifests
        self._filter = filter
        self._publish = publish
        self._decision = decision
        self._secrets: tuple[tuple[object, ...], frozenset[str]] = (), frozenset()
        self.operator_token: Callable[[], str] = str
        """Gives the token of the server, which no answer and no line of the log has either."""

    async def options(self, plugin: str) -> list[SettingItem]:
        """Return copies of the options that a plugin declares. Raises `NotFound`."""
        return [item.model_copy(deep=True) for item in self._manifest(plugin).config_options]

    async def values(self, plugin: str, *, call: CallContext | None = None) -> list[SettingValue]:
        """Return a plugin's settings in force, secrets masked, without its buttons. Raises `NotFound`."""
        return self._values(self._manifest(plugin))

    async def of_tool(self, plugin: str, tool_id: str, *, call: CallContext | None = None) -> list[SettingValue]:
        """Return the values of a tool's own settings as they are; see `Settings.of_tool`."""
        manifest = self._manifest(plugin)
        prefix, resolved = tool_settings_prefix(plugin, tool_id), self._store.resolve(manifest)
        keys = {key: item for key, item in self._declared(plugin).items() if key.startswith(prefix)}
        own = [item for key, item in keys.items() if "." not in key.removeprefix(prefix) and item.holds_value]
        values = [_shown(item, plugin, resolved, reveal=True) for item in own]
        return [value for value in values if value.is_set]

    async def restored(
        self, edited: dict[str, JsonValue], stored: list[dict[str, JsonValue]], *, call: CallContext | None = None
    ) -> dict[str, JsonValue]:
        """Return an edited document with the secrets that it was shown without; see `Settings.restored`."""
        found = await asyncio.to_thread(restored, edited, stored, self.secrets())
        assert isinstance(found, dict)
        return found

    async def save(self, change: SettingsChange, *, call: CallContext | None = None) -> list[SettingValue]:
        """Check new values, ask the hook, save them, and tell of what changed; see `Settings.save`."""
        call = call or system_call()
        plugin = change.plugin
        wanted = self._checked(plugin, change.values)
        if wanted:
            wanted = await self._past_hooks(plugin, wanted, call)
        encrypted = [key for key, item in self._declared(plugin).items() if item.is_encrypted]
        if wanted and not (keys := self._store.would_change(wanted, encrypted=encrypted)):
            self.follow()
        elif wanted:
            details: dict[str, JsonValue] = {"plugin": plugin, "keys": [*keys]}
            actor = str(call.principal)
            async with self._decision(AUDITED, subject=plugin, actor=actor, details=details, plugin=call.via):
                _, changed = await self._store.save(wanted, encrypted=encrypted)
            self._publish_changes(changed)
        manifest = self._manifests().get(plugin)
        return self._values(manifest) if manifest is not None else []

    def follow(self) -> None:
        """Take over what other processes saved, and tell of it; costs one look at the file where nobody did."""
        self._publish_changes(self._store.follow())

    def set_files(self, project: Mapping[str, Any], operator: Mapping[str, Any]) -> None:
        """Take over what the project's and the operator's files say now, and tell of it."""
        self._publish_changes(self._store.set_files(project, operator))

    def problems(self, plugin: str | None = None) -> list[Problem]:
        """Return the problems of a plugin's settings; for None, those of all, and of settings without a plugin."""
        if plugin is not None:
            return self._store.problems(self._manifest(plugin))
        manifests = self._manifests()
        own = [problem for manifest in manifests.values() for problem in self._store.problems(manifest)]
        return own + self._store.unknown(manifests)

    def find(self, key: str) -> SettingItem:
        """Return the setting that a key names; `extensions.` may be left out. Raises `NotFound` with near names."""
        full = key if plugin_of(key) else f"extensions.{key}"
        plugin = plugin_of(full) or key
        declared = self._declared(plugin)
        if full not in declared:
            hint = meant(full, plugin, declared) if declared else suggest(plugin, self._manifests())
            raise NotFound(f"there is no setting {key!r:.200}" + (f" ({hint})" if hint else ""))
        return declared[full]

    def saved_key(self, key: str) -> str:
        """Return the full key of a setting, or of what was saved for one that no plugin declares any more.

        Raises `NotFound` with near names.
        """
        full = key if plugin_of(key) else f"extensions.{key}"
        return full if self._store.is_saved(full) else self.find(key).key

    def secrets(self) -> frozenset[str]:
        """Return the secrets of all settings, in each layer, for what must not show them. Safe on any thread."""
        store, manifests, token = self._store, self._manifests(), self.operator_token()
        known = (store.revision, token, [*manifests.values()])  # held, so that each is compared with itself first
        if self._secrets[0] != known:
            items = [(item, store.resolve(one)) for one in manifests.values() for item in one.config_options]
            values = [(item, value) for item, layered in items for value in layered.layers.get(item.key, {}).values()]
            found = [secret for one in values for secret in secrets_of(*one)]
            self._secrets = known, frozenset(filter(None, [token, *found]))
        return self._secrets[1]

    # --- what is read -------------------------------------------------------------------------------

    def _manifest(self, plugin: str) -> Manifest:
        manifests = self._manifests()
        if plugin not in manifests:
            raise NotFound(f"there is no plugin {plugin!r:.200} with settings{did_you_mean(plugin, manifests)}")
        return manifests[plugin]

    def _declared(self, plugin: str) -> dict[str, SettingItem]:
        manifest = self._manifests().get(plugin)
        return {item.key: item for item in manifest.config_options} if manifest is not None else {}

    def _values(self, manifest: Manifest) -> list[SettingValue]:
        resolved = self._store.resolve(manifest)
        return [_shown(item, manifest.name, resolved) for item in manifest.config_options if item.holds_value]

    # --- what is saved ------------------------------------------------------------------------------

    def _checked(self, plugin: str, values: Mapping[str, Any], after: str = "") -> dict[str, JsonValue]:
        """Return the new values by full key, without those that leave a setting as it is.

        `after` says who made the values what they are, if not the caller. Raises `InvalidInput` with every problem,
        `NotFound` for an unknown plugin, unless it is gone and values of it are taken back.
        """
        if len(values) > MAX_VALUES:
            raise InvalidInput(f"a change of settings has at most {MAX_VALUES} values, found {len(values)}")
        if not all(value is None and self._store.is_saved(key) for key, value in values.items()) or not values:
            self._manifest(plugin)
        declared, resolved = self._declared(plugin), self._resolved(plugin)
        wanted: dict[str, JsonValue] = {}
        problems: dict[str, Problem] = {}
        seen: set[str] = set()
        for key, value in values.items():
            full = key if key in declared or self._store.is_saved(key) else prefix_of(plugin) + key
            item, is_saved, hint, wrong = declared.get(full), self._store.is_saved(full), None, None
            if plugin_of(full) != plugin or (item is None and not (value is None and is_saved)):
                wrong = f"{plugin} has no setting {key!r:.200}"
                hint = meant(key, plugin, declared) if len(problems) < MAX_REPORTED else None
            elif full in seen:
                wrong = f"{full!r} stands there twice, with its prefix and without"
            elif item is not None and not item.holds_value and not is_saved:
                wrong = f"{full!r} is a button and holds no value"
            elif value is None or item is None:
                wanted[full] = None
            else:
                key, current = full, resolved.value(full)
                new, wrong = _checked_value(item, value, current)
                if wrong is None and (new == value or new != current):  # else masks stood for all that holds now
                    wanted[full] = new
            if wrong is not None:
                problems[key] = Problem(message=wrong, hint=hint)
            seen.add(full)
        if problems:
            raise _invalid(plugin, problems, after)
        return wanted

    def _resolved(self, plugin: str) -> Resolved:
        manifest = self._manifests().get(plugin)
        return self._store.resolve(manifest) if manifest is not None else Resolved()

    async def _past_hooks(self, plugin: str, wanted: dict[str, JsonValue], call: CallContext) -> dict[str, JsonValue]:
        """Return the values of a change as the hook leaves them. Raises `Vetoed`, and `InvalidInput` for wrong ones."""
        declared = self._declared(plugin)
        shown = {key: masked(declared[key], value) if key in declared else value for key, value in wanted.items()}
        answer = await self._filter(HOOK, SettingsChange(plugin=plugin, values=shown), call=call)
        after = f", as {HOOK} left it"
        if answer.plugin != plugin:
            raise InvalidInput(f"{HOOK} turned a change of {plugin} into one of {answer.plugin!r:.200}")
        values = dict(answer.values)
        for key in values.keys() & wanted.keys() & declared.keys():
            with contextlib.suppress(MaskedValue):  # it may stand for the present value; else `_checked` reports it
                values[key] = unmasked(declared[key], values[key], wanted[key])
        return self._checked(plugin, values, after)

    def _publish_changes(self, changed: Mapping[str, list[str]]) -> None:
        for plugin, keys in changed.items():
            self._publish(SETTINGS_CHANGED, {"plugin": plugin, "keys": keys})


def _checked_value(item: SettingItem, new: Any, current: Any) -> tuple[Any, str | None]:
    """Return a new value with the present secrets where masks stand for them, or what is wrong with it."""
    try:
        value = unmasked(item, new, current)
    except MaskedValue as error:
        return None, f"{item.key!r} {error}"
    if wrong := item.problem(value):
        return None, f"{item.key!r} {wrong}"
    too_long = f"{item.key!r} is longer than {MAX_VALUE >> 10} KiB" if len(json.dumps(value)) > MAX_VALUE else None
    return value, too_long


def _shown(item: SettingItem, plugin: str, resolved: Resolved, *, reveal: bool = False) -> SettingValue:
    value = resolved.value(item.key)
    return SettingValue(
        key=item.key,
        plugin=plugin,
        value=copy.deepcopy(value) if reveal else masked(item, value),
        origin=resolved.origin(item.key),
        is_set=is_set(item, value),
        secret=item.is_secret,
    )


def _invalid(plugin: str, problems: Mapping[str, Problem], after: str) -> InvalidInput:
    text = "; ".join(map(str, problems.values()))
    if len(problems) > 1:
        text = f"{len(problems)} settings of {plugin} cannot be saved: {text}"
    details = [{"key": key, **problem.to_json()} for key, problem in problems.items()]
    return InvalidInput(text + after, problems=details)
