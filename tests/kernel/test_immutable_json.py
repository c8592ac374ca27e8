"""JSON that nobody can change: by reference within the host, plain wherever it leaves the host's own parts."""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.wire import ImmutableJson, wire_value
from tavern_host.runtime.codec import decode, encode
from tavern_host.runtime.copying import duplicate
from tavern_host.runtime.issued import handed_over
from tavern_host.storage.values import decode_loose, encode_loose


class Lines(tuple[str, ...], ImmutableJson):
    """Lines of text."""

    def plain(self) -> list[dict[str, Any]]:
        return [{"line": line} for line in self]


LINES, PLAIN = Lines("ab"), [{"line": "a"}, {"line": "b"}]
REQUEST = RunRequest.construct(inputs={"lines": LINES, "n": 1})


def test_copies_share_it() -> None:
    copied = duplicate(REQUEST)
    assert copied.inputs is not REQUEST.inputs
    assert copied.inputs["lines"] is LINES


def test_it_is_plain_on_every_wire() -> None:
    assert wire_value({"all": [LINES]}) == {"all": [PLAIN]}
    assert decode(encode({"all": LINES}, dict[str, JsonValue]), dict[str, JsonValue]) == {"all": PLAIN}
    assert decode_loose(*encode_loose({"all": LINES})) == {"all": PLAIN}


def test_a_plugin_gets_plain_values_of_its_own() -> None:
    got = [handed_over(REQUEST).inputs["lines"] for _ in range(2)]
    assert got == [PLAIN, PLAIN]
    assert got[0] is not got[1]
    plain = RunRequest(inputs={"n": 1})
    assert handed_over(plain) is plain
