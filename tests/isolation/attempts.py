"""A plugin in a process of its own that carries out what it is given before a run, in its own process."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from helpers.plugin_files import write_whole

from tavern_host import EXECUTION_ENGINE, Host
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.workflows import Workflow

CODE = """
import asyncio, ctypes, gc, inspect, json, os, re, struct, sys, textwrap, threading, time
from pathlib import Path
from tavern_host import *
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import *
from tavern_host.contracts.events import Event
from tavern_host.contracts.workflows import Workflow
from tavern_host.runtime.codec import encode
from .more import *

KEPT = {}

@hookimpl
async def tavern_before_execute(request, call, context):
    if "try" not in request.metadata:
        return None
    found = {}
    for name, code in request.metadata["try"].items():
        space = {**globals(), "context": context, "call": call, "request": request}
        try:
            exec("async def attempt():\\n" + textwrap.indent(code, "    "), space)
            found[name] = repr(await space["attempt"]())
        except BaseException as error:
            found[name] = f"{type(error).__name__}: {error}"
    return request.model_copy(update={"metadata": {"found": found}})
"""
"""Each attempt is the body of a coroutine function; what it returns, or raises, is what became of it."""


def write_attempting(root: Path, name: str = "acme", *, more: str = "", code: str = "", **manifest: Any) -> Path:
    """Write the plugin into a folder, with the module `more`, whose names attempts have, and more `code` of its own."""
    hooked = ["tavern_before_execute", *manifest.pop("hooked", ())]
    manifest = {"runtime": {"placement": "process"}, **manifest}
    return write_whole(root, name, {"__init__.py": CODE + code, "more.py": more}, hooked, **manifest)


async def attempted(host: Host, attempts: Mapping[str, str]) -> dict[str, str]:
    """Return what became of attempts, by name."""
    dedented = {name: textwrap.dedent(code) for name, code in attempts.items()}
    request = RunRequest(workflow=Workflow(name="w"), metadata={"try": dedented})
    found: dict[str, str] = (await host.services.get(EXECUTION_ENGINE).run(request)).metadata["found"]
    return found


async def attempt(host: Host, code: str) -> str:
    """Return what became of one attempt."""
    return (await attempted(host, {"it": code}))["it"]
