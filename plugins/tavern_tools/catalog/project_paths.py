"""From a path, as a caller writes it, to the names of folders and file in the project's files folder.

Decides by the text alone; what is there, and whether it is a link, is seen when it is opened (`project_folder.py`).
"""

from __future__ import annotations

import re
import unicodedata

from tavern_host.contracts.errors import InvalidInput
from tavern_host.storage.files import TEMPORARY
from tavern_tools.catalog.names import quoted

MAX_PATH = 4_000
"""The longest path, in characters."""

MAX_NAME = 255
"""The longest name of a file or folder, in bytes: more no usual file system takes."""

MAX_DEPTH = 32
"""How deep folders may lie in each other."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change in which order others are shown, so that a name looks like another one."""


def read_path(path: str, folder: str = "files folder") -> tuple[str, ...]:
    """Return the names that a path is made of; none for the files folder itself, or what the `folder` is called.

    White space around the whole path is dropped, since text protocols leave it there. A `/` in front means the files
    folder. Raises `InvalidInput` for what cannot, or should not, be a path in there; the message says why.
    """
    path = path.strip()
    if len(path) > MAX_PATH:
        raise InvalidInput(f"the path has {len(path):,} characters; at most {MAX_PATH:,} are possible")
    steps = tuple(step for step in path.split("/") if step not in ("", "."))
    if not steps:
        return ()
    problem = _path_problem(steps, folder) or next(filter(None, map(_name_problem, steps)), None)
    if problem is not None:
        raise InvalidInput(f"{quoted(path)} {problem}")
    return steps


def shown(steps: tuple[str, ...]) -> str:
    """Return how a message names what lies there."""
    return quoted("/".join(steps)) if steps else "the files folder"


def _path_problem(steps: tuple[str, ...], folder: str) -> str | None:
    if ".." in steps:
        return f"leads upwards with ..; name a file by its path from the project's {folder}"
    if steps[0] == "~":
        return f"means a home folder, which is not here; paths begin at the project's {folder}"
    if _SCHEME.fullmatch(steps[0]):
        return "is an address or a drive and no path here; write one such as logs/today.log"
    if len(steps) > MAX_DEPTH:
        return f"is more than {MAX_DEPTH} folders deep"
    return None


def _name_problem(name: str) -> str | None:
    if "\\" in name:
        return "has a backslash; write / between folders"
    if any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or c in _DIRECTIONS for c in name):
        return "has a character that cannot be seen and does not belong into a name"
    if name != name.strip():
        return "has a name with white space at its beginning or end"
    if unicodedata.normalize("NFKC", name) in (".", ".."):
        return "has a name that looks like . or .."
    if len(name.encode()) > MAX_NAME:
        return f"has a name of more than {MAX_NAME} bytes"
    if name.startswith(TEMPORARY):
        return "is the name of an unfinished file of the host"
    return None
