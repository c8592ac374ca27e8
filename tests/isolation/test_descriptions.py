"""What a plugin publishes, described and made again without its code."""

from __future__ import annotations

import enum
import inspect
import json
import typing
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import pytest
from helpers.repetition import Failures
from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from tavern_host import CallContext, PluginContext, ServiceInterface, acts, hookspec, reads
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_host.contracts.hooks import Veto
from tavern_host.contracts.services import interface_methods
from tavern_host.contracts.wire import Model, OpenModel
from tavern_host.hooks.published import hook_faults, interface_faults
from tavern_host.runtime.codec import decode, encode
from tavern_isolation.described import description_of, stand_in
from tavern_isolation.known import Known


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


class Leaf(Model):
    """A leaf."""

    name: Annotated[str, Field(min_length=2)]
    weight: float = Field(default=1.5, ge=0)
    colour: Colour = Colour.RED
    at: datetime | None = None


class Branch(OpenModel):
    leaves: list[Leaf] = Field(default_factory=lambda: [Leaf(name="first")])
    below: Branch | None = None
    twigs: tuple[Twig, ...] = ()
    kind: Literal["thick", "thin"] = "thin"


class Twig(Model):
    back: dict[str, Branch] = Field(default_factory=dict)


Branch.model_rebuild()


class Trees(ServiceInterface, name="acme.trees", version=2):
    """Trees."""

    @reads
    async def find(self, words: str, most: Annotated[int, Field(gt=0)] = 10) -> list[Branch | Leaf]:
        """Find some."""

    @reads
    def walk(self, start: Branch) -> AsyncIterator[Leaf]:
        """Walk through."""

    @acts("acme.trees:cut", "Cut trees.", since=2)
    async def cut(
        self, branch: Branch | None = None, *, more: JsonValue = None, call: CallContext | None = None
    ) -> tuple[int, bytes]:
        """Cut one."""


@hookspec(permission="hook:plugin:acme:before-cut", level="intercept", policy="veto", description="Refuse a cut.")
def acme_before_cut(branch: Branch, context: PluginContext, colour: Colour | None) -> Branch | Veto | None:
    """Return another branch."""


def test_an_interface_is_made_again_with_all_that_is_known_of_it() -> None:
    made = stand_in(description_of(Trees))
    assert made is stand_in(description_of(made)) and made is not Trees
    assert (made.service_name, made.service_version, made.__doc__) == ("acme.trees", 2, "Trees.")
    assert interface_methods(made) == interface_methods(Trees)
    assert list(interface_faults(made)) == []
    assert [made.cut.__doc__, inspect.iscoroutinefunction(made.walk)] == ["Cut one.", False]
    assert typing.get_type_hints(made.cut)["call"] == CallContext | None
    hint = typing.get_type_hints(made.find, include_extras=True)["most"]
    with pytest.raises(ValidationError):
        TypeAdapter(hint).validate_python(0)


def test_a_hook_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = stand_in(description_of(acme_before_cut))
    assert made.__tavern_hook__ == acme_before_cut.__tavern_hook__ and list(hook_faults(made)) == []  # type: ignore[attr-defined]
    assert made.tavern_spec == acme_before_cut.tavern_spec  # type: ignore[attr-defined]
    assert {*inspect.signature(made).parameters} == {"branch", "context", "colour"}


def test_values_are_the_same_bytes_for_a_model_and_its_stand_in() -> None:
    made = stand_in(description_of(Trees))
    hints, others = typing.get_type_hints(Trees.find), typing.get_type_hints(made.find)
    leaf = Leaf(name="oak", at=datetime(2026, 1, 1, tzinfo=UTC), colour=Colour.BLUE)
    branch = Branch(leaves=[leaf], below=Branch(), twigs=(Twig(back={"up": Branch(kind="thick")}),), moss="yes")  # type: ignore[call-arg]
    data = encode([branch, leaf], hints["return"])
    values = decode(data, others["return"])
    assert encode(values, others["return"]) == data and decode(data, hints["return"]) == [branch, leaf]
    assert (values[0].leaves[0].name, values[0].moss, type(values[1]).__name__) == ("oak", "yes", "Leaf")
    assert values[0].model_dump(mode="json", by_alias=True) == branch.model_dump(mode="json", by_alias=True)
    new = type(values[0])()
    assert (new.leaves[0].name, new.kind, new.model_fields_set) == ("first", "thin", set())


def test_a_process_that_can_import_the_very_same_uses_it() -> None:
    text = description_of(Trees)
    assert Known({}, {}, {"acme.trees": text}).interface("acme.trees") is Trees
    other = text.replace("Find some.", "Find others.")
    made = Known({}, {}, {"acme.trees": other}).interface("acme.trees")
    assert made is not Trees and made.find.__doc__ == "Find others."  # type: ignore[attr-defined]
    with pytest.raises(NotFound, match=r"there is no service 'acme.tree'; did you mean acme.trees\?"):
        Known({}, {}, {"acme.trees": text}).interface("acme.tree")


def test_what_is_no_wire_type_is_told_with_its_place() -> None:
    class Wrong(ServiceInterface, name="acme.wrong"):
        @reads
        async def find(self, words: set[str]) -> None:
            """Find."""

    for wrong, told in ((Wrong, r"^find: words: set\[str\] is not a wire type$"), (7, "^7 is neither a ServiceInt")):
        with pytest.raises(InvalidInput, match=told):
            description_of(wrong)


def changed(where: list[Any], value: Any) -> str:
    tree = json.loads(description_of(Trees))
    part = tree
    for key in where[:-1]:
        part = part[key]
    part[where[-1]] = value
    return json.dumps(tree)


LEAF = f"{__name__}:Leaf"
HOSTILE: list[tuple[list[Any], Any]] = [
    (["methods", "find", "parameters", 0, 0], "a=exec('x')"),
    (["methods", "find", "parameters", 0, 0], "_copy"),
    (["methods", "find", "parameters", 0, 0], "class"),
    (["methods", "find", "parameters", 0, 2], {"shared": "os:system"}),
    (["methods", "find", "parameters", 0, 2], {"shared": "tavern_host.contracts.wire:wire_value"}),
    (["methods", "find", "parameters", 0, 2], {"own": "nothing:here"}),
    (["methods", "find", "parameters", 0, 1], 99),
    (["methods", "find", "parameters", 1, 3], "{"),
    (["methods", "find", "info"], {"level": "root"}),
    (["methods", "__init__"], None),
    (["methods", "service_name"], None),
    (["methods"], []),
    (["name"], "A:B"),
    (["types", LEAF, "fields", "__class__"], ["str", {}, "x", None]),
    (["types", LEAF, "fields", "model_dump"], ["str", {}, "x", None]),
    (["types", LEAF, "fields", "name"], ["str", {"pattern": "("}, "x", None]),
    (["types", LEAF], {"name": "Leaf", "base": "str", "members": {"mro": "x"}}),
]


def test_what_no_plugin_describes_is_refused() -> None:
    with Failures() as failures:
        for where, value in HOSTILE:
            with failures.row(f"{where}: {value}"), pytest.raises(InvalidInput, match="description cannot be read"):
                stand_in(changed(where, value))
        posing = description_of(Trees).replace(LEAF, "tavern_host.contracts.hooks:Leaf")
        for text in (posing, "", "[]", "[" * 100_000, "{}", "x" * 400_000):
            with failures.row(text[:9]), pytest.raises(InvalidInput, match="description cannot be read"):
                stand_in(text)
