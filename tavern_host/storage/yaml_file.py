"""Reads a YAML file that people write into a frozen model, with every mistake named by line and column.

Used for `plugin.yaml`, `host.yaml` and `tavern.yaml`. Guards against files that are too large, not
UTF-8, have duplicate keys, or grow without bound through aliases.
"""

from __future__ import annotations

import contextlib
import copy
import re
import stat
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from yaml.constructor import SafeConstructor

from tavern_host.common.redaction import is_hidden, without_credentials
from tavern_host.contracts.errors import Misconfigured, one_line
from tavern_host.contracts.names import suggest
from tavern_host.contracts.plugins import Problem
from tavern_host.contracts.settings import MASK
from tavern_host.storage.yaml_nodes import compose

M = TypeVar("M", bound=BaseModel)

MAX_BYTES = 1 << 20
MAX_VALUES = 50_000
MAX_NESTING = 64

_PLAIN_TAGS = frozenset({"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})
_YAML_HINTS = (
    ("character '\\t'", "indent with spaces, not with tabs"),
    ("that cannot start any token", "write such a text in quotes"),
    ("mapping values are not allowed", "write a text that holds ': ' in quotes"),
    ("is an alias", "write a text with * in quotes"),
    ("a second document", "remove the line ---, or what follows it"),
    ("is not a timestamp", "write it in quotes"),
)
_YAML_WORDS = (
    (re.compile(r"found undefined alias '(.*)'"), r"*\1 is an alias, and no &\1 comes before it"),
    (
        re.compile(r"expected alphabetic or numeric character, .*"),
        "* or & is an alias or its name, and no name follows",
    ),
    (re.compile(r"expected a single document .*"), "a second document begins here"),
    (re.compile(r"'<(?:stream|document) end>'"), "the end of the file"),
    (re.compile(r"found unexpected end of stream"), "the file ends within a text in quotes"),
    (re.compile(r"<block end>"), "the end of these lines"),
    (re.compile(r"'<scalar>'"), "another text"),
    (re.compile(r"'<([a-z ]+)>'"), r"\1"),
    (re.compile(r"the node content"), "a value"),
)
"""What the library says, and what is said instead."""
_INSTANCE = re.compile(r" or instance of \w+")

Mark = tuple[int, int]
Location = tuple[str | int, ...]
Mistake = tuple[Location, str]


@dataclass(frozen=True)
class Places:
    """Where each value of a file stands, by its keys; where no file is named, problems have no place."""

    file: str | None = None
    marks: Mapping[Location, Mark] = field(default_factory=dict)

    def problem(self, location: Location, message: str, hint: str | None = None) -> Problem:
        """Return a problem at a location of the data, or at its nearest known parent."""
        if self.file is None:
            return Problem(message=one_line(message), hint=hint)
        while location and location not in self.marks:
            location = location[:-1]
        line, column = self.marks.get(location, (1, 1))
        return Problem(message=one_line(message), hint=hint, file=self.file, line=line, column=column)


NOWHERE = Places()


class InvalidFile(Misconfigured):
    """A file that cannot be used; `problems` says everything that is wrong with it. `rest` is the model of what is
    right in it, where that makes one, for those who look further; `places` says where it stands."""

    code = "invalid_file"

    def __init__(self, path: Path, problems: list[Problem], rest: Any = None, places: Places = NOWHERE) -> None:
        self.problems, self.rest, self.places = problems, rest, places
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"{path} cannot be used:\n{lines}", problems=[p.to_json() for p in problems])


def read_yaml(path: Path, model: type[M]) -> M:
    """Return a file as a `model`. Raises `InvalidFile` with every problem, `FileNotFoundError` where there is none."""
    return read_partly(path, model)[0]


def read_partly(
    path: Path,
    model: type[M],
    *,
    label: str | None = None,
    dispensable: frozenset[str] = frozenset(),
    check: Callable[[M], Iterable[Mistake]] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> tuple[M, list[Problem], Places]:
    """Return the file as a `model`, the mistakes under its `dispensable` keys, which are read as empty then, and
    where everything in it stands. `label` names the file in messages (default: its path).

    `check` says what is wrong with a model whose parts are right, each as the location and a text; `defaults` stand for
    keys that a model needs and that are wrong, so that the rest can be checked too. Keys that begin
    with `x-` are left out wherever they stand. Raises as `read_yaml` for all mistakes that are not dispensable.
    """
    reader = _Reader(label or str(path))
    problems = reader.read(path)
    if problems:
        raise InvalidFile(path, problems)
    data = reader.data if reader.data is not None else {}
    if not isinstance(data, dict):
        raise InvalidFile(path, [reader.places.problem((), f"expected keys and values, found {_kind(data)}")])
    given_up: list[Problem] = []
    while True:
        try:
            value = model.model_validate(data)
        except ValidationError as error:
            errors = error.errors()
        else:
            found = [reader.places.problem(*mistake) for mistake in check(value)] if check is not None else []
            if found:
                raise InvalidFile(path, found, value, reader.places)
            return value, given_up, reader.places
        extensions = [e["loc"] for e in errors if _is_extension(e)]
        mistakes = [(e["loc"], reader.from_pydantic(e, model)) for e in errors if not _is_extension(e)]
        if any(not location or location[0] not in dispensable for location, _ in mistakes):
            problems = [problem for _, problem in mistakes]
            rest = _rest(model, data, [location for location, _ in mistakes], defaults) if check is not None else None
            more = [reader.places.problem(*mistake) for mistake in check(rest)] if check is not None and rest else []
            raise InvalidFile(path, [*problems, *more], rest, reader.places)
        given_up += [problem for _, problem in mistakes]
        for location in extensions:
            _remove(data, location)
        data.update({str(location[0]): {} for location, _ in mistakes})


def _rest(
    model: type[M], data: dict[str, Any], wrong: Iterable[Location], defaults: Mapping[str, Any] | None
) -> M | None:
    """Return the model of what is right in a document, or None where that makes none."""
    rest = copy.deepcopy(data)
    for location in wrong:
        inside = next((i for i, part in enumerate(location) if isinstance(part, int)), len(location))
        place: Any = rest
        for part in location[: inside - 1]:
            place = place.get(part) if isinstance(place, dict) else None
        if isinstance(place, dict) and inside:
            place.pop(location[inside - 1], None)
    with contextlib.suppress(ValidationError):
        return model.model_validate({**(defaults or {}), **rest})
    return None


def _is_extension(error: Any) -> bool:
    return error["type"] == "extra_forbidden" and str(error["loc"][-1]).startswith("x-")


def _remove(data: Any, location: Location) -> None:
    for part in location[:-1]:
        data = data[part]
    del data[location[-1]]


class _Reader:
    """Turns one YAML text into data and remembers where each value stood."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.data: Any = None
        self._marks: dict[Location, Mark] = {}
        self._written: dict[Location, str] = {}
        """How what is no text is written."""
        self.places = Places(name, self._marks)
        self._problems: list[Problem] = []
        self._scalars = SafeConstructor()
        self._values = 0

    def read(self, path: Path) -> list[Problem]:
        """Read the file into `data` and `places`; return what is wrong with it as YAML."""
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            return [Problem(message="it is not a file", file=self.name)]
        if about.st_size > MAX_BYTES:
            return [Problem(message=f"the file is larger than {MAX_BYTES // 1024} KiB", file=self.name)]
        try:
            text = path.read_bytes().decode("utf-8")
        except UnicodeDecodeError as error:
            return [Problem(message=f"the file is not UTF-8 text (byte {error.start})", file=self.name)]
        try:
            root = compose(text)
            if root is not None:
                self.data = self._build(root, ())
        except yaml.reader.ReaderError as error:
            line, column = text.count("\n", 0, error.position) + 1, error.position - text.rfind("\n", 0, error.position)
            message = f"the character {chr(error.character)!r} is not allowed"
            return [Problem(message=message, file=self.name, line=line, column=column)]
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            problem = error.problem or error.context or "it cannot be read"
            if problem.startswith("but ") and error.context:
                problem = f"{error.context}, {problem}"
            for words, plain in _YAML_WORDS:
                problem = words.sub(plain, problem)
            hint = next((hint for words, hint in _YAML_HINTS if words in problem), None)
            message = one_line(f"not valid YAML: {problem}")
            return [Problem(message=message, hint=hint, file=self.name, line=line, column=column)]
        except RecursionError:
            return [Problem(message="not valid YAML: too deeply nested", file=self.name, line=1, column=1)]
        except (yaml.YAMLError, ValueError) as error:
            return [Problem(message=f"not valid YAML: {error}", file=self.name, line=1, column=1)]
        return self._problems

    def _build(self, node: yaml.Node, location: Location) -> Any:
        self._values += 1
        if self._values > MAX_VALUES or len(location) > MAX_NESTING:
            message = "too many values; aliases must not repeat or contain themselves without end"
            raise yaml.MarkedYAMLError(problem=message, problem_mark=node.start_mark)
        self._marks[location] = (node.start_mark.line + 1, node.start_mark.column + 1)
        if isinstance(node, yaml.CollectionNode) and node.tag not in _PLAIN_TAGS:
            raise _unknown_tag(node)
        if isinstance(node, yaml.MappingNode):
            return self._build_mapping(node, location)
        if isinstance(node, yaml.SequenceNode):
            return [self._build(child, (*location, i)) for i, child in enumerate(node.value)]
        try:
            value = self._scalars.construct_object(node, deep=True)
            if not isinstance(value, str):
                self._written[location] = node.value
            return value
        except yaml.constructor.ConstructorError as error:
            raise _unknown_tag(node) if "constructor for the tag" in (error.problem or "") else error from None
        except yaml.YAMLError:
            raise
        except Exception:  # an explicit tag is taken at its word: `!!int ''` is an IndexError in the library
            message = f"{_short(node.value)} is not a {node.tag.rpartition(':')[2]}"
            raise yaml.MarkedYAMLError(problem=message, problem_mark=node.start_mark) from None

    def _build_mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                what = "a list" if isinstance(key_node, yaml.SequenceNode) else "keys and values"
                message = f"a key is a text; here it is {what}, after '?' or in brackets"
                raise yaml.MarkedYAMLError(problem=message, problem_mark=key_node.start_mark)
            key = str(key_node.value)
            inner = (*location, key)
            if key in result:
                self._marks[inner] = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
                self._problems.append(
                    self.places.problem(inner, f"the key {key!r} stands here twice", "keep one of them")
                )
                continue
            result[key] = self._build(value_node, inner)
            self._marks[inner] = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
        return result

    def from_pydantic(self, error: Any, model: type[BaseModel]) -> Problem:
        """Return one of pydantic's errors in plain words, with a suggestion for a misspelt key."""
        location: Location = tuple(error["loc"])
        where = ".".join(str(part) for part in location)
        if error["type"] == "extra_forbidden":
            known = _known_keys(model, location[:-1])
            return self.places.problem(location, f"unknown key {where!r}", suggest(str(location[-1]), known))
        if error["type"] == "missing":
            return self.places.problem(location, f"the key {where!r} is missing")
        value = error.get("input")
        text = _INSTANCE.sub("", error["msg"].removeprefix("Value error, "))
        hint, written = None, self._written.get(location, "")
        if error["type"] == "string_type" and written:
            hint = f'write it in quotes: "{written}"'
        if not location:
            return self.places.problem(location, text)
        found = written or ("nothing" if value is None else _short(value))
        if is_hidden(str(location[-1]), value):
            found, hint = MASK, hint and "write it in quotes"
        found = without_credentials(found)
        return self.places.problem(location, f"{where}: {text[:1].lower()}{text[1:]}, found {found}", hint)


def _unknown_tag(node: yaml.Node) -> yaml.MarkedYAMLError:
    tag = node.tag.replace("tag:yaml.org,2002:", "!!")
    message = f"the tag {tag} is not allowed; leave it out"
    return yaml.MarkedYAMLError(problem=message, problem_mark=node.start_mark)


def _known_keys(model: type[BaseModel], location: Location) -> list[str]:
    for part in location:
        if isinstance(part, int):
            continue  # an item of a list, whose model was found already
        fields = (found for name, found in model.model_fields.items() if (found.alias or name) == part)
        inner = next((_model_in(found.annotation) for found in fields), None)
        if inner is None:
            return []
        model = inner
    return [found.alias or name for name, found in model.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model in `Model | None`, `list[Model]` and the like."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (_model_in(argument) for argument in typing.get_args(annotation))
    return next((model for model in inner if model is not None), None)


def _kind(value: Any) -> str:
    return {list: "a list", str: "a text", int: "a number", float: "a number", bool: "true or false"}.get(
        type(value), "nothing" if value is None else type(value).__name__
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
