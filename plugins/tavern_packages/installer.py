"""Runs uv, or pip where there is no uv: to find what has to be installed for a plugin, and to put it into a folder.

Nothing in the environment of the host is ever changed: its packages are constraints, which a plugin fits or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from tavern_host.common.proxies import NO_PROXY_HINT
from tavern_host.contracts.errors import Conflict, DeadlineExceeded, Misconfigured

_SECONDS = 900.0
"""How long a program may take, downloads included."""
_NOT_THEIRS = ("PYTHON", "VIRTUAL_ENV", "TAVERN_")
"""How variables begin that concern this process alone."""
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
"""Variables in whose place are those that say what the host itself does."""
_UNKNOWN_NAME = re.compile(
    r"dns error|failed to lookup|name or service not known|name resolution|getaddrinfo|NameResolution", re.IGNORECASE
)
_MOST_SAID = 4_000
"""How many characters of what the program says are shown."""


@dataclass(frozen=True)
class Wanted:
    """What is to be installed: as the operator asked for it, and as the program takes it. `sha256` is the hash of the
    file that it is; `plugin` the name that an index gives to it; with `build`, what is no wheel may be built."""

    requested: str
    argument: str
    distribution: str | None = None
    sha256: str | None = None
    plugin: str | None = None
    build: bool = False


class Installer:
    """uv or pip, for the interpreter of this process; by default uv where it is there. Raises `Misconfigured`."""

    def __init__(self, name: str | None = None, proxies: Mapping[str, str] | None = None) -> None:
        beside = Path(sys.executable).parent / "uv"
        uv = None if name == "pip" else str(beside) if os.access(beside, os.X_OK) else shutil.which("uv")
        self.name = "uv" if uv else "pip"
        if not uv and (name == "uv" or importlib.util.find_spec("pip") is None):
            raise Misconfigured(f"plugins are installed by {name or 'uv or pip'}, which is not there: `pip install uv`")
        self._proxies = proxies or {}
        self._argv = [uv, "pip"] if uv else [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]

    async def resolve(self, wanted: Wanted, places: Sequence[str], work: Path) -> dict[str, str]:
        """Return the requirements to install beside what is there, by normalized name, each with its version or file.

        Of the distributions in `places` none may be another one then; they count in this order.
        Raises `Conflict` where there is no way, with what the program says.
        """
        installed = await asyncio.to_thread(versions, places)
        constraints = work / "constraints.txt"
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in installed.items()), encoding="utf-8")
        report = work / "report.json"
        options = ["--dry-run", *self._binary(wanted), "--constraint", str(constraints)]
        more = (
            ["--python", sys.executable, "--break-system-packages"] if self.name == "uv" else ["--report", str(report)]
        )
        code, out, err = await self._run("install", *options, *more, wanted.argument)
        if code != 0:
            lines = (out + err).replace(f"{work}/", "").splitlines()
            said = "\n".join(line for line in lines if not line.startswith("Using "))
            held = await asyncio.to_thread(_held, said, installed, places)
            message = f"{wanted.requested} cannot be installed beside what is there, and nothing was changed"
            raise Conflict(f"{message}. {self.name} says:\n{said[-_MOST_SAID:].strip()}{held}")
        if self.name == "pip":
            return _reported(json.loads(report.read_text(encoding="utf-8"))["install"])
        return _listed(out + err)

    async def unpack(self, wanted: Wanted, found: Iterable[str], folder: Path) -> None:
        """Install exactly what was found into a folder. Raises `Conflict`."""
        options = ["--no-deps", *self._binary(wanted), "--target", str(folder)]
        more = ["--python", sys.executable, "--link-mode", "copy"] if self.name == "uv" else ["--no-compile"]
        code, out, err = await self._run("install", *options, *more, *found)
        if code != 0:
            said = (out + err).strip()[-_MOST_SAID:]
            raise Conflict(
                f"{wanted.requested} cannot be installed, and nothing was changed. {self.name} says:\n{said}"
            )

    def _binary(self, wanted: Wanted) -> list[str]:
        return [] if wanted.build else ["--only-binary", ":all:"]

    async def _run(self, *words: str) -> tuple[int, str, str]:
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith(_NOT_THEIRS) and k.upper() not in _PROXIES
        }
        environment |= {"NO_COLOR": "1", **self._proxies}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self._argv, *words, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=environment
        )
        try:
            async with asyncio.timeout(_SECONDS):
                out, err = await process.communicate()
        except TimeoutError:
            raise DeadlineExceeded(f"{self.name} did not end within {_SECONDS:g} s; nothing was changed") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        said = err.decode(errors="replace")
        if process.returncode and _UNKNOWN_NAME.search(said):
            said += f"\nA name has no address, and {NO_PROXY_HINT}."
        return process.returncode or 0, out.decode(errors="replace"), said


def versions(places: Sequence[str]) -> dict[str, str]:
    """Return the distributions in folders by normalized name with their versions; the first of each name counts."""
    known: dict[str, str] = {}
    for one in distributions(path=[*places]):
        with contextlib.suppress(Exception):  # one that is damaged is none
            known.setdefault(canonicalize_name(one.metadata["Name"]), one.version)
    return known


def unmet(environment: Sequence[str], folders: Sequence[str]) -> set[str]:
    """Return the requirements of distributions in folders of packages that are not met by what may be imported: that of
    the environment, else those of the folders."""
    here, there = versions(environment), dict[str, set[str]]()
    for folder in folders:
        for name, version in versions([folder]).items():
            there.setdefault(name, set()).add(version)
    lines = set()
    for one in distributions(path=[*folders]):
        for requirement in _requirements(one):
            name = canonicalize_name(requirement.name)
            for version in {here[name]} if name in here else there.get(name, {""}):
                if not version or not requirement.specifier.contains(version, prereleases=True):
                    lines.add(_needs(one, requirement, version))
    return lines


def _requirements(one: Distribution) -> Iterator[Requirement]:
    for text in one.requires or ():
        with contextlib.suppress(InvalidRequirement):
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                yield requirement


def _needs(one: Distribution, requirement: Requirement, version: str) -> str:
    need = f"{requirement.name}{requirement.specifier}"
    return f"{one.metadata['Name']} {one.version} needs {need}; {version or 'none'} is installed"


def _listed(said: str) -> dict[str, str]:
    """Return uv's list of what it would install; older versions write a file as `acme==1.0 (from file:///…)`."""
    found: dict[str, str] = {}
    for line in said.splitlines():
        if line.startswith(" + "):
            pin, _, url = line[3:].strip().partition(" (from ")
            name = Requirement(pin).name
            found[canonicalize_name(name)] = f"{name} @ {url.removesuffix(')')}" if url else pin
    return found


def _reported(items: list[dict[str, dict[str, str]]]) -> dict[str, str]:
    """Return the requirements of pip's report, by normalized name."""
    found: dict[str, str] = {}
    for item in items:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        url = item["download_info"]["url"]
        found[canonicalize_name(name)] = f"{name} @ {url}" if item.get("is_direct") else f"{name}=={version}"
    return found


def _held(said: str, installed: Mapping[str, str], places: Sequence[str]) -> str:
    """Return which installed distributions need those that a message names with their version."""
    named = {name for name, version in installed.items() if f"{name}=={version}" in said}
    lines = []
    for one in distributions(path=[*places]) if named else ():
        for requirement in _requirements(one):
            if (name := canonicalize_name(requirement.name)) in named:
                lines.append(_needs(one, requirement, installed[name]))
    return "".join(f"\n{line}" for line in sorted(set(lines))[:10])
