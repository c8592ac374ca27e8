"""Questions to people: what a call of `system:request_user_interaction` asks, and which answers fit.

A question is a call that waits for a person, as others wait for an approval: who approves it gives the argument
`answer`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, get_args

from pydantic import JsonValue
from pydantic_core import to_json

from tavern_host.common.redaction import masked
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_host.storage.confined_fs import confined_folder, open_file
from tavern_tools.api.projectfiles import PROJECT_FILE
from tavern_tools.api.toolcalls import QuestionKind, ToolErrorType, ToolQuestion
from tavern_tools.catalog.failures import ToolFailure, value_failure
from tavern_tools.catalog.project_paths import read_path
from tavern_tools.catalog.schemas import Schema, problems_of, schema_problems

ANSWER = "answer"
"""The argument by which the answer comes. The tool's schema says `readOnly` of it: no caller gives it."""
MAX_BYTES = 64 * 1024
"""How many bytes a question may have, and an answer, as JSON."""

_MAX_TEXT = 20_000
_VALUE = "any"


def question_of(arguments: dict[str, JsonValue]) -> ToolQuestion:
    """Return the question of a call. Raises `ToolFailure` for what nobody could answer."""
    choices, schema = arguments.get("choices"), arguments.get("schema")
    kind = arguments.get("kind") or ("choice" if choices else "form" if schema else "text")
    if len(to_json(arguments, inf_nan_mode="constants")) > MAX_BYTES:
        raise _wrong(f"a question has at most {MAX_BYTES:,} bytes")
    for name, value, of in (("choices", choices, "choice"), ("schema", schema, "form")):
        if bool(value) != (kind == of):
            needs = f"needs {name}" if kind == of else f"has no {name}, which {of} has"
            raise _wrong(f"a question of the kind {kind} {needs}")
    expects: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": _MAX_TEXT}
    if kind == "choice":
        expects = {"enum": choices}
        if arguments.get("multiple"):
            expects = {"type": "array", "items": expects, "minItems": 1, "uniqueItems": True}
    elif kind == "form":
        expects = _form(schema)
    elif kind == "file":
        expects = {"type": "string", "minLength": 1, "format": PROJECT_FILE}
    assert kind in get_args(QuestionKind)  # the tool's schema says so
    return ToolQuestion(kind=kind, message=str(arguments["question"]), expects=expects)


def _form(schema: Any) -> dict[str, Any]:
    """Return the schema of a form. Raises `ToolFailure` where it is none, or asks for secrets: an answer is read by a
    model and kept in the conversation."""
    form: dict[str, Any] = {"type": "object", **schema}
    if mistakes := schema_problems(form, ("schema",)):
        raise value_failure(ToolErrorType.PARAMETER_VALIDATION, "the form is no JSON Schema", problems_of(mistakes))
    fields = form.get("properties")
    if form["type"] != "object" or not isinstance(fields, dict) or not fields:
        raise _wrong('schema: a form is an object with fields: {"type": "object", "properties": {…}}')
    for name, field in fields.items():
        marked = isinstance(field, dict) and (field.get("writeOnly") is True or field.get("format") == "password")
        if marked or masked({name: _VALUE}) != {name: _VALUE}:
            raise _wrong(f"schema.properties.{name}: nobody is asked for secrets; they belong into settings")
    return form


def check_answer(question: ToolQuestion, answer: Any, files: Path) -> JsonValue:
    """Return an answer as the tool gets it. Blocks shortly, where it is a file of the folder `files`.

    Raises `InvalidInput` for one that does not fit.
    """
    try:
        size = len(to_json(answer))
    except ValueError:  # half a surrogate pair
        raise InvalidInput("the answer holds what JSON has no form for") from None
    if size > MAX_BYTES:
        raise InvalidInput(f"an answer has at most {MAX_BYTES:,} bytes, this one has {size:,}")
    if problems := Schema(question.expects).problems(answer):
        failure = value_failure(ToolErrorType.PARAMETER_VALIDATION, "the answer does not fit", problems)
        raise InvalidInput(failure.message, **failure.details)
    if question.kind == "text" and not answer.strip():
        raise InvalidInput("the answer is empty; refuse the question to give none")
    return _file(answer, files) if question.kind == "file" else answer


def _file(path: str, files: Path) -> str:
    if not (steps := read_path(path)):
        raise InvalidInput("the answer is a file: give its path among the project's files")
    *folders, name = steps
    try:
        with confined_folder(files, folders) as folder:
            os.close(open_file(folder, name))
    except (OSError, NotFound):
        raise InvalidInput(f"there is no file {'/'.join(steps)} among the project's files") from None
    return "/".join(steps)


def _wrong(message: str) -> ToolFailure:
    return ToolFailure(ToolErrorType.PARAMETER_VALIDATION, message)
