"""Puts a new plugin together from the parts that its author has named: nodes, tools, hooks, services, agents, a front
end."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from tavern_devtools.scaffold import Scaffold, rendered, types_of_page, values_of

PARTS = {
    "node": "node `{name}:Reverse` | `{package}/nodes/reverse.py`",
    "tool": "tool `{name}:reverse` | `{package}/tools/reverse.tool.json`",
    "hook": "hook `tavern_before_execute` | `{package}/__init__.py`",
    "service": "service `{name}.greeter` | `{package}/greeter.py`",
    "override": "override of `nodeManager` | `{package}/node_list.py`",
    "agent": "agent `{name}` | `{package}/agents/helper.json`, and its workflow",
    "knowledge": "knowledge base `{name}` | `{package}/knowledge/{name}.json`",
}
"""The parts of a plugin by the option that asks for them, each with what its README says."""
NEEDS = {"tool": "node"}
"""What a part cannot be without."""
_REVIEWED = ("hook", "override")
"""What the operator has to grant, as every front end."""
_HEAD = '"""What the plugin registers with the host; the work is in the modules beside this one."""\n'
_BARE = '"""What the plugin contributes is in the folders beside this file, which its manifest names."""\n'
_FROM_HOST = re.compile(r"from tavern_host import (.+)\n")
OF_PARTS = ("plugin.yaml", "init.py")
"""Files of a part that are joined with those of others."""


def combined(name: str, wanted: Sequence[str], ui: str | None) -> Scaffold:
    """Return a plugin with these parts, and a front end of a kind. Raises `InvalidInput` for a name that cannot be."""
    parts = [part for part in PARTS if part in wanted or part in {NEEDS.get(one) for one in wanted}]
    values = values_of(name, has_ui=ui is not None)
    package = values["package"]
    each = [rendered([f"parts/{part}"], values) for part in parts]
    files = rendered(["common", "parts/base", *([ui] if ui else [])], values)
    page = files.pop(f"{package}/plugin.yaml", "")
    for found in each:
        files |= {path: text for path, text in found.items() if path not in OF_PARTS}
    if ui is not None:
        tests = rendered(["ui"], values)["tests/test_plugin.py"]
        files |= {"tests/test_page.py": tests, **types_of_page(ui, package)}
    manifests = [yaml.safe_load(found["plugin.yaml"]) for found in each] + ([yaml.safe_load(page)] if page else [])
    files[f"{package}/plugin.yaml"] = _manifest(values, parts, manifests)
    files[f"{package}/__init__.py"] = module_of([found["init.py"] for found in each if "init.py" in found])
    files["README.md"] = _readme(values, parts, ui)
    return Scaffold(name, package, dict(sorted(files.items())))


def _manifest(values: Mapping[str, str], parts: Sequence[str], manifests: Sequence[dict[str, Any]]) -> str:
    base: dict[str, Any] = {
        "name": values["name"],
        "displayName": values["display_name"],
        "version": "0.1.0",
        "description": f"A plugin with {', '.join(parts)}." if parts else "A front end.",
        "apiVersion": values["api"],
    }
    merged: dict[str, Any] = {}
    for manifest in manifests:
        merge(merged, {key: value for key, value in manifest.items() if key not in base})
    last: dict[str, Any] = {
        key: merged.pop(key) for key in ("configOptions", "permissions", "publishes") if key in merged
    }
    whole = {**base, **merged, **last}
    return dumped(whole)


def dumped(manifest: Mapping[str, Any]) -> str:
    """Return a manifest as text."""
    return str(yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True, width=120))


def merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add what a manifest has to another, which is changed: the items of lists follow each other."""
    for key, value in more.items():
        if isinstance(value, dict):
            merge(into.setdefault(key, {}), value)
        elif isinstance(value, list):
            into[key] = [*into.get(key, []), *(one for one in value if one not in into.get(key, []))]
        else:
            into[key] = value


def module_of(bodies: Sequence[str]) -> str:
    """Return one module with the code of several, and their imports once."""
    if not bodies:
        return _BARE
    names = {name for body in bodies for found in _FROM_HOST.findall(body) for name in found.split(", ")}
    imports, code = [f"from tavern_host import {', '.join(sorted(names, key=_order))}"], []
    for body in bodies:
        head, rest = body.split("\n\n\n", 1)
        imports += [line for line in head.splitlines() if line and not line.startswith("from tavern_host import ")]
        code.append(rest)
    host = sorted(line for line in imports if not line.startswith("from ."))
    own = sorted(line for line in imports if line.startswith("from ."))
    groups = ["from __future__ import annotations", "\n".join(host), *(["\n".join(own)] if own else [])]
    return _HEAD + "\n" + "\n\n".join(groups) + "\n\n\n" + "\n\n".join(code)


def _order(name: str) -> tuple[int, str]:
    """Return where a name stands among imports, as ruff sorts them: constants, classes, functions."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def _readme(values: Mapping[str, str], parts: Sequence[str], ui: str | None) -> str:
    name, package = values["name"], values["package"]
    rows = [PARTS[part].format(name=name, package=package) for part in parts]
    folder = "web" if ui == "plain" else "frontend"
    rows += [f"front end | `{package}/{folder}/`"] if ui is not None else []
    table = "\n".join(["| what | where |", "| --- | --- |", *(f"| {row} |" for row in rows)])
    is_reviewed = ui is not None or any(part in _REVIEWED for part in parts)
    grant = f"    tavern plugins grant {name}\n" if is_reviewed else ""
    use = f"## Use it\n\n    pip install .\n{grant}    tavern serve\n"
    change = (
        f"## Change it\n\n    pip install -e '.[test]'\n    pytest\n    tavern plugins check .\n"
        f"    tavern --dev {package} serve     # each change is loaded\n"
    )
    return f"# {name}\n\nA plugin for tavern-host.\n\n{table}\n\n{use}\n{change}"
