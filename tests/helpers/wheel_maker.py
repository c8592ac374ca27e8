"""Writes wheels by hand: of plugins, of what they depend on, and of what no host can use."""

from __future__ import annotations

import textwrap
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from documentation.platform import hooks

CODE = """
from tavern_host import CommandInfo, RouteInfo, hookimpl
import dep_a

@hookimpl
def tavern_register_routes():
    return [RouteInfo(method="GET", path="/api/x/acme/about", handler="acme.web:about", summary="About.")]
"""
WEB = """
from tavern_host import HttpResponse
import dep_a

async def about(request, context):
    return HttpResponse(data=["{version}", dep_a.VERSION])
"""


def wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str],
    *,
    requires: Sequence[str] = (),
    entry: str | None = None,
) -> Path:
    """Write the wheel of a distribution and return it; `entry` is `name = package` of a plugin."""
    package = name.replace("-", "_")
    info = f"{package}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    listed = {path: textwrap.dedent(text) for path, text in files.items()} | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if entry is not None:
        listed[f"{info}/entry_points.txt"] = f"[tavern_host.plugins]\n{entry}\n"
    listed[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*listed, f"{info}/RECORD"])
    file = folder / f"{package}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as opened:
        for path, text in listed.items():
            opened.writestr(path, text)
    return file


def plugin_wheel(
    folder: Path,
    name: str,
    version: str = "1.0.0",
    code: str = "",
    *hooked: str,
    files: Mapping[str, str] | None = None,
    needs: Sequence[str] = (),
    **manifest: Any,
) -> Path:
    """Write the wheel of a plugin and return it; `hooked` are hooks whose permission it declares."""
    permissions = {"hooks": [hooks()[hook].permission for hook in hooked]}
    document = {"name": name, "displayName": name, "version": version, "apiVersion": ">=0.1,<0.2", **manifest}
    package = name.replace("-", "_")
    listed = {
        f"{package}/__init__.py": code,
        f"{package}/plugin.yaml": yaml.safe_dump({**document, "permissions": permissions}),
        **(files or {}),
    }
    return wheel(folder, name, version, listed, requires=needs, entry=f"{name} = {package}")


def acme(folder: Path, version: str, *hooked: str, dependency: str = "==1.0", code: str = "") -> Path:
    """Write the wheel of a version of the plugin acme, with a route that says its version and that of what it uses."""
    files = {"acme/web.py": WEB.format(version=version)}
    needs = ["tavern-host", f"dep-a{dependency}", "pydantic>=2"]
    return plugin_wheel(
        folder, "acme", version, CODE + code, "tavern_register_routes", *hooked, files=files, needs=needs
    )
