"""What of a tool follows from the docstring and signature of its script; the sandbox gives what was drafted."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.repetition import Failures

from tavern_host.contracts.errors import InvalidInput
from tavern_scripts.runners.call import _takes_fields
from tavern_tools.editor.drafting import draft, read_python
from tavern_tools.editor.jsdoc import draft_javascript
from tavern_tools.editor.python_signature import draft as draft_python
from tavern_tools.editor.python_signature import read_docstring

TYPES: dict[str, Any] = {
    "int": {"type": "integer"},
    "'float'": {"type": "number"},
    "list[str]": {"type": "array", "items": {"type": "string"}},
    "dict[str, bool]": {"type": "object", "additionalProperties": {"type": "boolean"}},
    "Literal['a', 'b']": {"type": "string", "enum": ["a", "b"]},
    "typing.Optional[int]": {"type": ["integer", "null"]},
    "int | str | None": {"type": ["integer", "string", "null"]},
    "list[int] | None": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
    "Annotated[int, Field(description='How many.')]": {"type": "integer", "description": "How many."},
    "datetime.date": {"type": "string", "format": "date"},
    "Size": {"type": "string", "enum": ["s", "l"]},
    "Place": {
        "type": "object",
        "properties": {"x": {"type": "integer"}, "name": {"type": "string", "default": "?"}, "next": {}},
        "required": ["x", "next"],
    },
    "Any": {},
    "Elsewhere": {},
}
CLASSES = """
class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"
class Place(BaseModel):
    x: int
    name: str = "?"
    next: "Place"
"""
DOCSTRINGS = [
    "Do it.\n\nAt once.\n\nArgs:\n    a (int): The\n        first.\n    b: The second.\n\nReturns:\n    c: nothing",
    "Do it.\n\nAt once.\n\nParameters\n---\na : int\n    The\n    first.\nb\n    The second.\n\nReturns\n---\nc",
    "Do it.\n\nAt once.\n\n:param int a: The\n    first.\n:param b: The second.\n:returns: c: nothing",
]
SIGNATURES = {
    "given": False,
    "given: dict": False,
    "given: 'dict[str, int]'": False,
    "given: Mapping[str, int]": False,
    "given: Given": False,
    "given: 'Given'": False,
    "*given": False,
    "text: str": True,
    "text: list[str]": True,
    "a, b=1": True,
    "*, a: dict": False,
    "a: dict, b: int": True,
    "**rest": True,
    "": True,
}
"""Whether a function of this signature is called with the fields of the input, instead of all of it."""


def test_annotations_become_schemas() -> None:
    with Failures() as failures:
        for annotation, schema in TYPES.items():
            with failures.row(annotation):
                found = draft_python(f"{CLASSES}\ndef run(x: {annotation}, y): ...", None)
                assert found["parameters"]["properties"]["x"] == schema
                assert bool(found["notes"]) == (annotation == "Elsewhere")


def test_docstrings_are_read_in_their_three_forms() -> None:
    with Failures() as failures:
        for text in DOCSTRINGS:
            with failures.row(text):
                assert read_docstring(text) == ("Do it.\n\nAt once.", {"a": "The first.", "b": "The second."})


def test_defaults_say_what_may_be_left_out() -> None:
    found = draft_python(
        "async def main(a, b=[1], c: int | None = None, *, d: str = name(), e: bool) -> str: ...", None
    )
    assert found["parameters"]["required"] == ["a", "e"]
    properties = found["parameters"]["properties"]
    assert properties["b"] == {"type": "array", "default": [1]}
    assert (properties["c"], properties["d"]) == ({"type": "integer"}, {"type": "string"})
    assert found["output"] == {"type": "string"}


def test_a_whole_input_is_told_by_its_use() -> None:
    found = draft_python('def score(given):\n    return given["points"] + given.get("more", 1)', None)
    assert found["parameters"]["required"] == ["points"]
    assert found["parameters"]["properties"]["more"] == {"type": "integer", "default": 1}
    typed = "class Given(TypedDict):\n    a: int\n    b: NotRequired[str]\ndef run(given: Given): ..."
    assert draft_python(typed, None)["parameters"]["required"] == ["a"]
    assert draft_python('"""Count."""\nimport sys\nx = sys.stdin\ndef f(): ...', None).get("entryPoint") is None


def test_the_sandbox_gives_what_is_drafted() -> None:
    given = "from typing import *\nclass Given(TypedDict):\n    a: int\n"
    with Failures() as failures:
        for signature, takes_fields in SIGNATURES.items():
            with failures.row(signature):
                names: dict[str, Any] = {}
                code = f"{given}def run({signature}): ..."
                exec(code, names)
                assert _takes_fields(names["run"]) == takes_fields
                properties = draft_python(code, None)["parameters"].get("properties", {})
                assert ("given" in properties) is False
                assert ("text" in properties or "b" in properties) == (takes_fields and signature not in ("", "**rest"))


def test_jsdoc_becomes_a_schema() -> None:
    code = """
/** @license free */
/**
 * Adds numbers.
 * @param {Object} input
 * @param {number} input.first - The
 *   first one.
 * @param {string[]} [input.names=[]] Names.
 * @param {'a'|'b'} [input.mode='a']
 * @param {?boolean} input.sure
 * @returns {Promise<number>}
 */
export async function addNumbers({ first, names }) {}
export const other = () => 1;
"""
    found = draft_javascript(code, None)
    assert (found.entry_point, found.display_name, found.description) == ("addNumbers", "Add numbers", "Adds numbers.")
    assert found.output == {"type": "number"}
    assert found.parameters == {
        "type": "object",
        "properties": {
            "first": {"type": "number", "description": "The first one."},
            "names": {"type": "array", "items": {"type": "string"}, "description": "Names.", "default": []},
            "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "sure": {"type": ["boolean", "null"]},
        },
        "required": ["first", "sure"],
    }
    assert draft_javascript(code, "other").notes == ["there is no comment /** … */ above other"]
    with pytest.raises(InvalidInput, match="exports no function nix"):
        draft_javascript(code, "nix")


async def test_code_is_read_and_never_run() -> None:
    found = await draft("raise SystemExit(3)\ndef run(a: int): ...", "python", None)
    assert found.entry_point == "run"
    with pytest.raises(InvalidInput, match="line 2: invalid syntax"):
        await draft("\ndef (:", "python", None)
    with pytest.raises(InvalidInput, match="larger than 256 KiB"):
        await draft("#" * 300_000, "python", None)
    for deep in ("-" * 100_000 + "1", "a" + "()" * 60_000, "(" * 5_000):
        assert "error" in await read_python(deep)
