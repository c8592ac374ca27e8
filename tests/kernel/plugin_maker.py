"""Writes plugins for tests, as folders or as installed packages, and reaches into those that a host has loaded."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from tavern_host import Host, PluginContext
from tavern_host.contracts.plugins import Problem
from tavern_host.hookspecs import hooks

KEEP_CONTEXT = """
from tavern_host import hookimpl

CONTEXTS = []

@hookimpl
async def tavern_startup(context):
    CONTEXTS.append(context)
"""
"""A plugin that keeps its context, so that a test can act in its name."""


def make_plugin(
    parent: Path, folder: str = "acme", code: str | None = None, /, *, hooked: Iterable[str] = (), **manifest: Any
) -> Path:
    """Write a folder plugin beneath `parent` and return its folder.

    `hooked` are hooks whose permission the manifest declares; `manifest` are further keys of
    `plugin.yaml`, `permissions` among them. Without `code` there is no Python in it.
    """
    root = parent / folder
    root.mkdir(parents=True, exist_ok=True)
    permissions = dict(manifest.pop("permissions", {}))
    permissions["hooks"] = [*permissions.get("hooks", []), *(hooks()[hook].permission for hook in hooked)]
    document = {"name": folder, "displayName": folder, "version": "1.0.0", "permissions": permissions, **manifest}
    (root / "plugin.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    if code is not None:
        write(root / "__init__.py", code)
    return root


def write(file: Path, code: str) -> None:
    """Write Python code, its folder made if need be."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(code))


def install(
    site: Path,
    package: str,
    code: str = "",
    *,
    entry: str,
    value: str | None = None,
    dist: str | None = None,
    **manifest: Any,
) -> Path:
    """Write what `pip install` would: a package with a manifest, and a distribution with its entry point."""
    root = make_plugin(site, package, code, **({"name": entry} | manifest))
    info = site / f"{dist or package}-1.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist or package}\nVersion: 1.0.0\n")
    (info / "entry_points.txt").write_text(f"[tavern_host.plugins]\n{entry} = {value or package}\n")
    (info / "RECORD").write_text(f"{package}/__init__.py,,\n{package}/plugin.yaml,,\n")
    return root


def contextual(parent: Path, name: str = "acme", **manifest: Any) -> Path:
    """Write a plugin whose context a test can get with `context_of`."""
    return make_plugin(parent, name, KEEP_CONTEXT, hooked=["tavern_startup"], **manifest)


def context_of(name: str = "acme") -> PluginContext:
    """Return the context of a loaded plugin that `contextual` wrote."""
    context: PluginContext = module_of(name).CONTEXTS[-1]
    return context


def module_of(name: str = "acme") -> ModuleType:
    """Return the module of a loaded folder plugin."""
    return sys.modules[f"tavern_plugins.{name.replace('-', '_')}"]


def host_with(project: Path, *folders: Path, **options: Any) -> Host:
    """Return a host with these plugins, all of them trusted."""
    return Host(project, plugins=folders, **{"trust": [folder.name for folder in folders], **options})


def problems_of(host: Host, name: str = "acme") -> list[str]:
    """Return what a person reads about what is wrong with a plugin."""
    return [str(problem) for problem in host.plugin(name).problems]


def messages_of(host: Host, name: str = "acme") -> list[str]:
    """Return what is wrong with a plugin, without the places and what to do about it."""
    return [problem.message for problem in host.plugin(name).problems]


def said_of(host: Host, name: str = "acme") -> list[str]:
    """Return what is wrong with a plugin and what to do about it, without the places."""
    return [without_place(problem) for problem in host.plugin(name).problems]


def without_place(problem: Problem) -> str:
    """Return what a person reads about a problem after its place: what it is and what to do about it."""
    return str(problem.model_copy(update={"file": None, "line": None, "column": None}))
