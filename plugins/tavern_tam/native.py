"""Native function calls: the JSON of an answer's field `tool_calls`, as OpenAI's API has it.

What is taken: a list of calls or one, each `{id, type, function: {name, arguments}}` or without the inner object, with
the arguments as JSON text or as an object; and the pieces of a stream, which are put together by their `index`, those
with different ids apart; one with neither id nor name continues the last call, unless the
index is that of another, and the last one has an index too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from tavern_host.contracts.documents import object_of, read_json, wire_json
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.wire import without_surrogates
from tavern_tam.window import behind_blanks
from tavern_tools.api.nearly_json import mended
from tavern_tools.api.protocols import ParseEvent, ParserOptions
from tavern_tools.api.toolcalls import ToolCallRequest

PROTOCOL = "native"

_SHOWN = 60
_KNOWN = frozenset({"id", "type", "index", "function", "name", "arguments", "parameters"})


@dataclass(slots=True)
class _Call:
    """A call, put together from the pieces of it that came; whether the first of them had an index."""

    has_index: bool = False
    name: str = ""
    id: str | None = None
    kind: str = "function"
    texts: list[str] = field(default_factory=list)
    objects: list[dict[str, Any]] = field(default_factory=list)


class NativeParser:
    """Reads the JSON of `tool_calls`. Never raises, whatever it is fed; what is no call is a warning.

    It gives nothing before `finish`: a call is whole only when the answer is. What a server adds to a call is of no
    interest; `strict` is for JSON that a model wrote, of which all has to be understood, and which is mended
    (`nearly_json`) unless the caller knows better.
    """

    def __init__(self, options: ParserOptions, *, strict: bool = False, mends: bool = True) -> None:
        self._aliases = options.aliases
        self._strict = strict
        self._mends = mends
        self._parts: list[str] = []
        self._warnings: list[str] = []
        self._repairs: list[str] = []

    def feed(self, text: str) -> list[ParseEvent]:
        """Take more JSON: one document in pieces, or one after another."""
        self._parts.append(text)
        return []

    def finish(self) -> list[ParseEvent]:
        """Return the calls, each in a block of its own, and what was not understood."""
        calls: list[_Call] = []
        by_index: dict[int, _Call] = {}
        for document in self._documents("".join(self._parts)):
            for piece in self._pieces(document):
                self._add(piece, calls, by_index)
        requests = [self._request(call, place) for place, call in enumerate(calls)]
        found = [request for request in requests if request is not None]
        events = [ParseEvent(kind="warning", text=warning) for warning in self._warnings]
        for block, request in enumerate(found):
            events.append(ParseEvent(kind="call", call=request.model_copy(update={"block": block})))
        return events

    def _documents(self, text: str) -> list[Any]:
        decoder = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=object_of)
        documents: list[Any] = []
        begin = behind_blanks(text, 0)
        while begin < len(text):
            try:
                document, end = decoder.raw_decode(text, begin)
            except (ValueError, RecursionError) as error:
                found = mended(text[begin:]) if self._strict and self._mends else None
                if found is not None:
                    documents.append(json.loads(found[0]))
                    self._repairs += found[1]
                else:
                    self._warnings.append(f"not JSON: {_reason(error)}")
                break
            documents.append(document)
            begin = behind_blanks(text, end)
        return documents

    def _pieces(self, document: Any) -> list[dict[str, Any]]:
        """Return the calls, or the pieces of calls, that a document holds."""
        if isinstance(document, dict):
            inner = document.get("tool_calls", document.get("toolCalls"))
            document = inner if inner is not None else [document]
        if document is None:
            return []
        if not isinstance(document, list):
            self._warnings.append(f"expected a list of calls, got {_shown(document)}")
            return []
        pieces = []
        for piece in document:
            if isinstance(piece, dict):
                pieces.append(piece)
            else:
                self._warnings.append(f"expected a call, got {_shown(piece)}")
        return pieces

    def _add(self, piece: dict[str, Any], calls: list[_Call], by_index: dict[int, _Call]) -> None:
        """Take a call, or a piece of one: that of its index, else of the last one where it has neither id nor name."""
        function = piece.get("function")
        about = function if isinstance(function, dict) else piece
        name, arguments, index = about.get("name"), about.get("arguments"), piece.get("index")
        if "parameters" in about and (arguments is None or self._strict):  # as Llama writes them
            self._complain_of(["parameters"] if arguments is not None else [])
            arguments = about["parameters"]
        self._complain_of([key for key in (*piece, *about) if self._strict and key not in _KNOWN])
        if isinstance(index, int) and not isinstance(index, bool):
            call = by_index.get(index)
            if calls and not (name or piece.get("id")) and (call is None or not calls[-1].has_index):
                call = calls[-1]
            if call is None or (call.id is not None and piece.get("id") not in (None, "", call.id)):
                call = by_index[index] = _Call(has_index=True)
                calls.append(call)
        elif calls and not name and piece.get("id") in (None, "", calls[-1].id):
            call = calls[-1]
        else:
            call = _Call()
            calls.append(call)
        if isinstance(name, str) and name != call.name:
            call.name += name
        if isinstance(piece.get("id"), str) and piece["id"]:
            call.id = call.id or piece["id"]
        if isinstance(piece.get("type"), str):
            call.kind = piece["type"]
        if isinstance(arguments, str):
            call.texts.append(arguments)
        elif isinstance(arguments, dict):
            call.objects.append(arguments)
        elif arguments is not None:
            call.texts.append(json.dumps(arguments))

    def _complain_of(self, keys: list[str]) -> None:
        self._warnings += [f"{_shown(key)} is not understood: a call has a name and arguments" for key in keys]

    def _request(self, call: _Call, place: int) -> ToolCallRequest | None:
        name = without_surrogates(call.name).strip()
        where = f"call {place + 1}" + (f" ({_shown(name)})" if name else "")
        if call.kind not in ("", "function"):
            self._warnings.append(f"{where} is a {_shown(call.kind)} and not a function; it is not made")
            return None
        if not name:
            self._warnings.append(f"{where} names no function; it is not made")
            return None
        try:
            arguments, repairs = _arguments(call)
        except (ValueError, InvalidInput) as error:
            self._warnings.append(f"the arguments of {where} are not usable: {_reason(error)}; it is not made")
            return None
        return ToolCallRequest(
            tool_id=self._aliases.get(name, name),
            arguments=arguments,
            request_id=None if call.id is None else without_surrogates(call.id),
            protocol=PROTOCOL,
            repairs=[*self._repairs, *repairs],
        )


def _arguments(call: _Call) -> tuple[dict[str, JsonValue], list[str]]:
    """Return a call's arguments as a JSON object, and what was mended in it. Raises `ValueError`, also for what JSON
    readers differ about."""
    text = "".join(call.texts)
    if call.objects:
        if text.strip():
            raise ValueError("they come both as an object and as text")
        return dict(wire_json(object_of([pair for one in call.objects for pair in one.items()]), "they")), []
    if not text.strip():
        return {}, []
    value, repairs = _read(text)
    if value is None:
        return {}, repairs
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, got {_shown(value)}")
    return value, repairs


def _read(text: str) -> tuple[JsonValue, list[str]]:
    """Return a JSON value, and what was mended in its text. Raises `InvalidInput`, `ValueError`."""
    try:
        value: JsonValue = read_json(text, "the text")
    except InvalidInput:
        found = mended(text)
        if found is None or not found[1]:
            raise
        return read_json(found[0], "the text"), found[1]
    json.loads(text, object_pairs_hook=object_of)
    return value, []


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _reason(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error).split("\n")[0][:200]


def _shown(value: object) -> str:
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        text = type(value).__name__
    text = without_surrogates(text)
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
