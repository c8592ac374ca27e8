"""The scene of the escapes: a plugin `vault` that provides a service and has a secret, and a plugin `acme` that
wants it. `acme` has views of the service and its context; both are real plugins in a real host."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from helpers.folder_plugins import write_plugin

from tavern_host import WORKFLOW_MANAGER, Host, PluginContext

SECRET = "open sesame"

VAULT = '''
import functools

from tavern_host import WORKFLOW_MANAGER, InvalidInput, hookimpl, service_info


from tavern_workflows.api.workflows import StoredWorkflow, WorkflowManager
from tavern_host.contracts.workflows import Workflow

SECRET = "open sesame"
VAULTS = []


def with_words(method):
    @functools.wraps(method)
    async def wrapper(self):
        return await method(self)
    return wrapper


class Vault(WorkflowManager):
    """Keeps every secret in the ways in which objects keep things."""

    spoken = SECRET

    def __init__(self):
        self.secret = SECRET
        self.stored = StoredWorkflow(id="tale", revision="1", workflow=Workflow(name="Tale"))
        self.seen = []
        self.calls = []
        VAULTS.append(self)

    def _private(self):
        return self.secret

    @with_words
    async def list_workflows(self):
        """List."""
        return []

    async def get(self, workflow_id, _key=(SECRET,), *, _other=SECRET):
        if workflow_id == "broken":
            raise InvalidInput("there is no such tale")
        self.seen.append(workflow_id)
        return self.stored

    get.hint = SECRET

    async def parse(self, document):
        self.seen.append(document)
        return Workflow(name=str(document.get("name")))

    async def check(self, document):
        self.seen.append(document)
        return []

    async def save(self, workflow_id, workflow, *, expected_revision=None, call=None):
        self.calls.append(call)
        self.seen.append(workflow)
        return self.stored


class DeepVault(Vault):
    """A class beneath."""


@hookimpl
def tavern_override_services():
    return [service_info(WORKFLOW_MANAGER, Vault)]
'''

ACME = """
from tavern_host import hookimpl

CONTEXTS = []

@hookimpl
async def tavern_startup(context):
    CONTEXTS.append(context)
"""


@dataclass
class Scene:
    """A running host with both plugins. `view` is what `acme` has of the service, `plain` the provider itself."""

    host: Host
    context: PluginContext
    view: Any
    plain: Any
    vault: ModuleType


def vault_plugin(parent: Path) -> Path:
    """Write the plugin with the secret."""
    permissions = {"services": {"override": ["workflowManager"]}}
    return write_plugin(parent / "vault", {"__init__.py": VAULT}, permissions=permissions)


def acme_plugin(parent: Path, *, code: str = ACME, name: str = "acme", use: Iterable[str] = (), **more: Any) -> Path:
    """Write the plugin that wants it; `use` are acting methods that it may call."""
    hooks = ["hook:server:host:startup", *more.pop("hooks", ())]
    permissions = {"hooks": hooks, "services": {"use": list(use)}}
    return write_plugin(parent / name, {"__init__.py": code}, permissions=permissions, **more)


@contextlib.asynccontextmanager
async def scene(parent: Path, *, use: Iterable[str] = (), **more: Any) -> AsyncIterator[Scene]:
    """Run a host with both plugins; `acme` is granted by the operator, so that it can be revoked."""
    folders = [vault_plugin(parent), acme_plugin(parent, use=use, **more)]
    async with Host(parent / "project", plugins=folders, trust=["vault"]) as host:
        await host.grant("acme")
        context = context_of("acme")
        vault = module_of("vault")
        yield Scene(host, context, context.services.get(WORKFLOW_MANAGER), vault.VAULTS[-1], vault)


def module_of(name: str) -> ModuleType:
    """Return the module of a loaded folder plugin."""
    return sys.modules[f"tavern_plugins.{name}"]


def context_of(name: str) -> PluginContext:
    """Return the context of a plugin that keeps it."""
    context: PluginContext = module_of(name).CONTEXTS[-1]
    return context
