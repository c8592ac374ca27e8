"""What finding the calls in TAM text costs: against JSON with the same calls, and against the length of the text.

Each figure first checks what was found. The text is one megabyte with a thousand calls, half of which write code and
half prose; the JSON is an assistant's message in OpenAI's form, whose calls have their arguments as JSON text.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.harness import ROUNDS, Result, Side, compare_sides, frozen, measured
from tavern_tam.parser import TamParser
from tavern_tools.api.protocols import ParseEvent, ParserOptions

CALLS = 1000
PIECE = 16
MEGABYTE = 1_000_000

REQUEST = "<|[REQUEST_TOOL]|>"
END = "<|[END_TOOL]|>"
COMMAND = "\ncommand:「始」Notes.Add「末」\n"

CODE = """\
    if page == {n}:
        print(f"page {n}: {{title}}")  # 第 {n} 页
        log.write("<b>" + title + "</b>\\n")
"""
PROSE = 'She wrote: "The harbour is quiet tonight", 她写道：“今晚港口很安静”, and closed the book on page {n}.\n'

OPTIONS = ParserOptions(
    parameters={
        "FileOperator.WriteFile": ["filePath", "content", "encoding"],
        "Notes.Add": ["title", "text", "page", "tags"],
    }
)


@dataclass(frozen=True)
class Conversation:
    """The same calls and text as TAM and as a message in JSON."""

    tam: str
    message: str
    calls: list[tuple[str, dict[str, str]]]
    prose: str


def conversation() -> Conversation:
    """Return the megabyte that the figures are quoted for."""
    calls, said, blocks = [], [], []
    for n in range(CALLS):
        tool, arguments = _call(n)
        calls.append((tool, arguments))
        said.append(f"Now I write page {n} of the diary.\n\n")
        lines = [REQUEST, *(f"{key}:「始」{value}「末」" for key, value in {"command": tool, **arguments}.items()), END]
        blocks.append(said[-1] + "\n".join(lines) + "\n\n")
    functions = [{"name": tool, "arguments": json.dumps(values, ensure_ascii=False)} for tool, values in calls]
    tool_calls = [{"id": f"call_{n}", "type": "function", "function": f} for n, f in enumerate(functions)]
    message = {"role": "assistant", "content": "".join(said), "tool_calls": tool_calls}
    return Conversation("".join(blocks), json.dumps(message, ensure_ascii=False), calls, "".join(said))


def _call(n: int) -> tuple[str, dict[str, str]]:
    if n % 2:
        text = "".join(PROSE.format(n=n + line) for line in range(6))
        return "Notes.Add", {"title": f"第 {n} 天", "text": text, "page": str(n), "tags": "diary, 日记"}
    content = "".join(CODE.format(n=n + line) for line in range(7))
    return "FileOperator.WriteFile", {"filePath": f"pages/page_{n}.py", "content": content, "encoding": "utf-8"}


def parsed(text: str) -> list[ParseEvent]:
    """Return the events that a parser that knows the tools finds in a whole text."""
    parser = TamParser(OPTIONS)
    return parser.feed(text) + parser.finish()


def against_json() -> list[Result]:
    """Measure reading the calls from TAM, and return its time as a ratio to that of reading them from JSON."""
    return asyncio.run(_against_json())


async def _against_json() -> list[Result]:
    sample = conversation()
    found = [(event.call.tool_id, event.call.arguments) for event in parsed(sample.tam) if event.call]
    if found != sample.calls:
        raise AssertionError("the calls that were found are not those that were written")

    async def tam() -> object:
        return parsed(sample.tam)

    async def floor() -> object:
        message = json.loads(sample.message)
        return message, [json.loads(call["function"]["arguments"]) for call in message["tool_calls"]]

    size = len(sample.tam.encode()) / MEGABYTE
    return [
        await compare_sides(
            f"TAM, {size:.2f} MB with {CALLS:,} calls",
            Side(tam, CALLS),
            Side(floor, CALLS),
            floor_name="json.loads of the message and of each call's arguments",
            rounds=3 * ROUNDS,
            limit=1.5,
        )
    ]


def hard_texts() -> dict[str, Callable[[int], str]]:
    """Return the texts that a careless parser would read again and again, by how often they hold what makes them so."""
    return {
        "10,000 「始」 without 「末」": lambda n: REQUEST + COMMAND + "k:「始」x\n" * n,
        "10,000 bare 「始」": lambda n: REQUEST + "「始」" * n,
        "10,000 unclosed blocks": lambda n: (REQUEST + COMMAND) * n,
        "10,000 closed pairs in a block never closed": lambda n: REQUEST + COMMAND + "k:「始」x「末」\n" * n,
        "1 MB of one unbroken word": lambda n: "x" * (n * 100),
        "1 MB of one unbroken word in a block": lambda n: REQUEST + "x" * (n * 100),
        "<think> never closed": lambda n: "<think>" + (REQUEST + COMMAND + END) * n,
    }


def linear() -> list[Result]:
    """Return how much longer the hard texts take than a tenth of each."""
    return asyncio.run(_linear())


async def _linear() -> list[Result]:
    results = []
    for name, text in hard_texts().items():
        sides = [_whole(text(10_000)), _whole(text(1_000))]
        results.append(await compare_sides(name, *sides, floor_name="a tenth of it", limit=12))
    return results


def _whole(text: str) -> Side:
    async def read() -> object:
        return parsed(text)

    return Side(read)


class Nothing:
    """A parser that does nothing."""

    def feed(self, text: str) -> list[ParseEvent]:
        """Find nothing."""
        return []


def feeding() -> list[Result]:
    """Measure a feed of a few characters, beyond the call of a parser that does nothing."""
    sample = conversation()
    return [
        _feeding(f"a feed of {PIECE} characters of the same text", sample.tam, limit=10),
        _feeding(f"a feed of {PIECE} characters of text without calls", sample.prose * 20, limit=None),
    ]


def _feeding(name: str, text: str, *, limit: float | None) -> Result:
    pieces = [text[begin : begin + PIECE] for begin in range(0, len(text), PIECE)]
    pairs = []
    with frozen():
        for _ in range(ROUNDS):
            gc.collect()
            ours = _seconds(TamParser(OPTIONS).feed, pieces)
            gc.collect()
            nothing = _seconds(Nothing().feed, pieces)
            pairs.append((ours - nothing, nothing))
    return measured(name, pairs, "a parser that does nothing (value: beyond it)", limit, limited="value")


def _seconds(feed: Callable[[str], object], pieces: list[str]) -> float:
    began = time.process_time()
    for piece in pieces:
        feed(piece)
    return (time.process_time() - began) / len(pieces)


FIGURES: dict[str, Callable[[], list[Result]]] = {
    "tam": against_json,
    "tam-linear": linear,
    "tam-feed": feeding,
}
