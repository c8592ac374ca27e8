"""Commands of `tavern` that plugins register, and what a command sends to the terminal.

A command handler is `async def handler(arguments: dict[str, JsonValue], context: PluginContext)` and
returns an `AsyncIterator[CommandOutput]`: it says what to show, the command line decides how (`--json`
shows the `result` alone).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import ClassVar, Literal

from pydantic import Field, JsonValue

from tavern_host.contracts.contributions import ContributionKind, Handler
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.wire import Model

_TYPES = {
    "text": ("a text", (str,)),
    "path": ("a text", (str,)),
    "integer": ("an integer", (int,)),
    "number": ("a number", (int, float)),
    "flag": ("true or false", (bool,)),
}


class CommandParameter(Model):
    """An argument or option. An option's name begins with `--`; `multiple` collects a list.

    `type` `path` is made absolute against the folder the user stands in; `text` as typed.
    """

    name: str
    help: str = ""
    type: Literal["text", "integer", "number", "flag", "path"] = "text"
    required: bool = False
    multiple: bool = False
    default: JsonValue = None

    @property
    def key(self) -> str:
        """What its value is called among the arguments of a command."""
        return self.name.lstrip("-").replace("-", "_")

    def read(self, value: JsonValue) -> JsonValue:
        """Return a value that is given for it, or what stands for one that is not: its default, no items where it is
        `multiple`, false for a flag. Raises `InvalidInput`."""
        if value is None:
            value = self.default
        if value is None:
            if self.required:
                raise InvalidInput(f"{self.key}: a value is missing")
            return [] if self.multiple else False if self.type == "flag" else None
        expected, types = _TYPES[self.type]
        items = value if self.multiple else [value]
        if not isinstance(items, list) or any(type(item) not in types for item in items):
            raise InvalidInput(f"{self.key}: expected {'a list, each item ' * self.multiple}{expected}")
        return value


class CommandOutput(Model):
    """One thing that a command says.

    `text` goes to stdout as a line, on a terminal in the colour of its one of `tones`, if it has one, and so does
    `message`, which is for a person and comes in the language of the terminal; `chunk` as it is, for text that is shown
    as it comes: what comes after it, of another kind, begins on a line of its own; `table` is `columns` and `rows`;
    `result` is the JSON of the whole command, printed with `--json`, and `entry` that of one thing of many that come
    while the command runs, a line each; `failure` is an error: `exit_code` 2 for the
    user's mistake, 1 for a failure.

    For a person watching (stderr, never with `--json`): `progress` is a line, in their language too. `live` is how
    things stand, kept at the foot of a terminal in place of the `live` before it: `title`, `done` of `total`, and
    `rows` in their `tones`. It is shown on a terminal only, and while it is, `progress` is not: a command may send
    both.
    """

    kind: Literal["text", "message", "chunk", "progress", "live", "table", "result", "entry", "failure"]
    text: str = ""
    title: str | None = None
    columns: list[str] = Field(default_factory=list)
    rows: list[list[str]] = Field(default_factory=list)
    tones: list[Literal["plain", "good", "bad", "active", "quiet"]] = Field(default_factory=list)
    done: int = 0
    total: int = 0
    data: JsonValue = None
    exit_code: int = 1


class CommandGroup(Model):
    """What the help of `tavern` says of all commands with the same first word: a sentence, and its `section`."""

    help: str = ""
    section: Literal["start", "build", "run", "plugins", "people", "operate"]


class CommandInfo(Model):
    """A command: `name` is one or two words (`workflow run`); `handler` is `module:function` in the plugin.

    `group` says what commands with its first word are for; of several the first that says it counts. A command of one
    word needs no sentence but its own. What no command of a group says stands in a section of its own, the last.

    A `standalone` command needs no project: plugins are loaded for it, but not started. One that is `at_server` is
    carried out by the server of the project where one runs, so that what it starts is seen there: its output is sent to
    the terminal, its arguments are the terminal's, and standard input it has none. `examples` are whole lines to copy,
    such as `tavern workflow run greeting`, which stand at the end of its help.
    """

    KIND: ClassVar[ContributionKind] = ContributionKind(answer=AsyncIterator[CommandOutput])

    name: str
    help: str
    handler: Handler
    group: CommandGroup | None = None
    standalone: bool = False
    at_server: bool = False
    examples: tuple[str, ...] = ()
    parameters: list[CommandParameter] = Field(default_factory=list)

    def arguments(self, values: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return the arguments of the handler. Raises `InvalidInput` for a name that no parameter has, and for a value
        that is none for its parameter."""
        parameters = {parameter.key: parameter for parameter in self.parameters}
        if unknown := values.keys() - parameters.keys():
            raise InvalidInput(f"{self.name} has no parameter {min(unknown)!r}")
        return {key: parameter.read(values.get(key)) for key, parameter in parameters.items()}


def examples_of(name: str, lines: str) -> tuple[str, ...]:
    """Return those of these lines that are examples of a command."""
    return tuple(line for line in lines.splitlines() if f"{line} ".startswith(f"tavern {name} "))
