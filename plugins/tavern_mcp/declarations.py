"""The declared servers: by whom each is declared, and its program, files and hosts. Starts nothing."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, JsonValue, ValidationError
from pydantic_core import to_json

from tavern_host.context import PluginContext, Project
from tavern_host.contracts.errors import InvalidInput, Misconfigured
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.wire import Model
from tavern_mcp.fetched import packaged
from tavern_scripts.api.scripts import PackagedProgram, ProgramPackage, ProgramRequest

_REGISTRIES = {"npm": "npm's registry", "pypi": "PyPI"}
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_MOST_FILES, _MOST_BYTES = 5_000, 256 << 20
"""How much of a project one server may see: more could not be reviewed."""


class FromEnvironment(Model):
    """A value that stands in a variable of the host's own environment: for secrets. Of the operator's servers alone."""

    env: str


class Server(Model):
    """How a server is reached: a `command` with `args`, the program of a package of `npm` or `pypi`, of which `command`
    says which where there are several, or a `url`. Paths of a project's server go from the project.

    `read`, `write` and `hosts` are what it gets of this machine besides its own program; without `sandbox`, everything.
    `seconds` is the time limit of a call, `start_seconds` that for connecting. `read_only` are patterns of tools that
    change nothing, by the operator's word. `sampling` and `elicitation` say what becomes of a server's own questions.
    `resources`: those that are texts become entries of the knowledge base `mcp-NAME`.
    """

    command: str | None = None
    npm: str | None = Field(default=None, min_length=1, max_length=300)
    pypi: str | None = Field(default=None, min_length=1, max_length=300)
    args: list[str] = Field(default_factory=list)
    env: dict[str, str | FromEnvironment] = Field(default_factory=dict)
    url: str | None = Field(default=None, pattern=r"^https?://")
    headers: dict[str, str | FromEnvironment] = Field(default_factory=dict)
    folder: str | None = None
    read: list[str] = Field(default_factory=list)
    write: list[str] = Field(default_factory=list)
    hosts: list[str] = Field(default_factory=list)
    sandbox: bool = True
    tools: list[str] = Field(default_factory=lambda: ["*"])
    read_only: list[str] = Field(default_factory=list)
    seconds: float = Field(default=60, gt=0, le=3600)
    start_seconds: float = Field(default=20, gt=0, le=600)
    sampling: Literal["ask", "allow", "refuse"] = "ask"
    elicitation: Literal["ask", "refuse"] = "ask"
    resources: Literal["knowledge"] | None = None

    @property
    def package(self) -> ProgramPackage | None:
        """The package whose program it is."""
        if (name := self.npm or self.pypi) is None:
            return None
        return ProgramPackage(registry="npm" if self.npm else "pypi", package=name, program=self.command)


@dataclass(frozen=True)
class Declared:
    """A server with its name and who set it up. An imported one is the operator's, and is used once that is
    approved."""

    name: str
    source: Literal["operator", "project"]
    server: Server
    project: Project
    is_imported: bool = False

    @cached_property
    def _root(self) -> Path:
        return Path(os.path.realpath(self.project.root))

    @property
    def is_trusted(self) -> bool:
        """Whether the operator set it up."""
        return self.source == "operator"

    @property
    def is_to_be_approved(self) -> bool:
        """Whether it is used only as the operator has approved it."""
        return self.is_imported or not self.is_trusted

    def problem(self) -> str | None:
        """Return why it cannot be used as it is set up, or None."""
        server = self.server
        ways = [one for one in (server.npm, server.pypi, server.url) if one is not None]
        if len(ways) > 1 or not (ways or server.command) or (server.command and server.url):
            return 'it needs one of "command", "npm", "pypi" and "url"'
        fetched = packaged(server.command or "", server.args) if server.sandbox and not server.hosts else None
        if fetched is not None:
            named = next(f'"{key}": "{fetched[key]}"' for key in ("npm", "pypi") if key in fetched)
            return (
                f"{server.command} fetches its package at each start, for which the sandbox has no network: say {named}"
                ' instead of the command, which is installed once, or name the hosts of the registry in "hosts"'
            )
        if self.is_trusted:
            return None
        taken = [part for part in (*server.env.values(), *server.headers.values()) if not isinstance(part, str)]
        if taken:
            return f"a project's server is not given the host's variable {taken[0].env}"
        if not server.sandbox or server.sampling == "allow":
            return "a project's server runs in the sandbox, and its questions are asked: set it up in host.yaml instead"
        if server.read_only:
            return 'only the operator says which tools change nothing ("readOnly")'
        outside = [path for path in (*server.read, *server.write) if not self._place(path).is_relative_to(self._root)]
        if outside:
            return f"{outside[0]} is not in the project, of which alone its servers see files"
        private = Path(os.path.realpath(self.project.private))
        for path in (*server.read, *server.write, *self._words()):
            if (place := self._place(path)).is_relative_to(private) or private.is_relative_to(place):
                return f"in {path} is what the host keeps for itself in the project, which its servers do not see"
        return None

    def digest(self) -> str:
        """Return a digest of the server's setup, and of a project's server the files of the project that it sees, its
        program among them; in hexadecimal. Blocking. Raises `InvalidInput`."""
        digest = sha256(to_json(self.server.model_dump(mode="json")))
        if not self.is_trusted:
            for file in self._files():
                with file.open("rb") as opened:
                    digest.update(f"{file}\0{file_digest(opened, 'sha256').hexdigest()}\n".encode())
        return digest.hexdigest()

    def program(self, packaged: PackagedProgram | None = None) -> ProgramRequest:
        """Return the program of the server, that of its package where it is one, and what it may reach. Blocking.
        Raises `Misconfigured` if it is missing."""
        server, command = self.server, self.server.command or ""
        argv = [self._found(command)] if packaged is None else packaged.argv
        read = [str(self._place(path)) for path in server.read]
        if not self.is_trusted:
            read += [str(self._place(word)) for word in self._words()]
        if packaged is not None:
            read.append(packaged.folder)
        return ProgramRequest(
            argv=[*argv, *(str(self._place(word)) if word in self._words() else word for word in server.args)],
            environment=self.values(server.env),
            folder=str(self._place(server.folder)) if server.folder else "/tmp",
            read=list(dict.fromkeys(read)),
            write=[str(self._place(path)) for path in server.write],
            hosts=server.hosts,
        )

    def _found(self, command: str) -> str:
        found = command if Path(command).is_absolute() else shutil.which(command)
        if not self.is_trusted and "/" in command:
            found = str(self._place(command))
        if found is None or not os.access(found, os.X_OK):
            raise Misconfigured(f"there is no program {command!r}")
        return found

    def values(self, entries: Mapping[str, str | FromEnvironment]) -> dict[str, str]:
        """Return values with those of the host's environment. Raises `Misconfigured` for one that is not set."""
        missing = [one.env for one in entries.values() if not isinstance(one, str) and one.env not in os.environ]
        if missing:
            raise Misconfigured(f"the environment variable {missing[0]} is not set")
        return {key: one if isinstance(one, str) else os.environ[one.env] for key, one in entries.items()}

    def shown(self) -> list[str]:
        """Return in lines what it is and what it gets."""
        server = self.server
        if server.url is not None:
            headers = [f"sends the header {name}{_taken(one)}" for name, one in server.headers.items()]
            return [f"reaches {server.url}", *headers]
        words = [*([server.command] if server.command else []), *server.args]
        lines = [f"runs {shlex.join(words)}"]
        if server.package is not None:
            about = f" with {shlex.join(words)}" if words else ""
            lines = [
                f"installs {server.package.package} from {_REGISTRIES[server.package.registry]}, and runs it{about}"
            ]
        lines += [f"sets {key}{'' if self.is_trusted else f'={one}'}{_taken(one)}" for key, one in server.env.items()]
        if not server.sandbox:
            return [*lines, "WITHOUT A SANDBOX: with all rights of the host's user"]
        lines += [f"sees {path}" for path in (*server.read, *(() if self.is_trusted else self._words()))]
        return [*lines, *(f"changes {path}" for path in server.write), *(f"reaches {host}" for host in server.hosts)]

    def _place(self, path: str) -> Path:
        """Return the absolute path that a path means; of a project's, past all links."""
        place = self._root / Path(path).expanduser()
        return Path(os.path.realpath(place)) if not self.is_trusted else Path(os.path.normpath(place))

    def _words(self) -> list[str]:
        """Return the arguments that name something of the project, of a project's server."""
        if self.is_trusted or self.server.url is not None:
            return []
        words = [word for word in self.server.args if word and not word.startswith("-")]
        return [word for word in words if self._place(word).is_relative_to(self._root) and self._place(word).exists()]

    def _files(self) -> Iterator[Path]:
        command = "" if self.server.package is not None else self.server.command or ""
        seen = [*self._words(), *self.server.read, *([command] if "/" in command else [])]
        count = size = 0
        for place in sorted({self._place(path) for path in seen}):
            for file in [place] if place.is_file() else sorted(place.rglob("*")):
                if file.is_file():
                    count, size = count + 1, size + file.stat().st_size
                    if count > _MOST_FILES or size > _MOST_BYTES:
                        raise InvalidInput("it sees too much of the project to be approved")
                    yield file


def _taken(value: str | FromEnvironment) -> str:
    return "" if isinstance(value, str) else f" to the host's variable {value.env}"


def read_servers(context: PluginContext) -> tuple[dict[str, Declared], dict[str, str]]:
    """Return the servers that can be used, by name, and of the others why not. One of the operator's takes the place of
    a project's of the same name."""
    found: dict[str, Declared] = {}
    problems: dict[str, str] = {}
    servers = context.settings.layers("servers")
    given = [(layer, value, False) for layer, value in servers.items() if layer != "default"]
    own = sum(layer == "project" for layer, *_ in given)
    given[own:own] = [(layer, value, True) for layer, value in context.settings.layers("imported").items()]
    for layer, value, is_imported in given:
        source: Literal["operator", "project"] = "project" if layer == "project" else "operator"
        for name, entry in (value if isinstance(value, dict) else {}).items():
            problems.pop(name, None)
            found.pop(name, None)
            declared = read_server(name, source, entry, context, is_imported=is_imported)
            if isinstance(declared, str):
                problems[name] = declared
            else:
                found[name] = declared
    return found, problems


def read_server(
    name: str, source: Literal["operator", "project"], entry: JsonValue, context: PluginContext, *, is_imported: bool
) -> Any:
    """Return a server that is set up, or in words why it cannot be used."""
    if NAME.fullmatch(name) is None:
        return "its name must consist of small letters, digits and hyphens"
    try:
        declared = Declared(name, source, Server.model_validate(entry), context.project, is_imported)
    except ValidationError as error:
        return "; ".join(dict.fromkeys(_mistake(e["type"], e["loc"], e["msg"]) for e in error.errors()))
    return declared.problem() or declared


def _mistake(kind: str, location: tuple[int | str, ...], message: str) -> str:
    """Return one of pydantic's errors in plain words."""
    if not location:
        return "it must be an object"
    key, *inner = location
    if key in ("env", "headers") and inner:
        return f"{key}.{inner[0]}: it must be a text, or {{env: NAME}}"
    if kind == "extra_forbidden":
        known = [field.alias or name for name, field in Server.model_fields.items()]
        hint = did_you_mean(str(key), known) or f"; there are {', '.join(known)}"
        return f"unknown key {key!r}{hint}"
    where = ".".join(map(str, location))
    return f"{where}: {message[:1].lower()}{message[1:]}"
