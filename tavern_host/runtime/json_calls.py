"""Calls a service's method with JSON: arguments are validated as the method's types, its result is made JSON.

Permissions are checked by the view whose method is called.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticSerializationError

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.documents import json_path, mistakes, wire_json
from tavern_host.contracts.errors import InvalidInput, OutputError
from tavern_host.contracts.names import look_up
from tavern_host.contracts.services import MethodInfo, ServiceInterface, interface_methods
from tavern_host.contracts.wire import WireError, wire_value


class _Signature:
    """The parameters and the result of a method. `names` gives the parameter of a JSON key, in either spelling."""

    def __init__(self, interface: type[ServiceInterface], method: str) -> None:
        function = getattr(interface, method)
        hints = typing.get_type_hints(function, include_extras=True)
        parameters = {n: p for n, p in inspect.signature(function).parameters.items() if n not in ("self", "call")}
        self.what = f"{interface.service_name}.{method}"
        self.names = {to_camel(name): name for name in parameters} | {name: name for name in parameters}
        self._needed = {n for n, p in parameters.items() if p.default is p.empty}
        self._types: dict[str, TypeAdapter[Any]] = {name: TypeAdapter(hints[name]) for name in parameters}
        self._defaults = {n: p.default for n, p in parameters.items() if isinstance(p.default, str | int | float)}
        self.write = TypeAdapter(hints["return"]).serializer.to_python

    @cached_property
    def parameters(self) -> dict[str, dict[str, Any]]:
        """The JSON Schema of each parameter, with its default where that is text, a number or a boolean."""
        defaults = {name: {"default": value} for name, value in self._defaults.items()}
        return {name: type.json_schema() | defaults.get(name, {}) for name, type in self._types.items()}

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments in the method's types. Raises `InvalidInput` with everything that is wrong."""
        arguments = wire_json(arguments, self.what)
        given: dict[str, Any] = {}
        problems: list[str] = []
        for key, value in arguments.items():
            name = self.names.get(key)
            if name is None:
                problems.append(f"unknown argument {key!r}")
                continue
            if name in given:
                problems.append(f"{key!r} is given twice, in two spellings")
            try:
                given[name] = self._types[name].validator.validate_python(value)
            except ValidationError as error:
                problems.extend(f"{json_path(key, *place)[2:]}: {text}" for place, text in mistakes(error))
        if not self._needed <= given.keys():
            missing = self._needed - {self.names.get(key) for key in arguments}
            problems += [f"the argument {name!r} is missing" for name in sorted(missing)]
        if problems:
            raise InvalidInput(f"{self.what}: " + "; ".join(problems))
        return given


_signatures: WeakKeyDictionary[type[ServiceInterface], dict[str, _Signature]]
_signatures = WeakKeyDictionary()  # an interface that a plugin publishes is forgotten with the plugin


class JsonCall:
    """Calls `function`, the method of an interface in some view of it, with JSON; see `context.ServiceMethod`."""

    def __init__(
        self, interface: type[ServiceInterface], method: str, function: Callable[..., Awaitable[Any]], info: MethodInfo
    ) -> None:
        known = _signatures.setdefault(interface, {})
        if method not in known:
            known[method] = _Signature(interface, method)
        self.info = info
        self._function = function
        self._signature = known[method]
        self.names: Mapping[str, str] = self._signature.names

    @property
    def parameters(self) -> Mapping[str, Mapping[str, Any]]:
        """The JSON Schema of each parameter."""
        return self._signature.parameters

    async def __call__(self, arguments: Mapping[str, Any], call: CallContext) -> Any:
        signature = self._signature
        given = signature.read(arguments)
        if self.info.is_acting:
            given["call"] = call
        result = await self._function(**given)
        try:
            return wire_value(signature.write(result, mode="json", by_alias=True))
        except (PydanticSerializationError, UnicodeError, WireError) as error:
            raise OutputError(f"{signature.what} gave what JSON cannot have: {error}") from None


def json_call(interface: type[ServiceInterface], method: str, view: Callable[[str], Any]) -> JsonCall:
    """Return a function that calls a method, by either spelling of its name, with JSON; `view` returns the view of a
    service.

    Raises `NotFound`, `InvalidInput` for a stream, and what `view` raises.
    """
    service, methods = interface.service_name, interface_methods(interface)
    method = next((name for name in methods if method in (name, to_camel(name))), method)
    info = look_up(f"method of {service}", method, methods)
    if not inspect.iscoroutinefunction(getattr(interface, method)):
        raise InvalidInput(f"{service}.{method} is a stream and cannot be called by name")
    return JsonCall(interface, method, getattr(view(service), method), info)
