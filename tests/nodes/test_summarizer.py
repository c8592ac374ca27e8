"""The node that shortens a text: which sentences it picks, how long the result is, and when a model is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from node_bench import HostedNodes, check_refusals

from tavern_host import Host, TavernError
from tavern_nodes.summaries import summarize

on_module_loop = pytest.mark.asyncio(loop_scope="module")
SETTINGS = {"extensions.tavern-llm.models": {"player": {"adapter": "scripted", "file": "replies.json"}}}
PROJECT_FILES = {"replies.json": json.dumps([{"reply": "A harbour, in short. " * 3}])}
HARBOUR = (
    "The harbour was built in 1901. Dr. Lee says the harbour wall is 3.5 m high. My aunt likes tea. "
    "Ships in the harbour need the wall in a storm. It rained on Monday."
)


CHINESE = "港口建于一九〇一年。港口的城墙有三米高！我喜欢喝茶。“风暴来时，船只需要港口的城墙。”星期一下雨了。"
SUMMARIES = [
    ("  One. Two.\nThree.  ", 100, "One. Two.\nThree."),
    (HARBOUR, 100, "Dr. Lee says the harbour wall is 3.5 m high. Ships in the harbour need the wall in a storm."),
    (CHINESE, 28, "港口的城墙有三米高！“风暴来时，船只需要港口的城墙。”"),
    ("Cats sleep all day. " * 20 + "Cats sleep all day long. Birds sing at dawn.", 50,
        "Cats sleep all day. Birds sing at dawn."),  # the same is not said twice
    ("one two three four five six", 15, "one two three…"),
    ("x" * 100, 5, "xxxx…"),
    ("字" * 100, 5, "字字字字…"),
]  # fmt: skip


def test_sentences_that_say_most_are_kept_in_order() -> None:
    assert [(text, length, summarize(text, length)) for text, length, _ in SUMMARIES] == SUMMARIES


@given(st.text(alphabet="ab. \n!?。！“”'\"…3,é\u3000", max_size=200), st.integers(0, 60))
def test_a_summary_is_never_longer_and_always_the_same(text: str, length: int) -> None:
    summary = summarize(text, length)
    assert len(summary) <= length
    assert summary == summarize(text, length)
    assert bool(summary) == bool(text.strip() and length)


@pytest.mark.timeout(60)
def test_no_text_takes_long() -> None:
    size = 800_000  # a little less than is read
    for piece in ("a", ".", "a. ", "!\"'", "\na", "\n", "“。"):
        assert len(summarize(f"x{piece * (size // len(piece))}x", 300)) <= 300


@on_module_loop
async def test_sentences_are_picked_unless_a_model_is_asked(hosted: HostedNodes) -> None:
    inputs = {"text": HARBOUR, "length": 100}
    assert await hosted.run("TextSummarizer", {"text": " Short. "}) == {"summary": "Short.", "method": "none"}
    assert (await hosted.run("TextSummarizer", inputs))["method"] == "sentences"
    short = {"text": HARBOUR, "length": 30}
    for method in ("model", "model if there is one"):
        outputs = await hosted.run("TextSummarizer", short, {"method": method})
        assert outputs == {"summary": "A harbour, in short.", "method": "model"}
    await check_refusals(
        hosted, [("TextSummarizer", {"text": "a", "length": 0}, {}, "length must be at least 1, it is 0")]
    )


async def test_without_a_model_sentences_are_picked_or_it_is_an_error(tmp_path: Path) -> None:
    inputs = {"text": HARBOUR, "length": 100}
    async with Host(project=tmp_path / "project") as host:
        nodes = HostedNodes(host, tmp_path)
        assert (await nodes.run("TextSummarizer", inputs, {"method": "model if there is one"}))["method"] == "sentences"
        with pytest.raises(TavernError, match="model"):
            await nodes.run("TextSummarizer", inputs, {"method": "model"})


@on_module_loop
async def test_only_what_a_model_wrote_is_made_anew_in_each_run(hosted: HostedNodes) -> None:
    change = hosted.runner("TextSummarizer").change
    assert await change({}, {"method": "sentences"}) == await change({}, {})
    assert await change({}, {"method": "model"}) != await change({}, {"method": "model"})
