"""Runs plugins in the host's own process."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable
from importlib.machinery import ModuleSpec
from pathlib import Path
from pkgutil import iter_modules, resolve_name
from types import ModuleType
from typing import Any

from tavern_host.context import PluginContext
from tavern_host.contracts.contributions import handler_of, kind_of
from tavern_host.contracts.errors import NotFound, TavernError
from tavern_host.contracts.names import suggest
from tavern_host.contracts.plugins import HookImplInfo, PluginProcess, Problem
from tavern_host.contracts.services import ServiceInfo
from tavern_host.contracts.wire import Model
from tavern_host.runtime.deadline import contained, in_callers_task
from tavern_host.runtime.described import schema_of
from tavern_host.runtime.folder_import import import_folder, release, reserve
from tavern_host.runtime.hook_functions import hook_functions
from tavern_host.runtime.installed import first_party_part, is_published
from tavern_host.runtime.source import FolderSource, PluginSource
from tavern_host.runtime.threads import ended


class InProcessRuntime:
    """Loads one plugin in the host's process, and reaches what it registered, by name: all that the host needs of any
    place where a plugin may run."""

    is_here = True
    """Whether the plugin's code runs in this process."""

    def __init__(self, source: PluginSource, context: PluginContext) -> None:
        self._source = source
        self._context = context
        self._package = source.module or reserve(source.name.replace("-", "_"))
        self._module: ModuleType | None = None
        self._modules: dict[str, ModuleType] = {}
        self._collected: dict[str, list[Any]] = {}
        self._names = functools.cache(functools.partial(_names, is_read=not source.is_lazy))
        self._changing = threading.Lock()
        self._is_loading = self._is_unloaded = False

    def load(self) -> None:
        """Import the package, and unless the source is lazy the modules that the manifest names.

        Runs on a thread with a deadline; raises whatever the plugin raises. Nothing stays of a load that was unloaded
        before it ended.
        """
        with self._changing:
            if self._is_unloaded:
                return
            self._is_loading = True
        try:
            self._import()
        finally:
            with self._changing:
                self._is_loading = False
                if self._is_unloaded:
                    self._forget()

    def _import(self) -> None:
        source = self._source
        if source.module is not None:
            self._module = importlib.import_module(source.module)
        else:
            assert source.root is not None
            self._module = import_folder(self._package, source.root, source.reviewed)
        for hook in () if source.is_lazy else source.entries:
            self._descriptors(hook)
        self._modules = {name: module for name, module in sys.modules.copy().items() if self._is_inside(name)}

    def collect(self, hook: str) -> list[Any]:
        """Return the descriptors in the module that the manifest names for a hook, as they were when they were first
        collected; none where it names none."""
        return list(self._descriptors(hook))

    def _descriptors(self, hook: str) -> list[Any]:
        entry = self._source.entries.get(hook)
        if hook not in self._collected and entry is not None:
            parts = [part for part in Path(entry.module).with_suffix("").parts if part != "."]
            module = importlib.import_module(".".join([self._package, *parts]))
            collector = resolve_name(entry.collector)
            self._collected[hook] = list(collector(module, plugin=self._source.name, **entry.options))
        return self._collected.get(hook, [])

    def hookimpls(self, hooks: Collection[str]) -> tuple[list[HookImplInfo], list[Problem]]:
        """Return the `@hookimpl` functions of the package's own namespace, and what looks like one of these `hooks` and
        can never be called."""
        assert self._module is not None
        return hook_functions(self._source.name, self._module, self._modules.values(), hooks)

    def hook_function(self, info: HookImplInfo) -> Callable[..., Any]:
        """Return the function behind a hook implementation."""
        return getattr(self._module, info.function)  # type: ignore[no-any-return]

    def published(self, name: str) -> Any:
        """Return the object at `module:name`, counted from the plugin's package. Raises `NotFound`."""
        return self._resolve(f"{self._package}.{name}")

    def process(self) -> PluginProcess | None:
        """Return the process that the plugin runs in, or None for the host's. Blocking."""
        return None

    def function(self, handler: str) -> Callable[..., Any]:
        """Return the object at `module:name` inside the plugin's package. Raises `NotFound`."""
        target = self._resolve(handler)
        if not callable(target):
            raise NotFound(f"{self._source.name}: the handler {handler!r} is not callable")
        return target  # type: ignore[no-any-return]

    def schema(self, reference: str) -> dict[str, Any]:
        """Return the JSON Schema of what `module:Type` names in the plugin, in the contracts, or in the `api` of a
        first-party plugin. Raises `NotFound`."""
        return schema_of(reference, resolve_name if is_published(reference) else self._resolve)

    def open(self, handler: str | Model, *arguments: Any, **named: Any) -> Any:
        """Return `Class(*arguments)`; `context` and other `named` values go to parameters of that name. For a
        descriptor, return what the opener of its kind makes; see `HookResult.open`. Raises `NotFound`."""
        if not isinstance(handler, str):
            return self._open_described(handler)
        target = self.function(handler)
        accepted = inspect.signature(target).parameters
        return target(*arguments, **{k: v for k, v in {"context": self._context, **named}.items() if k in accepted})

    def call(self, handler: str, *arguments: Any) -> Any:
        """Return `function(*arguments)`, which may be awaitable. Raises `NotFound`, `PluginFailure` where the code
        tries to end the program, else what it raises."""
        function, what = self.function(handler), f"{handler} of {self._source.name}"
        try:
            result = function(*arguments)
        except (SystemExit, KeyboardInterrupt) as error:
            raise ended(what, error) from error
        return contained(in_callers_task(result, what), what) if isinstance(result, Coroutine) else result

    def provider_problems(self, info: ServiceInfo, check: Callable[[type], list[Problem]]) -> list[Problem]:
        """Return the problem with the class that a service's descriptor names; `check` looks at what it offers."""
        try:
            provider = self.function(info.handler)
        except TavernError as error:
            return [Problem(message=error.message)]
        if not isinstance(provider, type):
            return [Problem(message=f"{info.handler} must be a class")]
        return check(provider)

    def handler_problems(self, descriptors: Iterable[Any]) -> dict[str, Problem]:
        """Return why handlers that these descriptors name cannot be reached, by handler. No module is imported: names
        are read off its code; those of a lazy source are looked up when they are first called."""
        handlers = {*map(handler_of, descriptors)} - {""}
        return {one: problem for one in sorted(handlers) if (problem := self._handler_problem(one)) is not None}

    def _handler_problem(self, handler: str) -> Problem | None:
        module_name, _, path = handler.partition(":")
        if not self._is_inside(module_name) or not path:
            return Problem(message=self._wrong_form(handler))
        module = self._modules.get(module_name)
        names = self._names(module_name) if module is None else vars(module) if type(module) is ModuleType else _ANY
        if names is None:
            parent = module_name.rpartition(".")[0]
            modules = iter_modules(getattr(self._modules.get(parent), "__path__", ()), f"{parent}.")
            message = f"the handler {handler!r} names a module that does not exist"
            return Problem(message=message, hint=suggest(module_name, [module.name for module in modules]) or _MEND)
        name = path.partition(".")[0]
        if name in names or not _ANY.isdisjoint(names):
            return None
        return Problem(message=f"there is no handler {handler!r}", hint=suggest(name, names) or _MEND)

    def _open_described(self, descriptor: Any) -> Any:
        opener, source = kind_of(type(descriptor)).opener, self._source
        if opener is None:
            raise NotFound(f"{source.name}: nothing opens the handler of a {type(descriptor).__name__}")
        root = source.root if source.module is None else None
        folder = FolderSource(self._package, root, source.reviewed) if root is not None else None
        return first_party_part(opener)(self._resolve(descriptor.handler), descriptor, self._context, folder)

    def _resolve(self, handler: str) -> Any:
        module_name, _, path = handler.partition(":")
        if not path or not (module_name in self._modules or self._is_inside(module_name)):
            raise NotFound(f"{self._source.name}: {self._wrong_form(handler)}")
        try:
            target: Any = self._modules.get(module_name) or self._own_module(module_name)
            for part in path.split("."):
                target = getattr(target, part)
        except (ImportError, AttributeError) as error:
            if isinstance(error, ImportError) and not module_name.startswith(error.name or "\0"):
                raise  # the module is there, and what it imports is not
            raise NotFound(f"{self._source.name}: there is no handler {handler!r} ({error})") from error
        except (SystemExit, KeyboardInterrupt) as error:
            raise ended(f"importing {module_name} of {self._source.name}", error) from error
        return target

    def _own_module(self, name: str) -> ModuleType:
        """Return a module of this load, also when another load of the package has been imported since.

        One that this load had not imported by then is that of the other: its files are no longer there.
        """
        if name not in self._modules:
            self._modules[name] = importlib.import_module(name)
        return self._modules[name]

    def _is_inside(self, module_name: str) -> bool:
        return module_name == self._package or module_name.startswith(f"{self._package}.")

    def _wrong_form(self, handler: str) -> str:
        return f"the handler {handler!r} must be 'module:name' inside {self._package!r}"

    def forget_modules(self) -> Callable[[], None]:
        """Let the next import of the plugin's package read its files again, and return what undoes that; what uses its
        modules keeps them."""

        def forget() -> dict[str, ModuleType]:
            return {name: sys.modules.pop(name) for name in list(sys.modules) if self._is_inside(name)}

        def restore() -> None:
            forget()
            sys.modules.update(removed)

        removed = forget()
        importlib.invalidate_caches()
        return restore

    def unload(self) -> None:
        """Forget the modules of a folder plugin; those of installed packages stay imported."""
        with self._changing:
            self._is_unloaded = True
            self._forget()

    def _forget(self) -> None:
        if self._source.module is None:
            self.forget_modules()
            if not self._is_loading:  # else the thread that imports it would take the name of another
                release(self._package)
        self._module = None
        self._modules.clear()


_MEND = "correct the name, or add what it names"

_ANY = frozenset({"*", "__getattr__"})
"""With one of these, a module may have names that its code does not show."""
_UNSEEN = re.compile(rb"\b(globals?|locals|vars|setattr|exec|modules|__dict__|__getattr__)\b|import[\s\\]*\*")
"""What gives a module such names; also where it only stands in a comment."""


def _names(module: str, *, is_read: bool) -> frozenset[str] | None:
    """Return the names in a module's code, or `*` where it is not read or cannot be; None where there is no module."""
    try:
        spec = _spec(module)
        if spec is None or not is_read or not (spec.origin or "").endswith(".py"):
            return None if spec is None else _ANY
        source = Path(str(spec.origin)).read_bytes()
        names = compile(source, str(spec.origin), "exec", dont_inherit=True).co_names
    except Exception as error:  # it is said when it is imported
        return None if isinstance(error, ModuleNotFoundError) else _ANY
    return _ANY if _UNSEEN.search(source) else frozenset(names)


def _spec(module: str) -> ModuleSpec | None:
    """Return where a module of a package is that is imported; unlike `find_spec`, it imports no package on the way."""
    parent = module.rpartition(".")[0]
    known = sys.modules.get(parent) or (_spec(parent) if parent else None)
    path = getattr(known, "__path__", None) or getattr(known, "submodule_search_locations", None)
    return next(filter(None, (finder.find_spec(module, path) for finder in sys.meta_path if path)), None)
