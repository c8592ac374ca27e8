"""The rules of the contracts (DESIGN §3): wire types, async methods, marks, descriptions of each hook and service."""

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
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, JsonValue

import tavern_host
from tavern_host import contracts, hookspecs
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.catalogue import INTERFACES, interfaces, service_permissions
from tavern_host.contracts.errors import ErrorInfo, TavernError
from tavern_host.contracts.hooks import Veto
from tavern_host.contracts.services import ServiceInterface, interface_methods
from tavern_host.contracts.wire import Model, OpenModel, wire_problem
from tavern_host.hookspecs import hooks

HOOKS = sorted(hooks())
METHODS = [(interface, name) for interface in INTERFACES for name in interface_methods(interface)]
LEVELS = {"add", "intercept", "override"}
POLICIES = {"collect", "first", "filter", "veto"}


def modules_of(package: types.ModuleType) -> Iterator[types.ModuleType]:
    """Import every module beneath a package."""
    for info in pkgutil.walk_packages(package.__path__, prefix=f"{package.__name__}."):
        yield importlib.import_module(info.name)


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    return typing.get_type_hints(function, include_extras=True)


def each_method(cases: list[tuple[type[ServiceInterface], str]]) -> Any:
    return pytest.mark.parametrize(
        ("interface", "name"), cases, ids=[f"{interface.service_name}.{name}" for interface, name in cases]
    )


# --- hooks -------------------------------------------------------------------------------------------


def test_all_functions_of_hookspecs_that_are_named_like_hooks_are_hooks() -> None:
    named = {name for name in vars(hookspecs) if name.startswith("tavern_")}
    assert named == set(hooks())
    assert len(named) >= 15


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_takes_and_returns_wire_types_and_the_context(hook: str) -> None:
    hints = hints_of(getattr(hookspecs, hook))
    assert hints.pop("context") is PluginContext
    assert {name: wire_problem(hint) for name, hint in hints.items() if wire_problem(hint)} == {}


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_says_everything_about_itself(hook: str) -> None:
    function, info = getattr(hookspecs, hook), hooks()[hook]
    assert info.name == hook
    assert [*info.arguments, "context"] == list(inspect.signature(function).parameters)
    assert info.level in LEVELS
    assert info.policy in POLICIES
    assert info.permission == "services.override" or info.permission.startswith("hook:server:")
    assert info.caller == "host" or info.caller in interfaces()
    assert info.description.endswith(".")
    assert inspect.getdoc(function)


@pytest.mark.parametrize("hook", HOOKS)
def test_the_example_of_a_hook_is_python(hook: str) -> None:
    ast.parse("async def example(context):\n" + textwrap.indent(hooks()[hook].example, "    "))


@pytest.mark.parametrize("hook", [h for h in HOOKS if hooks()[h].policy in ("filter", "veto")])
def test_a_filter_returns_what_its_first_argument_is_or_a_veto_or_nothing(hook: str) -> None:
    hints = hints_of(getattr(hookspecs, hook))
    first = hooks()[hook].arguments[0]
    assert set(typing.get_args(hints["return"])) == {hints[first], Veto, type(None)}


@pytest.mark.parametrize("hook", [h for h in HOOKS if hooks()[h].policy == "veto"])
def test_a_hook_about_something_that_is_done_says_for_whom(hook: str) -> None:
    assert hints_of(getattr(hookspecs, hook))["call"] is CallContext


@pytest.mark.parametrize("hook", [h for h in HOOKS if hooks()[h].policy == "collect"])
def test_a_hook_that_collects_has_no_arguments_that_could_be_changed(hook: str) -> None:
    assert hooks()[hook].arguments == ()


def test_no_two_hooks_share_a_permission() -> None:
    permissions = [info.permission for info in hooks().values()]
    assert len(permissions) == len(set(permissions))


# --- services ----------------------------------------------------------------------------------------


def test_the_catalogue_has_every_interface_of_the_contracts() -> None:
    defined = {
        value
        for module in modules_of(contracts)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, ServiceInterface) and hasattr(value, "service_name")
    }
    assert defined == set(INTERFACES)
    assert len(interfaces()) == len(INTERFACES)


@pytest.mark.parametrize("interface", INTERFACES, ids=lambda i: i.service_name)
def test_every_public_attribute_of_an_interface_is_a_marked_method(interface: type[ServiceInterface]) -> None:
    public = {name for name in vars(interface) if not name.startswith("_")} - {"service_name", "service_version"}
    assert public == set(interface_methods(interface))
    assert inspect.getdoc(interface)


@each_method(METHODS)
def test_a_method_takes_and_returns_wire_types(interface: type[ServiceInterface], name: str) -> None:
    hints = hints_of(getattr(interface, name))
    parameters = list(inspect.signature(getattr(interface, name)).parameters)[1:]
    assert set(hints) == {*parameters, "return"}
    assert {key: wire_problem(hint) for key, hint in hints.items() if wire_problem(hint)} == {}


@each_method(METHODS)
def test_a_method_is_async_or_returns_a_stream(interface: type[ServiceInterface], name: str) -> None:
    method = getattr(interface, name)
    streams = typing.get_origin(hints_of(method)["return"]) is AsyncIterator
    assert inspect.iscoroutinefunction(method) is not streams
    assert inspect.getdoc(method)


@each_method([m for m in METHODS if interface_methods(m[0])[m[1]].permission is not None])
def test_an_acting_method_takes_the_call_by_keyword(interface: type[ServiceInterface], name: str) -> None:
    parameter = inspect.signature(getattr(interface, name)).parameters["call"]
    assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
    assert parameter.default is None
    assert hints_of(getattr(interface, name))["call"] == CallContext | None


@each_method([m for m in METHODS if interface_methods(m[0])[m[1]].permission is None])
def test_a_reading_method_does_not_ask_who_reads(interface: type[ServiceInterface], name: str) -> None:
    assert "call" not in inspect.signature(getattr(interface, name)).parameters


@pytest.mark.parametrize("permission", sorted(service_permissions()))
def test_a_permission_to_act_names_its_service_and_says_what_it_allows(permission: str) -> None:
    level, sentence = service_permissions()[permission]
    assert permission.partition(":")[0] in interfaces()
    assert level in LEVELS
    assert sentence.endswith(".")


@each_method(METHODS)
def test_methods_of_one_permission_have_one_level(interface: type[ServiceInterface], name: str) -> None:
    info = interface_methods(interface)[name]
    if info.permission is not None:
        assert service_permissions()[info.permission][0] == info.level
    assert 1 <= info.since <= interface.service_version


# --- data --------------------------------------------------------------------------------------------


def models_of_contracts() -> list[type[BaseModel]]:
    return [
        value
        for module in modules_of(contracts)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, BaseModel) and value.__module__ == module.__name__
    ]


@pytest.mark.parametrize("model", models_of_contracts(), ids=lambda m: m.__qualname__)
def test_a_model_of_the_contracts_is_frozen_all_the_way_down(model: type[BaseModel]) -> None:
    assert wire_problem(model) is None
    assert inspect.getdoc(model)


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


@pytest.mark.parametrize(
    "hint",
    [
        None,
        bool,
        int,
        float,
        str,
        bytes,
        datetime,
        JsonValue,
        Colour,
        Frozen,
        Open,
        Literal["a", 1],
        int | None,
        list[int],
        tuple[int, ...],
        tuple[int, str],
        dict[str, list[Frozen | None]],
        Annotated[str, "anything"],
        AsyncIterator[Frozen],
        CallContext,
    ],
    ids=str,
)
def test_a_wire_type_may_cross(hint: Any) -> None:
    assert wire_problem(hint) is None


@pytest.mark.parametrize(
    ("hint", "why"),
    [
        (set, "not a wire type"),
        (set[str], "not a wire type"),
        (frozenset[str], "not a wire type"),
        (object, "not a wire type"),
        (Any, "not a wire type"),
        (list, "not a wire type"),
        (dict, "not a wire type"),
        (complex, "not a wire type"),
        (Data, "not a wire type"),
        (PluginContext, "not a wire type"),
        (Callable[[], None], "not a wire type"),
        (type[Frozen], "not a wire type"),
        (Iterator[int], "not a wire type"),
        (dict[int, str], "keys that are not str"),
        (dict[Colour, str], "keys that are not str"),
        (list[set[int]], "not a wire type"),
        (str | Callable[[], None], "not a wire type"),
        (AsyncIterator[object], "not a wire type"),
        (Annotated[object, "x"], "not a wire type"),
        (Loose, "Loose is not frozen"),
        (LooseInside, r"LooseInside\.loose: Loose is not frozen"),
        (SetInside, r"SetInside\.tags: .*set"),
        (NotFrozenAnyMore, "NotFrozenAnyMore is not frozen"),
        (dict[str, Loose], "Loose is not frozen"),
    ],
    ids=str,
)
def test_what_is_no_wire_type_is_refused_and_named(hint: Any, why: str) -> None:
    assert re.search(why, wire_problem(hint) or "")
