"""Writes plugins for tests, as folders or as installed packages, and reaches into those that a host has loaded."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from helpers.plugin_files import write, write_distribution, write_whole

from tavern_host import Host, PluginContext
from tavern_host.contracts.plugins import Problem

__all__ = ["write"]

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
    """Write a folder plugin in `parent` and return its folder; without `code` there is no Python in it. See
    `write_whole`."""
    return write_whole(parent / folder, manifest.pop("name", folder), code, hooked, **manifest)


def install(
    site: Path,
    package: str,
    code: str = "",
    *,
    entry: str,
    value: str | None = None,
    dist: str | None = None,
    requested: bool = True,
    **manifest: Any,
) -> Path:
    """Write what `pip install` would: a package with a manifest, and a distribution with its entry point; it was
    `requested`, or came with another."""
    root = make_plugin(site, package, code, **({"name": entry} | manifest))
    info = write_distribution(site, entry, package, dist, requested=requested)
    (info / "entry_points.txt").write_text(f"[tavern_host.plugins]\n{entry} = {value or package}\n")
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
    """Return the problems of a plugin as a person reads them."""
    return [str(problem) for problem in host.plugin(name).problems]


def messages_of(host: Host, name: str = "acme") -> list[str]:
    """Return the problems of a plugin, without their places and hints."""
    return [problem.message for problem in host.plugin(name).problems]


def said_of(host: Host, name: str = "acme") -> list[str]:
    """Return the problems of a plugin with their hints, without the places."""
    return [without_place(problem) for problem in host.plugin(name).problems]


def without_place(problem: Problem) -> str:
    """Return a problem as a person reads it after its place: what it is and what to do about it."""
    return str(problem.model_copy(update={"file": None, "line": None, "column": None}))
