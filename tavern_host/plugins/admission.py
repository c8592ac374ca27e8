"""Looks at everything that a plugin wants to register, before any of it is registered, and reports all that is wrong
with it in one error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tavern_host.contracts.hooks import HookInfo
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
from tavern_host.runtime.interface_check import interface_problems
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
"""The hooks that are called at admission, each with the part of `Declarations` that its answers fill."""


async def admit(
    loaded: LoadedPlugin, dispatcher: Dispatcher, services: ServiceRegistry, registrations: Registrations
) -> None:
    """Fill in `loaded.implementations` and `loaded.declarations`. Raises `AdmissionError` with every problem.

    Registers nothing. What an active load of the same plugin registered is no conflict: it is replaced.
    """
    manifest = loaded.manifest
    published, problems = Published(), list[Problem]()
    if not loaded.record.first_party:  # what these publish is known beforehand, and compared by the tests
        published, problems = read_published(manifest, loaded.runtime.published)
        problems += _taken_problems(loaded, published, dispatcher.catalogue)
    loaded.declarations.published = published
    hooks = dispatcher.catalogue.hooks_with(manifest.name, published)
    declared = {name for name, hook in hooks.items() if _is_declared(manifest, hook)}
    infos, wrong = loaded.runtime.hookimpls(declared)
    problems += wrong
    for info in infos:
        found = _hook_problems(manifest, info, hooks)
        problems += found
        if not found:
            admitted = info.model_copy(update={"permission": hooks[info.hook].permission})
            function = loaded.runtime.hook_function(admitted)
            implementation = Implementation(admitted, function, loaded.context, loaded.runtime, loaded.in_flight)
            loaded.implementations.append(implementation)
    for implementation in loaded.implementations:
        problems += await _ask(dispatcher, loaded, implementation)
    problems += _all_placed(loaded, "services", _service_problems(services, loaded))
    problems += _all_placed(loaded, "overrides", _override_problems(services, loaded))
    problems += _all_placed(loaded, "ui", declaration_problems(manifest, loaded.declarations.ui))
    routes, commands = loaded.declarations.routes, loaded.declarations.commands
    wrong = registrations.route_problems(manifest.name, routes, first_party=loaded.record.first_party)
    problems += _all_placed(loaded, "routes", [*wrong, *loaded.runtime.handler_problems(routes).values()])
    reserved = frozenset() if loaded.record.first_party else RESERVED_COMMANDS
    wrong = registrations.command_problems(manifest.name, commands, reserved)
    problems += _all_placed(loaded, "commands", [*wrong, *loaded.runtime.handler_problems(commands).values()])
    if problems:
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise AdmissionError(f"{manifest.name} was not admitted:\n{lines}", problems, plugin=manifest.name)


def _taken_problems(loaded: LoadedPlugin, published: Published, catalogue: Catalogue) -> list[Problem]:
    """Return which hooks a plugin publishes under a name that somebody else's hook has."""
    problems = []
    for index, declared in enumerate(loaded.manifest.publishes.hooks):
        name = declared.spec.partition(":")[2]
        info = catalogue.hooks.get(name) if name in published.hooks else None
        if info is not None and info.caller != owner(loaded.record.name):
            message = f"the hook {name} is there already, called by {info.caller}"
            problems.append(loaded.record.places.problem(("publishes", "hooks", index, "spec"), message))
    return problems


async def _ask(dispatcher: Dispatcher, loaded: LoadedPlugin, implementation: Implementation) -> list[Problem]:
    """Call a declaration hook and keep its answer; return what is wrong with it."""
    info = implementation.info
    declared = _DECLARATION_HOOKS.get(info.hook)
    if declared is None:
        return []
    try:
        answer = await dispatcher.call_one(implementation, {})
    except Exception as error:
        problem = problem_of(error, f"{info.hook} failed", loaded.record.root, info.plugin)
        return [problem if problem.file is not None else _placed(problem, info)]
    types, _ = dispatcher.catalogue.item_types(info.hook)
    wrong = _answer_problem(info, answer, types)
    if wrong is not None:
        return [wrong]
    getattr(loaded.declarations, declared).extend(answer or [])
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
        hint = f'add "{spec.permission}" to permissions.hooks in plugin.yaml'
        if spec.permission == "services.override":
            hint = "name the service under permissions.services.override in plugin.yaml"
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


def _answer_problem(info: HookImplInfo, answer: Any, types: tuple[type, ...]) -> Problem | None:
    if answer is None:
        return None
    names = " or ".join(t.__name__ for t in types)
    if not isinstance(answer, list | tuple):
        return _at(info, f"{info.hook} returned {type(answer).__name__}, expected a list of {names}")
    wrong = [type(item).__name__ for item in answer if not isinstance(item, types)]
    return _at(info, f"{info.hook} returned a list with {wrong[0]}, expected {names}") if wrong else None


def _repeated(loaded: LoadedPlugin, infos: list[ServiceInfo]) -> list[Problem]:
    """Return which of these services a plugin provides more than once, in whichever way."""
    offered = [info.service for info in (*loaded.declarations.services, *loaded.declarations.overrides)]
    return [
        Problem(message=f"{loaded.record.name} registers {service} {offered.count(service)} times")
        for service in dict.fromkeys(info.service for info in infos)
        if offered.count(service) > 1
    ]


def _service_problems(services: ServiceRegistry, loaded: LoadedPlugin) -> list[Problem]:
    problems = _repeated(loaded, loaded.declarations.services)
    for info in loaded.declarations.services:
        taken = services.provider_of(info.service)
        if taken is not None and taken.plugin != loaded.record.name:
            hint = "override it with tavern_override_services"
            problems.append(Problem(message=f"{info.service} is provided by {taken.plugin} already", hint=hint))
        problems += _provider_problems(services, loaded, info, is_override=False)
    return problems


def _override_problems(services: ServiceRegistry, loaded: LoadedPlugin) -> list[Problem]:
    provided = {info.service for info in loaded.declarations.services}
    problems = _repeated(loaded, [info for info in loaded.declarations.overrides if info.service not in provided])
    for info in loaded.declarations.overrides:
        known = info.service in services.catalogue.interfaces
        if known and info.service not in loaded.manifest.permissions.services.override:
            hint = "add it to permissions.services.override in plugin.yaml"
            problems.append(Problem(message=f"the override of {info.service} is not declared", hint=hint))
        elif known and services.provider_of(info.service) is None:
            problems.append(Problem(message=f"nobody provides {info.service}, so it cannot be overridden"))
        problems += _provider_problems(services, loaded, info, is_override=True)
    return problems


def _provider_problems(
    services: ServiceRegistry, loaded: LoadedPlugin, info: ServiceInfo, *, is_override: bool
) -> list[Problem]:
    """Return the problem with a provider, if any; only an override may be of an older version of the interface."""
    interfaces, published = services.catalogue.interfaces, loaded.declarations.published.interfaces
    if info.service not in (names := [*interfaces, *published]):
        return [Problem(message=f"there is no service {info.service!r}", hint=suggest(info.service, names))]
    wrong = [*loaded.runtime.handler_problems([info]).values()]
    if wrong or (loaded.record.first_party and not is_override):  # imported when it is first called
        return wrong
    interface = published.get(info.service) or interfaces[info.service]
    newest = interface.service_version

    def check(provider: type) -> list[Problem]:
        if is_override and info.version > newest:
            message = f"{info.handler} is for version {info.version} of {info.service}; this is {newest}"
            return [Problem(message=message)]
        return interface_problems(interface, provider, info.version if is_override else newest)

    return loaded.runtime.provider_problems(info, check)


def _all_placed(loaded: LoadedPlugin, part: str, problems: list[Problem]) -> list[Problem]:
    """Return problems with the place of the hook that declared what they are about, where they have none."""
    infos = [one.info for one in loaded.implementations if _DECLARATION_HOOKS.get(one.info.hook) == part]
    return [_placed(problem, infos[0]) if infos and problem.file is None else problem for problem in problems]


def _placed(problem: Problem, info: HookImplInfo) -> Problem:
    return problem.model_copy(update={"file": info.file, "line": info.line})


def _at(info: HookImplInfo, message: str, hint: str | None = None) -> Problem:
    return Problem(message=message, hint=hint, file=info.file, line=info.line)
