"""A plan with the values of one run bound to it, and the signatures that follow from both.

A node's signature is a hash over its type, version, configuration, written values and the signatures of all that
comes before it. It is known before anything runs; equal signatures mean equal outputs. A changed value invalidates
the signatures of its descendants and nothing else.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2s
from typing import Any

from tavern_engine.compile.node_kinds import TOKEN_SIZE
from tavern_engine.compile.plan import VALUE, Cone, Level, Plan
from tavern_host import Blob
from tavern_host.contracts.wire import ImmutableJson

_GIVEN = b"given outputs"


@dataclass(eq=False, slots=True)
class BoundPlan:
    """A plan and values. `written[i]` are the values of node `i` of the top level; `signatures[i]` is None where
    its outputs are never used again. `given` are outputs that came with the run. `cone` is what was changed last,
    and what comes after it. Nothing is changed here once it was made."""

    plan: Plan
    written: list[dict[str, Any]]
    signatures: list[bytes | None]
    cone: Cone | None = None
    given: Mapping[int, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan) -> BoundPlan:
        """Return a plan with the values that its workflow has."""
        level = plan.level
        signatures: list[bytes | None] = [None] * len(level.written)
        _sign(level, level.written, signatures, level.order, {})
        return cls(plan, level.written, signatures)

    def digests(self) -> dict[int, bytes]:
        """Return by number what stands for the signature of a node that has none: with it, a result may be used where
        the run is resumed, and nowhere else."""
        level, digests, found = self.plan.level, self.plan.code_digests, dict[int, bytes]()
        for index in level.order if digests else ():
            if self.signatures[index] is None and index in digests:
                values = {key: _handle(value) for key, value in self.written[index].items()}
                digest = blake2s(digests[index], digest_size=TOKEN_SIZE)
                digest.update(repr(values).encode("utf-8", "surrogatepass"))
                for source in level.sources[index]:
                    digest.update(self.signatures[source] or found.get(source, b""))
                found[index] = digest.digest()
        return {level.numbers[index]: digest for index, digest in found.items() if level.numbers[index] >= 0}

    def signatures_by_id(self) -> dict[str, bytes | None]:
        """Return by id the signature of a node, else its digest."""
        digests = self.digests()
        nodes = zip(self.plan.level.nodes, self.signatures, strict=True)
        return {node.id: signature or digests.get(node.number) for node, signature in nodes}

    def patched(self, values: Mapping[int, dict[str, Any]], changes: Mapping[int, bytes] | None = None) -> BoundPlan:
        """Return the plan with other values at some nodes of the top level.

        `changes` are what nodes say that must be asked whether they changed; it goes into their signatures.
        """
        different = [index for index, written in values.items() if self.written[index] != written]
        touched = (*different, *(changes or ()))
        if not touched:
            return self
        written = self.written.copy()
        for index in different:
            written[index] = values[index]
        signatures = self.signatures.copy()
        cone = self.plan.level.after(touched)
        _sign(self.plan.level, written, signatures, cone.order, changes or {})
        return BoundPlan(self.plan, written, signatures, cone)

    def with_interface(self, values: Mapping[str, Any], changes: Mapping[int, bytes] | None = None) -> BoundPlan:
        """Return the plan with these values at its workflow's interface inputs; the others have none."""
        immutable = {key: value for key, value in values.items() if isinstance(value, ImmutableJson)}
        plain = {key: value.plain() for key, value in immutable.items() if key not in self.plan.takes_immutable}
        values = {**values, **plain}
        patches = {index: {VALUE: values[key]} if key in values else {} for key, index in self.plan.interface.items()}
        return self.patched(patches, changes)

    def with_given(self, given: Mapping[int, dict[str, Any]], changes: Mapping[int, bytes]) -> BoundPlan:
        """Return the plan with outputs that came with the run, which stand in the signatures of what comes after."""
        if not given:
            return self
        signatures = self.signatures.copy()
        for index, outputs in given.items():
            try:
                token = marshal.dumps([(key, _handle(outputs[key])) for key in sorted(outputs)], 2)
                signatures[index] = blake2s(_GIVEN + token, digest_size=TOKEN_SIZE).digest()
            except ValueError:  # no plain data
                signatures[index] = None
        order = self.plan.level.after(tuple(sorted(given))).order
        _sign(self.plan.level, self.written, signatures, [i for i in order if i not in given], changes)
        return BoundPlan(self.plan, self.written, signatures, given=given)


def _sign(
    level: Level,
    written: list[dict[str, Any]] | dict[int, dict[str, Any]],
    signatures: list[bytes | None],
    order: Iterable[int],
    changes: Mapping[int, bytes],
) -> None:
    """Set the signatures of the nodes in `order`."""
    tokens, sources, asking, dumps = level.tokens, level.sources, frozenset(level.asking), marshal.dumps
    fresh = blake2s(digest_size=TOKEN_SIZE).copy  # of what is so short, it makes a hash sooner than blake2b
    for index in order:
        token = tokens[index]
        if token is None:
            signatures[index] = None
            continue
        values = written[index]
        try:
            if values:
                token += dumps(values, 2)
            if asking and index in asking:
                token += changes[index]
            for source in sources[index]:
                token += signatures[source]  # type: ignore[operator]  # None is what the TypeError is for
        except (KeyError, TypeError, ValueError):
            # It has no answer of its own, or something before it is never used again, or a value is no plain data.
            signatures[index] = None
            if any(type(value) is Blob for value in values.values()):  # its handle is plain data
                handles = {key: _handle(value) for key, value in values.items()}
                _sign(level, {index: handles}, signatures, (index,), changes)
            continue
        whole = fresh()
        whole.update(token)
        signatures[index] = whole.digest()


def _handle(value: Any) -> Any:
    return value.to_json() if type(value) is Blob else value
