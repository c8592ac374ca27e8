"""Finds a plugin's hook implementations: functions in its package's namespace, marked with `@hookimpl`.

What looks like one and would never be called is a problem: a guard that is not called lets everything pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from tavern_host.contracts.plugins import MANIFEST, HookImplInfo, Problem

_dict_of_class, _bases_of_class = (type.__dict__[name].__get__ for name in ("__dict__", "__mro__"))
_PREFIX = "tavern_"
"""How the names of the host's hooks begin, and no other function's that stands in a plugin's package."""


def hook_functions(
    plugin: str, package: ModuleType, modules: Collection[ModuleType], hooks: Collection[str]
) -> tuple[list[HookImplInfo], list[Problem]]:
    """Return the implementations in a package, and what will never be one: of another form, without the mark though it
    has the name of one of these `hooks`, or marked in one of the package's `modules` but not found in the package."""
    found: list[HookImplInfo] = []
    problems: list[Problem] = []
    for name, value in vars(package).items():
        options = _options(value)
        if options is None and not _is_named_like_hook(name, value, package, hooks):
            continue
        code = getattr(inspect.unwrap(value), "__code__", None) if inspect.isroutine(value) else None
        wrong, hint = _fault(value, options)
        if wrong or code is None or options is None:
            file, line = (code.co_filename, code.co_firstlineno) if code is not None else (package.__file__, None)
            problems.append(Problem(message=f"{name}: {wrong}", hint=hint, file=file, line=line))
            continue
        info = HookImplInfo(
            plugin=plugin,
            hook=options.get("specname") or name,
            function=name,
            arguments=list(inspect.signature(value).parameters),
            is_async=inspect.iscoroutinefunction(value),
            file=code.co_filename,
            line=code.co_firstlineno,
        )
        found.append(info)
    return found, [*problems, *_unreachable(package, modules)]


def _options(value: Any) -> dict[str, Any] | None:
    """Return the options that `@hookimpl` left on a value; none of a value's own code runs."""
    if type(value) is FunctionType:  # as most: all of a namespace is looked at at each load
        options = value.__dict__.get("tavern_impl")
    elif issubclass(type(value), type):  # `isinstance` would ask what a value, such as a proxy, says that it is
        known = map(_dict_of_class, _bases_of_class(value))
        options = next((one["tavern_impl"] for one in known if "tavern_impl" in one), None)
    else:
        options = inspect.getattr_static(value, "tavern_impl", None)
    return options if isinstance(options, dict) else None


def _is_named_like_hook(name: str, value: Any, package: ModuleType, hooks: Collection[str]) -> bool:
    if not (name.startswith(_PREFIX) or name in hooks) or not inspect.isroutine(value):
        return False
    module = str(getattr(value, "__module__", ""))
    return _is_inside(module, package) and not hasattr(value, "__tavern_hook__")  # which a hookspec of its own has


def _fault(value: Any, options: dict[str, Any] | None) -> tuple[str, str]:
    if options is None:
        return "it has the name of a hook and is not marked, so it would never be called", "write @hookimpl above it"
    if not inspect.isroutine(value):
        return "a hookimpl is a function", "mark a plain function of the package"
    if options.get("wrapper") or options.get("hookwrapper"):
        return "hook wrappers are not supported", _PLAIN
    if inspect.isgeneratorfunction(value) or inspect.isasyncgenfunction(value):
        return "a hookimpl returns, it does not yield", _PLAIN
    return "", ""


_PLAIN = "return a value from a plain hookimpl; filters get what the one before returned"


def _unreachable(package: ModuleType, modules: Collection[ModuleType]) -> Iterator[Problem]:
    """Yield the marked functions that are not in the package's namespace: of its other modules, and of classes."""
    reached = {id(value) for value in vars(package).values()}
    for name, value in _members(package, modules):
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if isinstance(function, FunctionType) and _options(function) is not None and id(function) not in reached:
            code, hint = function.__code__, f"define it in {package.__name__} as a function, or import it there"
            message = f"{name}: it is marked with @hookimpl and would never be called"
            yield Problem(message=message, hint=hint, file=code.co_filename, line=code.co_firstlineno)


def _members(package: ModuleType, modules: Collection[ModuleType]) -> Iterator[tuple[str, Any]]:
    """Yield what modules that know the mark define, and what their classes do."""
    for module in (package, *(one for one in modules if one is not package)):
        known = vars(module) if isinstance(module, ModuleType) else {}
        if "hookimpl" not in known and "tavern_host" not in known:
            continue  # as nearly all modules: this runs at each load
        if _is_of_another(module, package):
            continue
        own = [(name, value) for name, value in known.items() if issubclass(type(value), FunctionType | type)]
        for name, value in own:
            if value.__module__ == module.__name__:
                yield name, value
                members = vars(value).items() if isinstance(value, type) else ()
                yield from ((f"{name}.{member}", each) for member, each in members)


def _is_of_another(module: ModuleType, package: ModuleType) -> bool:
    """Return whether a module is a plugin of its own, which lies in the folder of this one."""
    folder = Path(module.__file__ or "").parent
    return folder != Path(package.__file__ or "").parent and (folder / MANIFEST).is_file()


def _is_inside(module: str, package: ModuleType) -> bool:
    return module == package.__name__ or module.startswith(f"{package.__name__}.")
