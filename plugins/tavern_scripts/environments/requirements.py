"""Requirements of Python packages: only names, versions, markers and hashes, from `requirements.txt`, `pyproject.toml`
and the block in a script (PEP 723). What names a place to install from is refused; nothing is installed here."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from tavern_scripts.api.environments import PinnedPackage
from tavern_scripts.environments.refusals import line_of, refuse

MOST_REQUIREMENTS = 1000

OWN_SOURCES = ({"virtual": "."}, {"editable": "."})
"""What stands in a lock for the project itself."""

_HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128})")
_ARCHIVE = re.compile(r"\.(?:whl|zip|egg|tgz|tbz|txz|tlz|tar|gz|bz2|xz|lz|lzma|zst|txt|in|toml|py)\Z", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
_HARMLESS = frozenset(("package", "managed", "dev-dependencies", "default-groups", "required-version", "native-tls"))
"""Settings of uv that do not say where packages come from or which ones."""


@dataclass(frozen=True)
class Requirements:
    """What is to be installed: one normalised requirement on each line, with its hashes. `python` is the version asked
    for (`>=3.11`), or empty."""

    lines: tuple[str, ...]
    python: str = ""

    @property
    def hashed(self) -> bool:
        """Whether every package must have one of the hashes that are given."""
        return any("--hash=" in line for line in self.lines)


def read_requirements(text: str, source: str) -> Requirements:
    """Return the requirements of a `requirements.txt`. Raises `Refused` naming the line."""
    found: list[str] = []
    for number, line in _logical_lines(text):
        line = re.sub(r"(^|\s)#.*$", "", line).strip()
        if not line:
            continue
        if line.startswith("-"):
            raise refuse(source, _why_no_option(line), line=number, text=line)
        words = re.split(r"\s+(?=--)", line)
        hashes = [word.strip() for word in words[1:]]
        for option in hashes:
            if not _HASH.fullmatch(option):
                raise refuse(source, "the only option of a requirement can be --hash=sha256:…", line=number, text=line)
        found.append(" ".join([_requirement(words[0], source, number), *hashes]))
    return _limited(found, source)


def read_pyproject(text: str, source: str) -> Requirements:
    """Return the dependencies in the `[project]` of a `pyproject.toml`; the project itself is not installed.

    Raises `Refused`.
    """
    table = _toml(text, source)
    _check_uv(table, text, source)
    project = table.get("project", {})
    if not isinstance(project, dict):
        raise refuse(source, "[project] must be a table", line=line_of(text, "project"))
    dynamic = project.get("dynamic", [])
    if isinstance(dynamic, list) and "dependencies" in dynamic:
        raise refuse(source, "the dependencies must stand here, not be computed", line=line_of(text, "dynamic"))
    poetry = table.get("tool", {}).get("poetry", {}) if isinstance(table.get("tool", {}), dict) else {}
    if isinstance(poetry, dict) and "dependencies" in poetry and "dependencies" not in project:
        raise refuse(
            source, "dependencies must stand under [project], not [tool.poetry]", line=line_of(text, "tool.poetry")
        )
    return _declared(project, text, source)


def read_block(code: str, source: str) -> Requirements | None:
    """Return the requirements of the block `# /// script` in a Python script (PEP 723), or None. Raises `Refused`."""
    if "# /// script" not in code:
        return None
    found = [match for match in _BLOCK.finditer(code.replace("\r\n", "\n")) if match["type"] == "script"]
    if len(found) > 1:
        raise refuse(source, "there is more than one block `# /// script`; keep one")
    if not found:
        raise refuse(source, "the block `# /// script` is not closed by `# ///`", line=line_of(code, "# /// script"))
    text = "".join(
        line[2:] if line.startswith("# ") else line[1:] for line in found[0]["content"].splitlines(keepends=True)
    )
    table = _toml(text, source)
    _check_uv(table, code, source)
    return _declared(table, code, source)


def check_lock(text: str, source: str, wanted: Requirements) -> None:
    """Check that a lock of uv takes every package from a package index, and has those that are wanted.

    Raises `Refused`.
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    packages = _toml(text, source).get("package", [])
    if not isinstance(packages, list) or len(packages) > 10 * MOST_REQUIREMENTS:
        raise refuse(source, "its packages must be a list of a reasonable length")
    names = {canonicalize_name(str(package.get("name"))) for package in packages if isinstance(package, dict)}
    for line in wanted.lines:
        name = Requirement(line.partition(" --hash=")[0]).name
        if canonicalize_name(name) not in names:
            raise refuse(source, f"it does not have {name}: regenerate it with `uv lock`")
    for package in packages:
        package = package if isinstance(package, dict) else {}
        place = package.get("source")
        if place in OWN_SOURCES or (isinstance(place, dict) and list(place) == ["registry"]):
            continue
        name = str(package.get("name", ""))
        raise refuse(
            source,
            f"{name or 'a package'} comes from {_place(place)}; packages are installed from the package index only",
            line=line_of(text, f'name = "{name}"'),
        )


def left_out(lines: Iterable[str], names: Collection[str]) -> list[str]:
    """Return the requirements but those of these distributions, by normalised names."""
    from packaging.utils import canonicalize_name

    return [line for line in lines if canonicalize_name(_NAME.match(line)[0]) not in names]  # type: ignore[index]


def pinned(text: str, source: str) -> list[PinnedPackage]:
    """Return the packages that resolved requirements install. Raises `Refused`."""
    from packaging.requirements import Requirement

    lines = read_requirements(text, source).lines
    wanted = [Requirement(line.partition(" --hash=")[0]) for line in lines]
    return [PinnedPackage(one.name, part.version) for one in wanted for part in one.specifier]


def _declared(table: dict[str, Any], text: str, source: str) -> Requirements:
    wanted = table.get("dependencies", [])
    if not isinstance(wanted, list) or not all(isinstance(entry, str) for entry in wanted):
        raise refuse(source, "dependencies must be a list of texts", line=line_of(text, "dependencies"))
    python = table.get("requires-python", "")
    if not isinstance(python, str):
        raise refuse(source, "requires-python must be a text such as >=3.11", line=line_of(text, "requires-python"))
    lines = [_requirement(entry, source, line_of(text, entry)) for entry in wanted]
    return Requirements(_limited(lines, source).lines, _python(python, text, source))


def _check_uv(table: dict[str, Any], text: str, source: str) -> None:
    tool = table.get("tool", {})
    settings = tool.get("uv", {}) if isinstance(tool, dict) else {}
    for name in settings if isinstance(settings, dict) else ():
        if name not in _HARMLESS:
            raise refuse(
                source,
                f"[tool.uv] {name} is not allowed here: where packages come from is the operator's to say; take it out",
                line=line_of(text, name),
            )


def _requirement(text: str, source: str, line: int | None) -> str:
    """Return a requirement as `packaging` writes it, so that what was checked is what is installed."""
    from packaging.requirements import InvalidRequirement, Requirement

    if len(text) > 1000:
        raise refuse(source, "it is too long for a requirement", line=line, text=text)
    try:
        parsed = Requirement(text)
    except (InvalidRequirement, RecursionError):
        problem = "it is no requirement such as `name>=1.2`"
        if re.search(r"[/\\]|^\.|://|\.whl|\.zip|\.tar", text):
            problem = "packages are named, not given by a path or an address"
        raise refuse(source, problem, line=line, text=text) from None
    if parsed.url is not None:
        raise refuse(source, "packages come from the package index only, not from an address", line=line, text=text)
    if _ARCHIVE.search(parsed.name):  # which some take for a file
        raise refuse(source, "packages are named, not given by a path or an address", line=line, text=text)
    if any(part.operator == "===" for part in parsed.specifier):
        raise refuse(source, "versions are compared by ==, not ===", line=line, text=text)
    return str(parsed)


def _python(text: str, whole: str, source: str) -> str:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return str(SpecifierSet(text))
    except InvalidSpecifier:
        raise refuse(
            source, "requires-python is no range such as >=3.11", line=line_of(whole, "requires-python"), text=text
        ) from None


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Return lines with the number of their first one; a backslash at the end joins the next."""
    result: list[tuple[int, str]] = []
    start, parts = 0, list[str]()
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        start = start or number
        continued = line.endswith("\\") and not line.lstrip().startswith("#")
        parts.append(line[:-1] if continued else line)
        if not continued:
            result.append((start, " ".join(parts)))
            start, parts = 0, []
    if parts:
        result.append((start, " ".join(parts)))
    return result


def _limited(lines: list[str], source: str) -> Requirements:
    if len(lines) > MOST_REQUIREMENTS:
        raise refuse(source, f"it has {len(lines):,} requirements; at most {MOST_REQUIREMENTS:,} are installed")
    return Requirements(tuple(lines))


def _toml(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise refuse(source, f"it is no TOML: {error or 'it is nested too deeply'}") from None


def _why_no_option(line: str) -> str:
    if re.match(r"(-e|--editable)\b", line):
        return "nothing is installed from a folder; name packages of the package index"
    if re.match(r"(-r|-c|--requirement|--constraint)", line):
        return "other files are not read; write the requirements here"
    return "options are not allowed here: where packages come from is the operator's to say; take it out"


def _place(place: object) -> str:
    return next(iter(place)) if isinstance(place, dict) and place else "nowhere"
