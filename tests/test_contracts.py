"""The rules of the contracts: wire types, async methods, marks, descriptions of each hook and service."""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import pkgutil
import re
import textwrap
import types
import typing
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pkgutil import resolve_name
from typing import Annotated, Any, Literal

from documentation.platform import hooks, interfaces, manifests, service_permissions, spec
from helpers.repetition import Failures
from helpers.systems import on_linux
from pydantic import BaseModel, ConfigDict, Field, JsonValue

import tavern_host
from tavern_host import contracts, hookspecs
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import ErrorInfo, TavernError
from tavern_host.contracts.hooks import Veto
from tavern_host.contracts.services import interface_methods
from tavern_host.contracts.wire import Model, OpenModel, wire_problem
from tavern_host.hooks.published import read_published

HOOKS = {name: (spec(name), info) for name, info in sorted(hooks().items())}
METHODS = {
    f"{interface.service_name}.{name}": (interface, getattr(interface, name), info)
    for interface in interfaces().values()
    for name, info in interface_methods(interface).items()
}
LEVELS = {"add", "intercept", "override"}
POLICIES = {"collect", "first", "filter", "veto"}


def modules_of(package: types.ModuleType, part: str = "") -> Iterator[types.ModuleType]:
    """Import every module below a package, or below one part of it."""
    for info in pkgutil.walk_packages(package.__path__, prefix=f"{package.__name__}."):
        if info.name.startswith(f"{package.__name__}.{part}"):
            yield importlib.import_module(info.name)


def contract_modules() -> Iterator[types.ModuleType]:
    """Import every module of the host's contracts, and of what first-party plugins publish."""
    yield from modules_of(contracts)
    for package in manifests():
        yield from modules_of(importlib.import_module(package), "api")


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    return typing.get_type_hints(function, include_extras=True)


def wire_problems(hints: dict[str, Any]) -> dict[str, str]:
    return {name: problem for name, hint in hints.items() if (problem := wire_problem(hint))}


# --- hooks -------------------------------------------------------------------------------------------


def test_every_tavern_function_of_hookspecs_is_a_hook() -> None:
    named = {name for name in vars(hookspecs) if name.startswith("tavern_")}
    assert named == set(hookspecs.hooks())
    assert 15 <= len(named) < len(HOOKS)


def test_hooks_are_fully_described() -> None:
    with Failures() as failures:
        for hook, (function, info) in HOOKS.items():
            with failures.row(hook):
                hints = hints_of(function)
                assert hints.pop("context") is PluginContext
                assert wire_problems(hints) == {}
                assert info.name == hook
                assert [*info.arguments, "context"] == list(inspect.signature(function).parameters)
                assert info.level in LEVELS
                assert info.policy in POLICIES
                assert info.permission == "services.override" or info.permission.startswith("hook:server:")
                assert info.caller == "host" or info.caller in interfaces()
                assert info.description.endswith(".")
                assert inspect.getdoc(function)
                ast.parse("async def example(context):\n" + textwrap.indent(info.example, "    "))
    permissions = [info.permission for _, info in HOOKS.values()]
    assert len(permissions) == len(set(permissions)), "no two hooks share a permission"


def test_signatures_of_hooks_follow_their_policies() -> None:
    with Failures() as failures:
        for hook, (function, info) in HOOKS.items():
            with failures.row(hook):
                hints = hints_of(function)
                if info.policy in ("filter", "veto"):
                    first = hints[info.arguments[0]]
                    assert set(typing.get_args(hints["return"])) == {first, Veto, type(None)}
                if info.policy == "veto":
                    assert hints["call"] is CallContext
                if info.policy == "collect":
                    # What is told to each plugin alike, once for each review or login.
                    about = {"tavern_review_plugin": ("plugin",), "tavern_on_login": ("login", "call")}
                    about |= {"tavern_settle_work": ("which", "call"), "tavern_check_plugin": ("plugin",)}
                    assert info.arguments == about.get(hook, ())


# --- services ----------------------------------------------------------------------------------------


def test_every_interface_and_hook_of_an_api_is_published_as_it_is_in_code() -> None:
    with Failures() as failures:
        for package, manifest in manifests().items():
            with failures.row(package):
                published, problems = read_published(manifest, lambda name, of=package: resolve_name(f"{of}.{name}"))
                assert problems == []
                found = [vars(module).values() for module in modules_of(importlib.import_module(package), "api")]
                values = [value for values in found for value in values if isinstance(value, type | types.FunctionType)]
                own = [value for value in values if value.__module__.startswith(f"{package}.api.")]
                services = {value.service_name for value in own if hasattr(value, "service_name")}
                assert {value.__name__ for value in own if hasattr(value, "__tavern_hook__")} == set(published.hooks)
                assert services == set(published.interfaces)


def test_public_attributes_of_interfaces_are_marked_methods() -> None:
    with Failures() as failures:
        for interface in interfaces().values():
            with failures.row(interface.service_name):
                public = {name for name in vars(interface) if not name.startswith("_")}
                described = {"service_name", "service_version"}
                assert public - described == set(interface_methods(interface))
                assert inspect.getdoc(interface)


def test_methods_are_async_or_streams_of_wire_types() -> None:
    with Failures() as failures:
        for name, (_, method, _) in METHODS.items():
            with failures.row(name):
                hints = hints_of(method)
                assert set(hints) == {*list(inspect.signature(method).parameters)[1:], "return"}
                assert wire_problems(hints) == {}
                streams = typing.get_origin(hints["return"]) is AsyncIterator
                assert inspect.iscoroutinefunction(method) is not streams
                assert inspect.getdoc(method)


def test_acting_methods_have_a_permission_and_the_call() -> None:
    with Failures() as failures:
        for name, (interface, method, info) in METHODS.items():
            with failures.row(name):
                assert 1 <= info.since <= interface.service_version
                parameter = inspect.signature(method).parameters.get("call")
                if not info.is_acting:
                    assert parameter is None
                else:
                    assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
                    assert parameter.default is None
                    assert hints_of(method)["call"] == CallContext | None
                    assert service_permissions()[info.permission][0] == info.level
        for permission, (level, sentence) in service_permissions().items():
            with failures.row(permission):
                assert permission.partition(":")[0] in interfaces()
                assert level in LEVELS
                assert sentence.endswith(".")


# --- data --------------------------------------------------------------------------------------------


def test_models_of_the_contracts_are_frozen_all_the_way() -> None:
    models = {
        value
        for module in contract_modules()
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, BaseModel) and value.__module__ == module.__name__
    }
    assert len(models) > 100
    with Failures() as failures:
        for model in models:
            with failures.row(model.__qualname__):
                assert wire_problem(model) is None
                assert inspect.getdoc(model)


@on_linux
def test_errors_have_codes_of_their_own() -> None:
    assert len(list(modules_of(tavern_host))) > 20  # imports what defines errors
    classes = [TavernError]
    for cls in classes:
        classes += cls.__subclasses__()
    own = {cls for cls in classes if cls.__module__.startswith("tavern_host.")}
    codes = {cls: cls.__dict__.get("code") for cls in own}
    assert None not in codes.values()
    assert len(set(codes.values())) == len(own) >= 12
    assert all(str(code).islower() and str(code).replace("_", "").isalpha() for code in codes.values())


def test_an_error_travels_as_data() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    from tavern_host.contracts.errors import NotFound, error_info

    assert error_info(NotFound("gone", what="it"), plugin="acme") == ErrorInfo(
        code="not_found", message="gone", details={"what": "it"}, plugin="acme"
    )
    assert error_info(Odd()) == ErrorInfo(code="plugin_error", message="Odd: (its text cannot be shown)")


# --- the walk itself can fail ------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"


class Frozen(Model):
    text: str
    more: list[Frozen] = Field(default_factory=list)
    colour: Colour = Colour.RED


class Open(OpenModel):
    text: str


class Loose(BaseModel):
    text: str


class LooseInside(Model):
    loose: list[Loose]


class SetInside(Model):
    tags: dict[str, set[str]]


class NotFrozenAnyMore(Model):
    model_config = ConfigDict(frozen=False)
    text: str


@dataclass(frozen=True)
class Data:
    text: str


def test_wire_types_may_cross() -> None:
    hints = [
        *(None, bool, int, float, str, bytes, datetime, JsonValue, Colour, Frozen, Open, Literal["a", 1], CallContext),
        *(int | None, list[int], tuple[int, ...], tuple[int, str], dict[str, list[Frozen | None]]),
        *(Annotated[str, "anything"], AsyncIterator[Frozen]),
    ]
    assert wire_problems({str(hint): hint for hint in hints}) == {}


def test_other_types_are_refused_and_named() -> None:
    no_wire: list[Any] = [
        *(set, set[str], frozenset[str], object, Any, list, dict, complex, Data, PluginContext, Callable[[], None]),
        *(type[Frozen], Iterator[int], list[set[int]], str | Callable[[], None], AsyncIterator[object]),
        Annotated[object, "x"],
    ]
    rows = [
        *((hint, "not a wire type") for hint in no_wire),
        (dict[int, str], "keys that are not str"),
        (dict[Colour, str], "keys that are not str"),
        (Loose, "Loose is not frozen"),
        (LooseInside, r"LooseInside\.loose: Loose is not frozen"),
        (SetInside, r"SetInside\.tags: .*set"),
        (NotFrozenAnyMore, "NotFrozenAnyMore is not frozen"),
        (dict[str, Loose], "Loose is not frozen"),
    ]
    with Failures() as failures:
        for hint, why in rows:
            with failures.row(hint):
                assert re.search(why, wire_problem(hint) or "")
