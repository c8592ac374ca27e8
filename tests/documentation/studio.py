"""What the studio's sources say of themselves: where plugins may put something, its props and events, and the types of
the API of front ends, from which the declarations for authors are copied."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

from tavern_host.contracts import ui

from .pages import ROOT

SOURCES = ROOT / "plugins" / "tavern_studio" / "frontend" / "src"
TYPES = SOURCES / "extensions" / "types.ts"
DECLARATIONS = ROOT / "plugins" / "tavern_devtools" / "extension" / "index.d.ts"
"""What authors get: a copy of `TYPES`, which stands alone and declares nothing but types."""

_ATTRIBUTE = r"[^\s=>\"/]+(?:=\"[^\"]*\")?"
_PLACE = re.compile(rf"<(PluginOutlet|UiPart)((?:\s+{_ATTRIBUTE})*)\s*/?>")
_OF_THE_PAGE = frozenset({"name", "part", "panel", "class", "key"})
"""Attributes that are for the place and the look."""
_MEMBER = re.compile(r"^ *(?:readonly )?(?P<name>[a-z]\w*)\??(?P<rest>[<(:].*)$")


def declarations() -> str:
    """Return the declarations of `@tavern-host/extension`."""
    return TYPES.read_text(encoding="utf-8")


@cache
def places() -> Mapping[str, tuple[str, ...]]:
    """Return the attributes of each outlet and part, as Vue writes them: props, and events with `@`."""
    found: dict[str, dict[str, None]] = {name: {} for name in (*ui.OUTLETS, *ui.COMPONENTS)}
    seen: set[str] = set()
    for source in sorted(SOURCES.rglob("*.vue")):
        for _, attributes in _PLACE.findall(source.read_text(encoding="utf-8")):
            props = dict(re.findall(r"([^\s=\"]+)(?:=\"([^\"]*)\")?", attributes))
            name = props.get("name") or props["part"]
            seen.add(name)
            found[name] |= dict.fromkeys(_names_in(props))
    if missing := set(found) - seen:
        raise ValueError(f"no page shows {', '.join(sorted(missing))}")
    return {name: tuple(sorted(props, key=lambda one: one.startswith("@"))) for name, props in found.items()}


def _names_in(attributes: Mapping[str, str]) -> Iterator[str]:
    for attribute in attributes:
        plain = attribute.lstrip(":@")
        if attribute.startswith("v-model:"):
            model = attribute.removeprefix("v-model:")
            yield from (model, f"@update:{model}")
        elif attribute.startswith("@"):
            yield f"@{_camel(plain)}"
        elif not attribute.startswith("v-") and plain not in _OF_THE_PAGE:
            yield _camel(plain)


def _camel(name: str) -> str:
    return re.sub(r"-(\w)", lambda letter: letter[1].upper(), name)


@cache
def interface(name: str) -> Mapping[str, str]:
    """Return the members of an interface of the API by their paths, such as `ui.addPanel`, each as it is written."""
    body = re.search(rf"^export interface {name}\b[^{{]*{{\n(.*?)^}}", declarations(), re.DOTALL | re.MULTILINE)
    if body is None:
        raise ValueError(f"{TYPES.name} has no interface {name}")
    found: dict[str, str] = {}
    group: str | None = None
    for line in re.sub(r"/\*\*.*?\*/", "", body[1], flags=re.DOTALL).splitlines():
        depth, member = len(line) - len(line.lstrip()), _MEMBER.match(line)
        if line.strip() in ("};", "}"):
            group = None
        elif member is not None and member["rest"] == ": {":
            group = member["name"]
        elif member is not None and depth == (2 if group is None else 4):
            one_line = re.match(r": \{ (?P<inner>\w+)\(", member["rest"])
            prefix = f"{group}." if group else ""
            inner = f".{one_line['inner']}" if one_line else ""
            found[f"{prefix}{member['name']}{inner}"] = line.strip()
    return found


def client_hooks() -> Mapping[str, tuple[str, tuple[str, ...]]]:
    """Return for each client hook the interface of its event, and the event's members."""
    hooks = re.findall(r'"([\w:-]+)": (\w+);', re.sub(r"/\*\*.*?\*/", "", declarations(), flags=re.DOTALL))
    return {name: (event, tuple(interface(event))) for name, event in hooks}
