"""A question to a person at a terminal: how it is put, and what they type as an answer. Whether that fits is decided
where it is taken."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import InvalidInput
from tavern_tools.api.projectfiles import PROJECT_FILES
from tavern_tools.api.toolcalls import ToolQuestion

Ask = Callable[[str], Awaitable[str]]
"""Shows a prompt, and returns the line that is typed; an empty text at the end of the input."""

_FOLDER = "answers"
_MAX_FILE = 64 << 20


def choices_of(question: ToolQuestion) -> list[str]:
    """Return the choices."""
    expects: Any = question.expects
    return list(expects.get("enum") or expects.get("items", {}).get("enum") or [])


def typed(question: ToolQuestion, text: str) -> JsonValue:
    """Return the answer that a text is: of choices their names or numbers, with commas between several; of a form its
    object as JSON. Raises `InvalidInput` for no JSON."""
    if question.kind == "choice":
        choices = choices_of(question)
        parts = [text] if text in choices or "enum" in question.expects else text.split(",")
        chosen: list[JsonValue] = [_choice(choices, part.strip()) for part in parts]
        return chosen[0] if "enum" in question.expects else chosen
    if question.kind == "form":
        try:
            return json.loads(text)  # type: ignore[no-any-return]
        except ValueError as error:
            raise InvalidInput(f"the answer to a form is an object as JSON: {error}") from None
    return text


def _choice(choices: list[str], text: str) -> str:
    is_number = text not in choices and text.isdecimal() and 0 < int(text[:9]) <= len(choices)
    return choices[int(text) - 1] if is_number else text


def field_value(field: Any, text: str) -> JsonValue:
    """Return the value of a text typed into a field of a form: JSON where it expects something else than a text."""
    if isinstance(field, dict) and field.get("type") in (None, "string") and "enum" not in field:
        return text
    try:
        return json.loads({"yes": "true", "no": "false"}.get(text.lower(), text))  # type: ignore[no-any-return]
    except ValueError:
        return text


async def ask_at_terminal(
    context: PluginContext, task_id: str, question: ToolQuestion, ask: Ask, call: CallContext
) -> JsonValue:
    """Return a person's answer; None where they decline, by an empty line. Raises `InvalidInput`."""
    if question.kind == "form":
        return await _ask_fields(question, ask)
    lines = [f"  {number}. {choice}" for number, choice in enumerate(choices_of(question), 1)]
    several = " (several with commas between them)" if "items" in question.expects else ""
    hint = "a file of this computer" if question.kind == "file" else f"number or text{several}" if lines else "answer"
    text = (await ask("\n".join([question.message, *lines, f"{hint}; an empty line declines: "]))).strip()
    if not text:
        return None
    if question.kind == "file":
        return await upload_answer(context, task_id, Path(text), call)
    return typed(question, text)


async def _ask_fields(question: ToolQuestion, ask: Ask) -> JsonValue:
    form: Any = question.expects
    answer: dict[str, JsonValue] = {}
    before = f"{question.message}\n"
    for name, field in form["properties"].items():
        said = field if isinstance(field, dict) else {}
        need = "required" if name in form.get("required", []) else None
        notes = [str(one) for one in (said.get("description"), need) if one]
        notes += [f"one of {json.dumps(said['enum'], ensure_ascii=False)}"] if "enum" in said else []
        notes += [f"else {json.dumps(said['default'], ensure_ascii=False)}"] if "default" in said else []
        about = f" ({', '.join(notes)})" if notes else ""
        text = (await ask(f"{before}  {said.get('title', name)}{about}: ")).strip()
        before = ""
        if text:
            answer[name] = field_value(said, text)
        elif "default" in said:
            answer[name] = said["default"]
    return answer or None


async def upload_answer(context: PluginContext, task_id: str, path: Path, call: CallContext) -> str:
    """Copy a file of a person into the project's files, and return where it is. Raises `InvalidInput`."""

    def read() -> bytes:
        with path.expanduser().open("rb") as file:
            return file.read(_MAX_FILE + 1)

    try:
        content = await asyncio.to_thread(read)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > _MAX_FILE:
        raise InvalidInput(f"{path} is larger than {_MAX_FILE >> 20} MiB")
    place, blob = f"{_FOLDER}/{task_id}/{path.name}", await context.blobs.put(content)
    return (await context.services.get(PROJECT_FILES).write_blob(place, blob, call=call)).path
