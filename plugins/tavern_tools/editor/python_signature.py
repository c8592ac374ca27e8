"""A program of its own: reads Python code from stdin and prints, as JSON, what of a tool follows from its docstring and
signature, by the syntax alone: nothing of the code is imported or run.

`ast` is slow with some texts and holds Python's lock meanwhile, and exhausts memory with others. That is this process's
trouble, and not the host's. Imports the standard library only.
"""

from __future__ import annotations

import ast
import contextlib
import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef
Schema = dict[str, Any]

OBJECTS = frozenset({"dict", "Dict", "Mapping", "MutableMapping", "OrderedDict", "Any", "object"})
"""Annotations of a parameter that takes the whole input; `runners/call.py` of the scripts goes by the same."""

_MAIN = ("main", "run")
_PLAIN: dict[str, Schema] = {
    **{"str": {"type": "string"}, "Path": {"type": "string"}, "bytes": {"type": "string"}},
    **{"int": {"type": "integer"}, "float": {"type": "number"}, "Decimal": {"type": "number"}},
    **{"bool": {"type": "boolean"}, "None": {"type": "null"}},
    **{"date": {"type": "string", "format": "date"}, "datetime": {"type": "string", "format": "date-time"}},
    **{"time": {"type": "string", "format": "time"}, "UUID": {"type": "string", "format": "uuid"}},
}
_LISTS = ("list", "List", "Sequence", "Iterable", "Collection", "set", "Set", "frozenset", "tuple", "Tuple")
_ABOUT_PARAMETERS = ("args", "arguments", "parameters")
_SECTIONS = (*_ABOUT_PARAMETERS, "returns", "yields", "raises", "example", "examples", "note", "notes", "see also")


def draft(code: str, entry_point: str | None) -> dict[str, Any]:
    """Return the draft of a tool from its code: of the function that is named, or where there is none such, of the one
    that would be without a name. Raises `SyntaxError`, and what else `ast` raises for what is too deep."""
    module = ast.parse(code)
    functions = {part.name: part for part in module.body if isinstance(part, Function)}
    public = [one for name, one in functions.items() if not name.startswith("_")]
    function = functions.get(entry_point or "")
    if function is None and not _reads_stdin(module):
        function = next((one for one in public if one.name in _MAIN), None)
        function = function or next((one for one in public if ast.get_docstring(one)), next(iter(public), None))
    reader = _Reader({part.name: part for part in ast.walk(module) if isinstance(part, ast.ClassDef)})
    if entry_point is not None and entry_point not in functions:
        reader.notes.append(f"there is no function {entry_point}{f'; this is of {function.name}' if function else ''}")
    said, about = read_docstring((function and ast.get_docstring(function)) or ast.get_docstring(module) or "")
    found: dict[str, Any] = {"description": said, "notes": reader.notes}
    if function is None:
        return {**found, "parameters": {"type": "object", "properties": {}}}
    parameters = reader.parameters(function)
    for name, field in parameters.get("properties", {}).items():
        if name in about:
            field.setdefault("description", about[name])
    output = reader.schema(function.returns)
    return {
        **found,
        "entryPoint": function.name,
        "displayName": function.name.replace("_", " ").strip().capitalize(),
        "parameters": parameters,
        "output": output if output and output != {"type": "null"} else None,
    }


class _Reader:
    """Makes JSON Schemas of annotations; `notes` say which meant nothing to it."""

    def __init__(self, classes: dict[str, ast.ClassDef]) -> None:
        self.notes: list[str] = []
        self._classes = classes
        self._within: list[str] = []

    def parameters(self, function: Function) -> Schema:
        """Return the schema of what a function takes, as the sandbox gives it."""
        declared = function.args
        positional = [*declared.posonlyargs, *declared.args]
        defaults = [*[None] * (len(positional) - len(declared.defaults)), *declared.defaults]
        pairs = [*zip(positional, defaults, strict=True), *zip(declared.kwonlyargs, declared.kw_defaults, strict=True)]
        if len(pairs) == 1 and self._takes_all(pairs[0][0].annotation):
            (one, _), *_ = pairs
            whole = self.schema(one.annotation)
            return whole if whole.get("properties") else self._used(function, one.arg)
        schema = self._fields((one.arg, one.annotation, default) for one, default in pairs)
        return {**schema, "additionalProperties": True} if declared.kwarg is not None else schema

    def schema(self, node: ast.expr | None) -> Schema:
        """Return the schema of an annotation; an empty one allows anything."""
        match node:
            case None:
                return {}
            case ast.Constant(value=None):
                return {"type": "null"}
            case ast.Constant(value=str() as text):
                return self.schema(_expression(text))
            case ast.BinOp(op=ast.BitOr()):
                return self._any_of([self.schema(node.left), self.schema(node.right)])
            case ast.Subscript():
                inner = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
                return self._generic(_name(node.value), inner)
            case _:
                return self._named(_name(node))

    def _generic(self, name: str, inner: list[ast.expr]) -> Schema:
        if name in ("Optional", "Union"):
            return self._any_of([self.schema(one) for one in inner] + [{"type": "null"}] * (name == "Optional"))
        if name == "Literal":
            return _choice([value for one in inner for value in _literals(one)])
        if name == "Annotated":
            described = [one.value for one in inner[1:] if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            described += [text for one in inner[1:] for text in _described(one)]
            return {**self.schema(inner[0]), **({"description": described[0]} if described else {})}
        if name in _LISTS:
            items = self.schema(inner[0])
            return {"type": "array", **({"items": items} if items else {})}
        if name in OBJECTS:
            values = self.schema(inner[1]) if len(inner) > 1 else {}
            return {"type": "object", **({"additionalProperties": values} if values else {})}
        return self.schema(inner[0]) if name in ("Required", "NotRequired", "ReadOnly", "Final") else self._named(name)

    def _named(self, name: str) -> Schema:
        if name in _PLAIN:
            return dict(_PLAIN[name])
        if name in _LISTS:
            return {"type": "array"}
        if name in ("Any", "object"):
            return {}
        if name in OBJECTS:
            return {"type": "object"}
        if name in self._classes and name not in self._within:
            self._within.append(name)
            try:
                return self._class(self._classes[name])
            finally:
                self._within.pop()
        note = f"the type {name} is not known, so that anything is allowed"
        if name and name not in self._within and note not in self.notes:
            self.notes.append(note)
        return {}

    def _class(self, made: ast.ClassDef) -> Schema:
        bases = [_name(base) for base in made.bases]
        if any(base.endswith(("Enum", "Flag")) for base in bases):
            values = [part.value for part in made.body if isinstance(part, ast.Assign)]
            return _choice([value for one in values for value in _literals(one)])
        fields = [part for part in made.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)]
        schema = self._fields((part.target.id, part.annotation, part.value) for part in fields)  # type: ignore[union-attr]
        optional = {part.target.id for part in fields if _is_left_out(part.annotation)}  # type: ignore[union-attr]
        partial = any(word.arg == "total" and _literals(word.value) == [False] for word in made.keywords)
        required = [name for name in schema.pop("required", []) if name not in optional and not partial]
        return {**schema, **({"required": required} if required else {})}

    def _fields(self, fields: Iterable[tuple[str, ast.expr | None, ast.expr | None]]) -> Schema:
        properties: dict[str, Schema] = {}
        required: list[str] = []
        for name, annotation, default in fields:
            schema = self.schema(annotation)
            values = [] if default is None else _literals(default)
            if default is None:
                required.append(name)
            elif values == [None]:
                schema = _without_null(schema)
            elif values:
                schema["default"] = values[0]
                schema.update(_type_of(values[0]) if annotation is None else {})
            properties[name] = schema
        return {"type": "object", "properties": properties, **({"required": required} if required else {})}

    def _takes_all(self, annotation: ast.expr | None) -> bool:
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            annotation = _expression(annotation.value)
        name = _name(annotation.value if isinstance(annotation, ast.Subscript) else annotation)
        made = self._classes.get(name)
        is_dict = made is not None and any(_name(base) in {"TypedDict", *OBJECTS} for base in made.bases)
        return annotation is None or name in OBJECTS or is_dict

    def _used(self, function: Function, name: str) -> Schema:
        """Return the schema of the keys that a function reads: `given["text"]` and `given.get("times", 1)`."""
        fields: dict[str, tuple[str, ast.expr | None, ast.expr | None]] = {}
        for part in sorted(ast.walk(function), key=_place):
            match part:
                case ast.Subscript(value=ast.Name(id=of), slice=ast.Constant(value=str() as key)) if of == name:
                    fields.setdefault(key, (key, None, None))
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id=of), attr="get"),
                    args=[ast.Constant(value=str() as key), *rest],
                ) if of == name:
                    fields.setdefault(key, (key, None, rest[0] if rest else ast.Constant(None)))
        if not fields:
            self.notes.append(f"{function.name} takes the whole input, and says nothing of what is in it")
        return self._fields(fields.values())

    def _any_of(self, found: list[Schema]) -> Schema:
        if {} in found:
            return {}
        if all(one.keys() == {"type"} for one in found):
            kinds = [[one["type"]] if isinstance(one["type"], str) else one["type"] for one in found]
            simple = list(dict.fromkeys(kind for those in kinds for kind in those))
            return {"type": simple if len(simple) > 1 else simple[0]}
        flat = [inner for one in found for inner in (one["anyOf"] if one.keys() == {"anyOf"} else [one])]
        return {"anyOf": flat} if len(flat) > 1 else flat[0]


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the text of a docstring before its parameters, and the text about each of them.

    Knows `Args:` with indented lines, `Parameters` above a line of dashes, and `:param name:`.
    """
    lines, said, about = text.splitlines(), list[str](), dict[str, str]()
    last, inside, is_over, column = "", False, False, 0
    for line, below in zip(lines, [*lines[1:], ""], strict=False):
        words, depth = line.strip(), len(line) - len(line.lstrip())
        title = words.lower().removesuffix(":") if words.endswith(":") or set(below.strip()) == {"-"} else ""
        if words.startswith(":"):
            head, _, rest = words[1:].partition(":")
            last = head.split()[-1] if head.startswith(("param ", "parameter ", "arg ")) else ""
            about.update({last: rest.strip()} if last else {})
            is_over = True
        elif depth == 0 and title in _SECTIONS:
            last, inside, is_over, column = "", title in _ABOUT_PARAMETERS, True, -1
        elif not words or set(words) == {"-"}:
            said += [] if is_over else [words]
        elif inside and depth < column:
            last, inside = "", False
        elif inside and column in (-1, depth):
            head, _, rest = words.partition(":")
            last, column = head.partition("(")[0].strip().lstrip("*"), depth
            about[last] = rest.strip() if depth else ""
        elif is_over and last:
            about[last] = f"{about[last]} {words}".strip()
        elif not is_over:
            said.append(line)
    return "\n".join(said).strip(), {name: words for name, words in about.items() if words}


def _place(part: ast.AST) -> tuple[int, int]:
    return getattr(part, "lineno", 0), getattr(part, "col_offset", 0)


def _reads_stdin(module: ast.Module) -> bool:
    return any(
        isinstance(part, ast.Attribute) and part.attr == "stdin" and _name(part.value) == "sys"
        for part in ast.walk(module)
    )


def _name(node: ast.expr | None) -> str:
    """Return the last part of a dotted name; nothing for what is no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _expression(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        return None


def _literals(node: ast.expr) -> list[Any]:
    """Return the value of a literal as JSON has it, alone in a list; an empty one for what is no literal."""
    try:
        return [json.loads(json.dumps(ast.literal_eval(node), allow_nan=False))]
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return []


def _described(node: ast.expr) -> Iterator[str]:
    words = node.keywords if isinstance(node, ast.Call) else []
    yield from (str(value) for word in words if word.arg == "description" for value in _literals(word.value))


def _is_left_out(annotation: ast.expr) -> bool:
    return isinstance(annotation, ast.Subscript) and _name(annotation.value) == "NotRequired"


def _without_null(schema: Schema) -> Schema:
    """Return a schema whose value may be left out instead of being null."""
    kinds = schema.get("type")
    if isinstance(kinds, list):
        rest = [kind for kind in kinds if kind != "null"]
        return {**schema, "type": rest[0] if len(rest) == 1 else rest}
    others = [one for one in schema.get("anyOf", []) if one != {"type": "null"}]
    return {**{k: v for k, v in schema.items() if k != "anyOf"}, **others[0]} if len(others) == 1 else schema


def _choice(values: list[Any]) -> Schema:
    kinds = [_type_of(value) for value in values]
    return {**(kinds[0] if kinds and all(kind == kinds[0] for kind in kinds) else {}), "enum": values}


def _type_of(value: Any) -> Schema:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return {"type": kinds[type(value)]} if type(value) in kinds else {}


def main() -> None:
    """Read code from stdin, print the draft; the name of the entry point may be the one argument."""
    with contextlib.suppress(ImportError):  # which only POSIX systems have
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    try:
        found = draft(sys.stdin.buffer.read().decode(), sys.argv[1] if len(sys.argv) > 1 else None)
    except SyntaxError as error:
        found = {"error": error.msg, "line": error.lineno, "column": error.offset}
    except (ValueError, MemoryError, RecursionError) as error:
        found = {"error": str(error) or "it is nested too deeply", "line": None, "column": None}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
