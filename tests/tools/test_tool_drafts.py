"""What of a tool follows from the docstring and signature of its script; the sandbox gives what was drafted."""

from __future__ import annotations

from typing import Any

from helpers.repetition import Failures

from tavern_scripts.runners.call import _takes_fields
from tavern_tools.editor.jsdoc import draft_javascript
from tavern_tools.editor.python_signature import draft as draft_python
from tavern_tools.editor.python_signature import read_docstring

PLACE = {"x": {"type": "integer"}, "name": {"type": "string", "default": "?"}, "next": {}}
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
    "Place": {"type": "object", "properties": PLACE, "required": ["x", "next"]},
    **{"Any": {}, "Elsewhere": {}},
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
WHOLE = [
    *("given", "given: dict", "given: 'dict[str, int]'", "given: Mapping[str, int]", "given: Given", "given: 'Given'"),
    *("*given", "*, a: dict"),
]
FIELDS = ["text: str", "text: list[str]", "a, b=1", "a: dict, b: int", "**rest", ""]
"""Signatures of functions that are called with all of the input, and of those that are with its fields."""


def test_python_becomes_schemas() -> None:
    with Failures() as failures:
        for annotation, schema in TYPES.items():
            with failures.row(annotation):
                found = draft_python(f"{CLASSES}\ndef run(x: {annotation}, y): ...", None)
                assert found["parameters"]["properties"]["x"] == schema
                assert bool(found["notes"]) == (annotation == "Elsewhere")
        for text in DOCSTRINGS:
            with failures.row(text):
                assert read_docstring(text) == ("Do it.\n\nAt once.", {"a": "The first.", "b": "The second."})
    code = "async def main(a, b=[1], c: int | None = None, *, d: str = name(), e: bool) -> str: ..."
    found = draft_python(code, None)
    properties = found["parameters"]["properties"]
    assert (found["parameters"]["required"], found["output"]) == (["a", "e"], {"type": "string"})
    assert properties["b"] == {"type": "array", "default": [1]}
    assert (properties["c"], properties["d"]) == ({"type": "integer"}, {"type": "string"})


def test_a_whole_input_is_told_by_its_use() -> None:
    found = draft_python('def score(given):\n    return given["points"] + given.get("more", 1)', None)
    assert found["parameters"]["required"] == ["points"]
    assert found["parameters"]["properties"]["more"] == {"type": "integer", "default": 1}
    typed = "class Given(TypedDict):\n    a: int\n    b: NotRequired[str]\ndef run(given: Given): ..."
    assert draft_python(typed, None)["parameters"]["required"] == ["a"]
    assert draft_python('"""Count."""\nimport sys\nx = sys.stdin\ndef f(): ...', None).get("entryPoint") is None


def test_the_sandbox_gives_what_is_drafted() -> None:
    with Failures() as failures:
        for signature in [*WHOLE, *FIELDS]:
            with failures.row(signature):
                names: dict[str, Any] = {}
                code = f"from typing import *\nclass Given(TypedDict):\n    a: int\ndef run({signature}): ..."
                exec(code, names)
                assert _takes_fields(names["run"]) == (signature in FIELDS)
                properties = draft_python(code, None)["parameters"].get("properties", {})
                assert "given" not in properties
                assert ("text" in properties or "b" in properties) == (signature in FIELDS[:4])


JAVASCRIPT = """
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


def test_jsdoc_becomes_a_schema() -> None:
    found = draft_javascript(JAVASCRIPT, None)
    assert (found.entry_point, found.display_name, found.description) == ("addNumbers", "Add numbers", "Adds numbers.")
    assert (found.output, found.parameters["required"]) == ({"type": "number"}, ["first", "sure"])
    assert found.parameters["properties"] == {
        "first": {"type": "number", "description": "The first one."},
        "names": {"type": "array", "items": {"type": "string"}, "description": "Names.", "default": []},
        "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
        "sure": {"type": ["boolean", "null"]},
    }
    assert draft_javascript(JAVASCRIPT, "other").notes == ["there is no comment /** … */ above other"]


def test_a_function_of_another_name_is_drafted_from_all_the_same() -> None:
    asked = draft_python('def greet(name: str) -> str:\n    """Greet somebody."""\n    return name', "run")
    assert (asked["entryPoint"], asked["description"]) == ("greet", "Greet somebody.")
    assert (asked["parameters"]["required"], asked["notes"]) == (
        ["name"],
        ["there is no function run; this is of greet"],
    )
    reads = draft_python("import sys\nx = sys.stdin.read()\ndef f(): ...", "run")
    assert (reads.get("entryPoint"), reads["notes"]) == (None, ["there is no function run"])
    found = draft_javascript(JAVASCRIPT, "nix")
    assert (found.entry_point, found.parameters["required"]) == ("addNumbers", ["first", "sure"])
    assert found.notes == ["the code exports no function nix; this is of addNumbers"]
    assert draft_javascript("1 + 1", "run").entry_point is None
