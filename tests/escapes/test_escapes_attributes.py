"""What the attributes of a view, of its methods and of its type give away: each attack works on the object that
provides the service, and comes to nothing on a view of it."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from escape_scene import SECRET, scene
from helpers.repetition import Failures

from tavern_host import WORKFLOW_MANAGER
from tavern_host.contracts.errors import PermissionDenied
from tavern_host.contracts.workflows import Workflow

Attack = Callable[[Any], object]
"""Goes after the secret of an object that has a method `get`; returns what it found."""


class Slotted:
    """A proxy as a textbook makes it: what it stands for is in a slot, behind a hook for attributes."""

    __slots__ = ("_target", "get")

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


class Forwarding:
    """A proxy that keeps what it stands for in its dictionary, and can be pickled and copied."""

    def __init__(self, target: Any) -> None:
        self.secret = target.secret
        self.get = target.get

    def __reduce__(self) -> Any:
        return (str, (self.secret,))


def file_of(code: types.CodeType) -> str:
    path = Path(code.co_filename)
    return path.read_text() if path.is_file() else ""


def slots_of(thing: Any) -> list[object]:
    """Read every slot through its descriptor, whatever the object says about its attributes."""
    found = []
    for kind in type(thing).__mro__:
        for descriptor in vars(kind).values():
            if inspect.ismemberdescriptor(descriptor):
                try:
                    found.append(descriptor.__get__(thing))
                except AttributeError:
                    continue
    return found


READING: dict[str, Attack] = {
    "an attribute": lambda o: o.secret,
    "a private method": lambda o: o._private(),
    "__dict__": lambda o: o.__dict__["secret"],
    "vars": lambda o: vars(o)["secret"],
    "dir": lambda o: SECRET if "secret" in dir(o) else None,
    "getattr_static": lambda o: inspect.getattr_static(o, "secret"),
    "getmembers": lambda o: dict(inspect.getmembers(o))["secret"],
    "object.__getattribute__": lambda o: object.__getattribute__(o, "secret"),
    "__self__ of a method": lambda o: o.get.__self__.secret,
    "__func__ of a method": lambda o: o.get.__func__.__globals__["SECRET"],
    "__globals__ of a method": lambda o: o.get.__globals__["SECRET"],
    "__code__ of a method": lambda o: SECRET if SECRET in file_of(o.get.__code__) else o.get.__code__.co_consts,
    "__defaults__ of a method": lambda o: o.get.__defaults__[0][0],
    "__kwdefaults__ of a method": lambda o: o.get.__kwdefaults__["_other"],
    "__dict__ of a method": lambda o: o.get.__dict__["hint"],
    "an attribute of a method": lambda o: o.get.hint,
    "__wrapped__ of a method": lambda o: o.list_workflows.__wrapped__.__globals__["SECRET"],
    "inspect.unwrap": lambda o: inspect.unwrap(o.list_workflows).__globals__["SECRET"],
    "__class__": lambda o: o.__class__.spoken,
    "type": lambda o: type(o).spoken,
    "__init__ of the type": lambda o: type(o).__init__.__globals__["SECRET"],
    "the module of the type": lambda o: vars(inspect.getmodule(type(o)))["SECRET"],
    "__mro__": lambda o: next((kind.spoken for kind in type(o).__mro__ if hasattr(kind, "spoken")), None),
    "__subclasses__": lambda o: type(o).__subclasses__()[0].spoken,
    "__getstate__": lambda o: o.__getstate__()["secret"],
    "__reduce_ex__": lambda o: o.__reduce_ex__(2)[2]["secret"],
    "object.__reduce_ex__": lambda o: object.__reduce_ex__(o, 2)[2]["secret"],  # type: ignore[index]
    "copy.copy": lambda o: copy.copy(o).secret,
    "functools.partial": lambda o: functools.partial(o.get).func.__self__.secret,  # type: ignore[attr-defined]
    "weakref": lambda o: weakref.proxy(o).secret,
    "__repr__": lambda o: SECRET if "vault" in repr(o) else None,
    "__doc__": lambda o: SECRET if "secret" in str(type(o).__doc__) else None,
}


async def test_a_view_gives_nothing_away(tmp_path: Path) -> None:
    async with scene(tmp_path) as on:
        with Failures() as failures:
            for name, attack in READING.items():
                with failures.row(name):
                    assert attack(on.plain) == SECRET
                    try:
                        found = attack(on.view)
                    except (AttributeError, TypeError, KeyError, IndexError):
                        found = None
                    assert SECRET not in str(found)
                    assert found is not on.plain
        assert on.plain in slots_of(Slotted(on.plain))
        assert slots_of(on.view) == []
        forwarding: Any = Forwarding(on.plain)
        assert pickle.loads(pickle.dumps(forwarding)) == copy.deepcopy(forwarding) == SECRET
        for attempt in (copy.copy, copy.deepcopy, pickle.dumps, lambda view: view.__reduce__()):
            with pytest.raises(TypeError, match="WorkflowManagerView cannot be copied or pickled"):
                attempt(on.view)
        assert len(on.plain.get.__globals__) > 10
        for name in ("get", "list_workflows", "parse", "check", "save"):
            assert set(getattr(on.view, name).__globals__) <= {"__builtins__"}


# --- changing it -------------------------------------------------------------------------------------


def evil(*args: Any, **kwargs: Any) -> str:
    """Stand in the place of a method."""
    return "evil"


class Evil:
    """A class that somebody wants an object to be of."""

    get = staticmethod(evil)


CHANGING: dict[str, Callable[[Any], None]] = {
    "setattr": lambda o: setattr(o, "get", evil),
    "a new attribute": lambda o: setattr(o, "mine", evil),
    "object.__setattr__": lambda o: object.__setattr__(o, "get", evil),
    "__dict__": lambda o: o.__dict__.update(get=evil),
    "vars": lambda o: vars(o).update(get=evil),
    "__class__": lambda o: setattr(o, "__class__", type("Other", (type(o),), {"get": evil})),
    "setattr on the type": lambda o: setattr(type(o), "get", evil),
    "setattr on a base": lambda o: setattr(type(o).__mro__[1], "get", evil),
    "a hook for attributes on a base": lambda o: setattr(type(o).__mro__[1], "__getattribute__", evil),
    "delattr on the type": lambda o: delattr(type(o), "get"),
    "delattr on a base": lambda o: delattr(
        type(o).__mro__[1], "get" if "get" in vars(type(o).__mro__[1]) else "__setattr__"
    ),
    "delattr": lambda o: delattr(o, "get"),
    "object.__delattr__": lambda o: object.__delattr__(o, "get"),
    "__bases__": lambda o: setattr(type(o), "__bases__", (Evil,)),
    "__dict__ of the type": lambda o: vars(type(o)).update(get=evil),
}
NOT_EVEN_PLAIN = {"__dict__ of the type", "delattr on a base", "delattr", "object.__delattr__"}
"""What Python refuses for every object with methods."""


def change_plain(attack: Callable[[Any], None]) -> bool:
    """Return whether an attack changes an object of a class without a guard."""

    class Base:
        async def get(self, workflow_id: str) -> None:
            """Do nothing."""

    class Plain(Base):
        async def get(self, workflow_id: str) -> None:
            """Do nothing."""

    plain = Plain()
    before = {kind: dict(vars(kind)) for kind in (Plain, Base)}
    attack(plain)
    changed = [kind for kind, was in before.items() if dict(vars(kind)) != was]
    return bool(changed or vars(plain)) or type(plain) is not Plain or Plain.__bases__ != (Base,)


MADE: dict[str, Callable[[Any], Any]] = {
    "another instance": lambda view: type(view)(),
    "object.__new__": lambda view: object.__new__(type(view)),
    "a class of its own": lambda view: type("Mine", (type(view),), {})(),
    "one with a hook": lambda view: type("Mine", (type(view),), {"__getattr__": lambda self, name: name})(),
}


async def test_a_view_cannot_be_changed_or_made(tmp_path: Path) -> None:
    async with scene(tmp_path) as on:
        kinds = [dict(vars(kind)) for kind in type(on.view).__mro__]
        with Failures() as failures:
            for name, attack in CHANGING.items():
                with failures.row(name):
                    assert name in NOT_EVEN_PLAIN or change_plain(attack)
                    with pytest.raises((AttributeError, TypeError)):
                        attack(on.view)
                    assert [dict(vars(kind)) for kind in type(on.view).__mro__] == kinds
                    assert (await on.view.get("tale")).id == "tale"
        every = {name: make(on.view) for name, make in MADE.items()}
        for name, made in every.items():
            assert (await made.get("tale")).id == "tale", name
            with pytest.raises(PermissionDenied, match=r"acme may not call workflowManager\.save"):
                await made.save("tale", Workflow(name="Mine"))
        await on.host.revoke("acme")
        for made in every.values():
            with pytest.raises(PermissionDenied):
                await made.get("tale")
        assert on.plain.calls == []


async def test_forcing_a_views_class_affects_nobody_else(tmp_path: Path) -> None:
    async with scene(tmp_path) as on:
        operators = on.host.services.get(WORKFLOW_MANAGER)

        class Mine(type(on.view)):  # type: ignore[misc]
            __slots__ = ()
            get = staticmethod(evil)

        object.__setattr__(on.view, "__class__", Mine)
        assert on.view.get("tale") == "evil"
        assert (await operators.get("tale")).id == "tale"
        with pytest.raises(PermissionDenied):
            await on.view.save("tale", Workflow(name="Mine"))


async def test_changed_methods_affect_only_the_plugins_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene(tmp_path) as on:
        operators: Any = on.host.services.get(WORKFLOW_MANAGER)
        method = on.view.get
        method.__defaults__ = ("tale",)
        method.__dict__["hint"] = "evil"
        for name in ("_complete", "_target", "_copied", "duplicate", "len"):
            monkeypatch.setitem(method.__globals__, name, evil)
        method.__name__ = "save"
        assert (await on.view.get()).id == "tale"
        with pytest.raises(TypeError):
            await operators.get()
        assert (await operators.get("tale")).id == "tale"
        assert not hasattr(operators.get, "hint")
        await operators.save("tale", Workflow(name="The operator's"))
        assert on.plain.seen[-1].name == "The operator's"
        with pytest.raises(PermissionDenied, match=r"acme may not call workflowManager\.save"):
            await on.view.save("tale", Workflow(name="Mine"))
