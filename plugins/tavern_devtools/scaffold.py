"""Writes the files of a new plugin from the template beside this module. Never writes over a file."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import keyword
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Literal

from tavern_devtools.schemas import schema_of
from tavern_host import __version__
from tavern_host.contracts.errors import Conflict, InvalidInput
from tavern_host.contracts.names import RESERVED, plugin_name

LONGEST_NAME = 50

Kind = Literal["full", "minimal", "plain", "vue"]
"""What a new plugin has: a node, a tool and a command; a hook alone; a front end as it is written, or with Vue."""

UI_KINDS = ("plain", "vue")

_TEMPLATE = Path(__file__).with_name("template")
_TYPES = Path(__file__).parent / "extension" / "index.d.ts"
"""The types of the page's API, of which a new plugin with a front end gets a copy."""
_SCHEMAS = ".schemas"
"""The folder of a new plugin with the JSON Schemas that its files name, for editors."""
_ENDING = ".txt"
"""Ends the names of the template's files, so that no tool takes them for what they become."""
_TAKEN = frozenset({"core", "tavern", "test", "tests", RESERVED})


@dataclass(frozen=True)
class Scaffold:
    """A new plugin: its name, the package of its code, and its files by path within its folder."""

    name: str
    package: str
    files: dict[str, str]


def scaffold(name: str, kind: Kind = "full") -> Scaffold:
    """Return the files of a new plugin of this name. Raises `InvalidInput` for a name that cannot be."""
    has_ui = kind in UI_KINDS
    values = values_of(name, has_ui=has_ui)
    files = rendered(["common", *(["ui"] if has_ui else []), kind], values)
    if has_ui:
        files |= types_of_page(kind, values["package"])
    return Scaffold(name, values["package"], dict(sorted(files.items())))


def values_of(name: str, *, has_ui: bool, is_new: bool = True) -> dict[str, str]:
    """Return the values of the placeholders of templates. Raises `InvalidInput` for a name that cannot be one of a
    plugin that `is_new`."""
    if is_new:
        _check(name)
    return {
        "name": name,
        "package": name.replace("-", "_"),
        "display_name": name.replace("-", " ").capitalize(),
        "api": api_range(__version__),
        "test_needs": ', "playwright>=1.50"' if has_ui else "",
    }


def rendered(roots: Iterable[str], values: Mapping[str, str]) -> dict[str, str]:
    """Return the files of these folders of the template by path; those of one path follow each other in one file."""
    package = values["package"]
    places = {"package": package, "NAME": values["name"]}
    files = {f"{package}/py.typed": ""}
    for root in (_TEMPLATE / part for part in roots):
        for source in sorted(root.rglob(f"*{_ENDING}")):
            inner = "/".join(places.get(part, part) for part in source.relative_to(root).parts)
            path = inner.removesuffix(_ENDING).replace("NAME.", f"{values['name']}.")
            files[path] = files.get(path, "") + Template(source.read_text(encoding="utf-8")).substitute(values)
    for kind, pattern in (("plugin", "plugin.yaml"), ("tool", ".tool.json")):
        if any(path.endswith(pattern) for path in files):
            files[f"{_SCHEMAS}/{kind}.schema.json"] = json.dumps(schema_of(kind), indent=2) + "\n"
    return files


def types_of_page(kind: str, package: str) -> dict[str, str]:
    """Return the file with the types of the page's API, where a front end of this kind has it."""
    return {f"{package}/frontend/extension.d.ts" if kind == "vue" else "extension.d.ts": _TYPES.read_text("utf-8")}


def api_range(version: str) -> str:
    """Return the versions of the host that a plugin written for `version` may be used with."""
    major, minor = (int(part) for part in version.split(".")[:2])
    below = f"{major}.{minor + 1}" if major == 0 else f"{major + 1}"
    return f">={major}.{minor},<{below}"


def write(new: Scaffold, folder: Path) -> None:
    """Write the files below `folder`, which is made where there is none.

    Raises `Conflict` where one of them is there already, and `InvalidInput` where they cannot be written; then
    none is left behind.
    """
    existing = [path for path in new.files if is_taken(folder / path)]
    if existing:
        shown = ", ".join(existing[:3]) + (f" and {len(existing) - 3} more" if len(existing) > 3 else "")
        raise Conflict(f"{folder} has {shown} already; nothing was written (take another --folder)")
    written: list[Path] = []
    try:
        for path, text in new.files.items():
            target = folder / path
            _make_folders(target.parent, written)
            with target.open("x", encoding="utf-8", newline="\n") as file:  # a file that was made meanwhile is kept
                written.append(target)
                file.write(text)
    except BaseException as error:
        for one in reversed(written):
            with contextlib.suppress(OSError):  # another process added something or removed it: leave it
                one.rmdir() if one.is_dir() and not one.is_symlink() else one.unlink()
        if isinstance(error, OSError):
            raise InvalidInput(f"{error.filename or folder} cannot be written: {error.strerror}") from None
        raise


def is_taken(path: Path) -> bool:
    """Return whether something is at a path, a link that leads nowhere included."""
    return path.exists() or path.is_symlink()


def _make_folders(folder: Path, written: list[Path]) -> None:
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        one.mkdir()
        written.append(one)


def _check(name: str) -> None:
    try:
        plugin_name(name)
    except ValueError as error:
        raise InvalidInput(f"the name {name!r:.80} {error}{_hint(near_name(name))}") from None
    package = name.replace("-", "_")
    if len(name) > LONGEST_NAME:
        raise InvalidInput(f"the name {name!r:.80} has {len(name)} characters; it may have {LONGEST_NAME}")
    if name in _TAKEN:
        raise InvalidInput(f"the name {name!r} is the host's own{_hint(f'my-{name}')}")
    if keyword.iskeyword(package) or package in sys.stdlib_module_names:
        raise InvalidInput(f"the name {name!r} cannot be: {package!r} is Python's own{_hint(f'my-{name}')}")
    if _is_installed(package):
        hint = f"take another name, such as 'my-{name}', or change the one that is there"
        raise InvalidInput(f"the name {name!r} is taken: a package {package!r} is installed already ({hint})")


def near_name(text: str) -> str | None:
    """Return the plugin name that is nearest to a text, or None where the text has no letter for one."""
    plain = unicodedata.normalize("NFKD", text[:LONGEST_NAME]).encode("ascii", "ignore").decode()
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1-\2", plain).lower()
    return re.sub(r"[^a-z0-9]+", "-", words).lstrip("-0123456789").rstrip("-") or None


def _hint(name: str | None) -> str:
    return f" (did you mean {name!r}?)" if name and name not in _TAKEN else ""


def _is_installed(package: str) -> bool:
    """Return whether a package with code can be imported by this name already."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError, AttributeError):
        return True
    return spec is not None and spec.origin is not None
