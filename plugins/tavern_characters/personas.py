"""Who people are in conversations: a file for each person, among what is the operator's."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tavern_characters.api.characters import Persona
from tavern_host.contracts.calls import CallContext
from tavern_host.storage.files import write_atomic


def person_of(call: CallContext | None) -> str:
    """Return the person on whose behalf something is done, however many agents and workflows are between; the operator
    where none is known."""
    if call is None:
        return "operator"
    if call.admission is not None:
        return call.admission.user
    return call.principal.id if call.principal.kind == "user" else "operator"


def read_persona(folder: Path, person: str) -> Persona:
    """Return a person's persona; the usual one where there is none. Call it on a thread."""
    try:
        return Persona.model_validate_json(_path(folder, person).read_bytes())
    except (OSError, ValueError):
        return Persona()


def write_persona(folder: Path, person: str, persona: Persona) -> None:
    """Keep a person's persona. Call it on a thread."""
    path = _path(folder, person)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, persona.model_dump_json().encode(), mode=0o600)


def _path(folder: Path, person: str) -> Path:
    return folder / "personas" / f"{hashlib.sha256(person.encode('utf-8', 'replace')).hexdigest()[:32]}.json"
