"""Methods of services as JSON sees them: arguments are read into the method's types, the result is written as JSON.

What depends on the method alone is settled once. Permissions are the business of the view whose method is called.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import InvalidInput, PluginFailure, describe
from tavern_host.contracts.services import MethodInfo, ServiceInterface

_AS_THEY_ARE = frozenset((str, int, bool))
"""Types of which JSON has the very values."""
_TAKEN_AS_THEY_ARE = _AS_THEY_ARE | {float}


class _Signature:
    """What a method takes and gives. `names` says which parameter a JSON key means, in either spelling."""

    def __init__(self, interface: type[ServiceInterface], method: str) -> None:
        function = getattr(interface, method)
        hints = typing.get_type_hints(function, include_extras=True)
        parameters = {n: p for n, p in inspect.signature(function).parameters.items() if n not in ("self", "call")}
        self.what = f"{interface.service_name}.{method}"
        self.names = {_camel(name): name for name in parameters} | {name: name for name in parameters}
        self.needed = frozenset(n for n, p in parameters.items() if p.default is p.empty)
        self.plain = {name: hints[name] for name in parameters if hints[name] in _TAKEN_AS_THEY_ARE}
        self.readers: dict[str, TypeAdapter[Any]] = {name: TypeAdapter(hints[name]) for name in parameters}
        self.gives = hints["return"] if hints["return"] in _AS_THEY_ARE else None
        self.writer: TypeAdapter[Any] = TypeAdapter(hints["return"])

    def read(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments in the method's types. Raises `InvalidInput` with everything that is wrong.

        They come back themselves where there is nothing to do.
        """
        plain = self.plain
        for key, value in arguments.items():
            if value.__class__ is not plain.get(key):
                break
        else:
            if self.needed <= arguments.keys():
                return arguments
        given: dict[str, Any] = {}
        problems: list[str] = []
        for key, value in arguments.items():
            name = self.names.get(key)
            if name is None:
                problems.append(f"unknown argument {key!r}")
            elif value.__class__ is plain.get(name):
                given[name] = value
            else:
                try:
                    given[name] = self.readers[name].validate_python(value)
                except ValidationError as error:
                    problems.extend(f"{key}: {e['msg']}" for e in error.errors())
        if not self.needed <= given.keys():
            missing = sorted(self.needed - given.keys() - {self.names.get(key) for key in arguments})
            problems += [f"the argument {name!r} is missing" for name in missing]
        if problems:
            raise InvalidInput(f"{self.what}: " + "; ".join(problems))
        return given


_signatures: WeakKeyDictionary[type[ServiceInterface], dict[str, _Signature]]
_signatures = WeakKeyDictionary()  # an interface that a plugin publishes goes with the plugin


class JsonCall:
    """Calls `function`, the method of an interface in some view of it, with JSON; see `context.ServiceMethod`."""

    __slots__ = ("_acts", "_function", "_gives", "_read", "_what", "_write", "info")

    def __init__(
        self, interface: type[ServiceInterface], method: str, function: Callable[..., Awaitable[Any]], info: MethodInfo
    ) -> None:
        known = _signatures.setdefault(interface, {})
        if method not in known:
            known[method] = _Signature(interface, method)
        signature = known[method]
        self.info = info
        self._acts = info.permission is not None
        self._function = function
        self._what = signature.what
        self._read, self._gives, self._write = signature.read, signature.gives, signature.writer.dump_python

    async def __call__(self, arguments: Mapping[str, Any], call: CallContext) -> Any:
        given = self._read(arguments)
        if self._acts:
            given = {**given, "call": call}
        result = await self._function(**given)
        if result.__class__ is self._gives:
            return result
        try:
            return self._write(result, mode="json", by_alias=True)
        except (PydanticSerializationError, UnicodeError) as error:
            raise PluginFailure(f"{self._what} gave what JSON cannot have: {describe(error)}") from None


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)
