"""Looks at everything that a plugin wants to register, before any of it is registered, and reports all that is wrong
with it in one error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tavern_host.contracts.commands import CommandInfo
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.hooks import HookInfo
from tavern_host.contracts.http import MessageInfo, RouteInfo
from tavern_host.contracts.manifest import Manifest
from tavern_host.contracts.names import suggest
from tavern_host.contracts.plugins import AdmissionError, HookImplInfo, Problem
from tavern_host.contracts.services import ServiceInfo
from tavern_host.hooks.catalogue import Catalogue, Published, owner
from tavern_host.hooks.dispatch import Dispatcher, Implementation
from tavern_host.hooks.published import read_published
from tavern_host.plugins.record import LoadedPlugin, problem_of
from tavern_host.plugins.registrations import Registrations
from tavern_host.plugins.ui import declaration_problems
from tavern_host.services.interface_check import interface_problems
from tavern_host.services.registry import ServiceRegistry

RESERVED_COMMANDS = frozenset({"plugins", "serve", "init", "why", "config", "settings", "audit"})
"""First words of the host's own commands; of plugins, only first-party ones add commands that begin with them."""


_DECLARATION_HOOKS: dict[str, str] = {
    "tavern_register_services": "services",
    "tavern_override_services": "overrides",
    "tavern_register_routes": "routes",
    "tavern_register_commands": "commands",
    "tavern_declare_ui": "ui",
}
"""The hooks that are asked at once, and the part of `Declarations` that their answers fill."""


async def admit(
    active: LoadedPlugin, dispatcher: Dispatcher, services: ServiceRegistry, registrations: Registrations
) -> None:
    """Fill in `active.implementations` and `active.declarations`. Raises `AdmissionError` with every problem.

    Registers nothing. What the same plugin registered, when it is about to be reloaded, is in nobody's way.
    """
    manifest = active.manifest
    published, problems = read_published(manifest, active.runtime.published)
    problems += _taken_problems(active, published, dispatcher.catalogue)
    active.declarations.published = published
    hooks = dispatcher.catalogue.hooks_with(manifest.name, published)
    infos, wrong = active.runtime.hookimpls()
    problems += wrong
    for info in infos:
        found = _hook_problems(manifest, info, hooks)
        problems += found
        if not found:
            admitted = info.model_copy(update={"permission": hooks[info.hook].permission})
            function = active.runtime.hook_function(admitted)
            implementation = Implementation(admitted, function, active.context, active.runtime, active.in_flight)
            active.implementations.append(implementation)
    for implementation in active.implementations:
        problems += await _ask(dispatcher, active, implementation)
    problems += _all_placed(active, "services", _service_problems(services, active))
    problems += _all_placed(active, "overrides", _override_problems(services, active))
    problems += _all_placed(active, "ui", declaration_problems(manifest, active.declarations.ui))
    routes, commands = active.declarations.routes, active.declarations.commands
    wrong = registrations.route_problems(manifest.name, routes, first_party=active.record.first_party)
    problems += _all_placed(active, "routes", [*wrong, *_handler_problems(active, routes)])
    reserved = frozenset() if active.record.first_party else RESERVED_COMMANDS
    wrong = registrations.command_problems(manifest.name, commands, reserved)
    problems += _all_placed(active, "commands", [*wrong, *_handler_problems(active, commands)])
    if problems:
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise AdmissionError(
            f"{manifest.name} was not admitted:\n{lines}",
            problems,
            plugin=manifest.name,
        )


def _taken_problems(active: LoadedPlugin, published: Published, catalogue: Catalogue) -> list[Problem]:
    """Return which hooks a plugin publishes under a name that somebody else's hook has."""
    problems = []
    for index, declared in enumerate(active.manifest.publishes.hooks):
        name = declared.spec.partition(":")[2]
        info = catalogue.hooks.get(name) if name in published.hooks else None
        if info is not None and info.caller != owner(active.record.name):
            message = f"the hook {name} is there already, called by {info.caller}"
            problems.append(active.record.places.problem(("publishes", "hooks", index, "spec"), message))
    return problems


async def _ask(dispatcher: Dispatcher, active: LoadedPlugin, implementation: Implementation) -> list[Problem]:
    """Call a declaration hook and keep its answer; return what is wrong with it."""
    info = implementation.info
    declared = _DECLARATION_HOOKS.get(info.hook)
    if declared is None:
        return []
    try:
        answer = await dispatcher.call_one(implementation, {})
    except Exception as error:
        problem = problem_of(error, f"{info.hook} failed", active.record.root, info.plugin)
        return [problem if problem.file is not None else _placed(problem, info)]
    types, _ = dispatcher.catalogue.item_types(info.hook)
    wrong = _answer_problem(info, answer, types)
    if wrong is not None:
        return [wrong]
    getattr(active.declarations, declared).extend(answer or [])
    return []


def _hook_problems(manifest: Manifest, info: HookImplInfo, hooks: Mapping[str, HookInfo]) -> list[Problem]:
    spec = hooks.get(info.hook)
    if spec is None:
        return [_at(info, f"there is no hook {info.hook!r}", suggest(info.hook, hooks))]
    problems = []
    for argument in info.arguments:
        known = [*spec.arguments, "context"]
        if argument not in known:
            hint = f"it has {', '.join(known)}"
            problems.append(_at(info, f"{info.function}: the hook {info.hook} has no argument {argument!r}", hint))
    if not _is_declared(manifest, spec):
        hint = _declaration_hint(spec)
        problems.append(_at(info, f"{info.function}: the hook {info.hook} is not declared", hint))
    return problems


def _is_declared(manifest: Manifest, spec: HookInfo) -> bool:
    permissions = manifest.permissions
    if spec.permission == "services.override":
        return bool(permissions.services.override)
    if spec.name == "tavern_declare_ui" and (permissions.ui.inject or permissions.ui.wrap or permissions.ui.override):
        return True
    return spec.permission in permissions.hooks or (
        spec.field is not None and getattr(manifest, spec.field) is not None
    )


def _declaration_hint(spec: HookInfo) -> str:
    if spec.permission == "services.override":
        return "name the service under permissions.services.override in plugin.yaml"
    return f'add "{spec.permission}" to permissions.hooks in plugin.yaml'


def _answer_problem(info: HookImplInfo, answer: Any, types: tuple[type, ...]) -> Problem | None:
    if answer is None:
        return None
    names = " or ".join(t.__name__ for t in types)
    if not isinstance(answer, list | tuple):
        return _at(info, f"{info.hook} returned {type(answer).__name__}, expected a list of {names}")
    wrong = [type(item).__name__ for item in answer if not isinstance(item, types)]
    return _at(info, f"{info.hook} returned a list with {wrong[0]}, expected {names}") if wrong else None


def _repeated(active: LoadedPlugin, infos: list[ServiceInfo]) -> list[Problem]:
    """Return which of these services a plugin provides more than once, in whichever way."""
    offered = [info.service for info in (*active.declarations.services, *active.declarations.overrides)]
    return [
        Problem(message=f"{active.record.name} registers {service} {offered.count(service)} times")
        for service in dict.fromkeys(info.service for info in infos)
        if offered.count(service) > 1
    ]


def _service_problems(services: ServiceRegistry, active: LoadedPlugin) -> list[Problem]:
    problems = _repeated(active, active.declarations.services)
    for info in active.declarations.services:
        taken = services.provider_of(info.service)
        if taken is not None and taken.plugin != active.record.name:
            hint = "override it with tavern_override_services"
            problems.append(Problem(message=f"{info.service} is provided by {taken.plugin} already", hint=hint))
        problems += _provider_problems(services, active, info, is_override=False)
    return problems


def _override_problems(services: ServiceRegistry, active: LoadedPlugin) -> list[Problem]:
    provided = {info.service for info in active.declarations.services}
    problems = _repeated(active, [info for info in active.declarations.overrides if info.service not in provided])
    for info in active.declarations.overrides:
        known = info.service in services.catalogue.interfaces
        if known and info.service not in active.manifest.permissions.services.override:
            hint = "add it to permissions.services.override in plugin.yaml"
            problems.append(Problem(message=f"the override of {info.service} is not declared", hint=hint))
        elif known and services.provider_of(info.service) is None:
            problems.append(Problem(message=f"nobody provides {info.service}, so it cannot be overridden"))
        problems += _provider_problems(services, active, info, is_override=True)
    return problems


def _provider_problems(
    services: ServiceRegistry, active: LoadedPlugin, info: ServiceInfo, *, is_override: bool
) -> list[Problem]:
    """Return what is wrong with a provider; only an override may be of an older version of the interface."""
    interfaces = {**services.catalogue.interfaces, **active.declarations.published.interfaces}
    interface = interfaces.get(info.service)
    if interface is None:
        return [Problem(message=f"there is no service {info.service!r}", hint=suggest(info.service, interfaces))]
    if active.record.first_party and not is_override:  # imported when it is first called; the tests look at it
        wrong = active.runtime.handler_problem(info.handler)
        return [Problem(message=wrong)] if wrong is not None else []
    try:
        provider = active.runtime.function(info.handler)
    except TavernError as error:
        return [Problem(message=error.message)]
    if not isinstance(provider, type):
        return [Problem(message=f"{info.handler} must be a class")]
    newest = interface.service_version
    if is_override and info.version > newest:
        return [Problem(message=f"{info.handler} is for version {info.version} of {info.service}; this is {newest}")]
    return interface_problems(interface, provider, info.version if is_override else newest)


def _handler_problems(
    active: LoadedPlugin, infos: Sequence[RouteInfo | MessageInfo] | Sequence[CommandInfo]
) -> list[Problem]:
    handlers = dict.fromkeys(info.handler for info in infos)
    problems = (active.runtime.handler_problem(handler) for handler in handlers)
    return [Problem(message=problem) for problem in problems if problem is not None]


def _all_placed(active: LoadedPlugin, part: str, problems: list[Problem]) -> list[Problem]:
    """Return problems with the place of the hook that declared what they are about, where they have none."""
    infos = [one.info for one in active.implementations if _DECLARATION_HOOKS.get(one.info.hook) == part]
    return [_placed(problem, infos[0]) if infos and problem.file is None else problem for problem in problems]


def _placed(problem: Problem, info: HookImplInfo) -> Problem:
    return problem.model_copy(update={"file": info.file, "line": info.line})


def _at(info: HookImplInfo, message: str, hint: str | None = None) -> Problem:
    return Problem(message=message, hint=hint, file=info.file, line=info.line)
