"""Reads and writes the files of triggers, `triggers/*.json`, and checks what they say."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from jsonpointer import JsonPointer, JsonPointerException
from pydantic import JsonValue

from tavern_host.contracts.documents import read_document_file, read_model
from tavern_host.contracts.errors import InvalidInput, NotFound, TavernError
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.wire import Model
from tavern_host.contracts.workflows import InterfaceSlot
from tavern_host.storage.files import make_folder, write_atomic
from tavern_triggers import schedule
from tavern_triggers.api.triggers import (
    ID,
    ChangedFile,
    FinishedRun,
    HostEvent,
    Schedule,
    Trigger,
    TriggerKind,
    Webhook,
)

KINDS: dict[str, tuple[type[Model], str]] = {
    "schedule": (Schedule, "At times: by cron with a time zone, every so many seconds, or once."),
    "webhook": (Webhook, "When another program sends a request to an address of its own."),
    "file": (ChangedFile, "When files below files/ change."),
    "event": (HostEvent, "When the host publishes an event."),
    "run": (FinishedRun, "When a run of a workflow has ended."),
}
"""The host's own kinds, with the models of their `config`."""

MAX_FILE = 256 * 1024
"""Bytes of a trigger's file."""

Found = dict[str, Trigger | str]
"""Triggers by id; of broken files what is wrong."""


def read_triggers(folder: Path) -> Found:
    """Return the triggers of a project. Never raises for what a file says. Blocking."""
    found: Found = {}
    for path in sorted(folder.glob("*.json")):
        file = f"{folder.name}/{path.name}"
        try:
            if not path.resolve().is_relative_to(folder.parent.resolve()):
                raise InvalidInput(f"{file} leads out of the project; only files of the project are read")
            if not re.fullmatch(ID, path.stem):
                raise InvalidInput(f"{file}: a trigger's id has letters, digits, - and _, 64 at most")
            if path.stat().st_size > MAX_FILE:
                raise InvalidInput(f"{file} is larger than {MAX_FILE // 1024} KiB")
            found[path.stem] = read_model(Trigger, read_document_file(path), file)
        except TavernError as error:
            found[path.stem] = error.message
        except (OSError, RuntimeError) as error:
            found[path.stem] = f"{file} cannot be read: {error}"
    return found


def write_trigger(folder: Path, trigger_id: str, trigger: Trigger) -> None:
    """Write a trigger's file. Raises `InvalidInput` for an id that is none. Blocking."""
    path = path_of(folder, trigger_id)
    content = json.dumps(trigger.to_json(), ensure_ascii=False, indent=2).encode() + b"\n"
    if len(content) > MAX_FILE:
        raise InvalidInput(f"the trigger is larger than {MAX_FILE // 1024} KiB")
    if not folder.resolve().is_relative_to(folder.parent.resolve()):
        raise InvalidInput(f"{folder.name} leads out of the project")
    make_folder(folder)
    write_atomic(path, content)


def path_of(folder: Path, trigger_id: str) -> Path:
    """Return where a trigger's file is. Raises `InvalidInput` for an id that is none."""
    if not re.fullmatch(ID, trigger_id):
        raise InvalidInput(f"{trigger_id!r:.80} is no id of a trigger: letters, digits, - and _, 64 at most")
    return folder / f"{trigger_id}.json"


def one_of(found: Found, trigger_id: str) -> Trigger | str:
    """Return a trigger, or what is wrong with its file. Raises `NotFound`."""
    if trigger_id not in found:
        raise NotFound(f"there is no trigger {trigger_id!r:.80}{did_you_mean(trigger_id, found)}")
    return found[trigger_id]


def check(trigger: Trigger, kinds: Mapping[str, TriggerKind]) -> None:
    """Raise `InvalidInput` where a trigger's kind, its `config` or its pointers cannot be used."""
    if trigger.kind not in kinds:
        raise InvalidInput(f"$.kind: there is no kind {trigger.kind!r}{did_you_mean(trigger.kind, kinds)}")
    for key, pointer in trigger.take.items():
        _pointer(pointer, f"$.take.{key}")
    if trigger.kind in KINDS:
        config = config_of(trigger)
        if isinstance(config, Schedule):
            schedule.checked(config)
        elif isinstance(config, HostEvent):
            for pointer in config.where:
                _pointer(pointer, "$.config.where")
    elif schema := kinds[trigger.kind].config_schema:
        import jsonschema

        try:
            jsonschema.validate(trigger.config, schema)
        except (jsonschema.ValidationError, jsonschema.SchemaError) as error:
            raise InvalidInput(f"$.config: {error.message}") from None


def config_of(trigger: Trigger) -> Model:
    """Return the `config` of one of the host's own kinds. Raises `InvalidInput`."""
    return read_model(KINDS[trigger.kind][0], trigger.config, "$.config")


def inputs_of(
    trigger: Trigger, payload: dict[str, JsonValue], interface: Mapping[str, InterfaceSlot]
) -> dict[str, JsonValue]:
    """Return the inputs of the workflow that a firing starts, by their keys in its interface. Raises `InvalidInput` for
    what is not in the payload."""
    if not trigger.take:
        shown = {key: slot.display_name for key, slot in interface.items() if slot.display_name not in interface}
        named = {key: payload[name] for key, name in shown.items() if name in payload}
        return {**trigger.inputs, **named, **{key: payload[key] for key in interface if key in payload}}
    taken: dict[str, JsonValue] = {}
    for key, pointer in trigger.take.items():
        try:
            taken[key] = JsonPointer(pointer).resolve(payload)
        except (JsonPointerException, TypeError, ValueError):
            raise InvalidInput(f"$.take.{key}: there is nothing at {pointer!r:.200} in what happened") from None
    return {**trigger.inputs, **taken}


def matches(where: Mapping[str, JsonValue], payload: dict[str, JsonValue]) -> bool:
    """Return whether these values stand in a payload."""
    missing = object()
    return all(JsonPointer(pointer).resolve(payload, missing) == value for pointer, value in where.items())


def _pointer(pointer: str, where: str) -> None:
    try:
        JsonPointer(pointer)
    except JsonPointerException:
        raise InvalidInput(f"{where}: {pointer!r:.200} is no JSON Pointer, such as /repository/name") from None
