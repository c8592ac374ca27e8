"""The node that shortens a text: which sentences it picks, how long the result is, and when a model is asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from node_bench import HostedNodes

from tavern_host import Host, InvalidInput, TavernError
from tavern_nodes.summaries import summarize

HARBOUR = (
    "The harbour was built in 1901. Dr. Lee says the harbour wall is 3.5 m high. My aunt likes tea. "
    "Ships in the harbour need the wall in a storm. It rained on Monday."
)


def test_a_text_that_fits_stays_as_it_is() -> None:
    assert summarize("  One. Two.\nThree.  ", 100) == "One. Two.\nThree."


def test_the_sentences_that_say_most_are_kept_in_their_order() -> None:
    assert summarize(HARBOUR, 100) == (
        "Dr. Lee says the harbour wall is 3.5 m high. Ships in the harbour need the wall in a storm."
    )


def test_chinese_is_cut_at_its_own_sentence_ends() -> None:
    text = "港口建于一九〇一年。港口的城墙有三米高！我喜欢喝茶。“风暴来时，船只需要港口的城墙。”星期一下雨了。"
    assert summarize(text, 28) == "港口的城墙有三米高！“风暴来时，船只需要港口的城墙。”"


def test_the_same_is_not_said_twice() -> None:
    text = "Cats sleep all day. " * 20 + "Cats sleep all day long. Birds sing at dawn."
    assert summarize(text, 50) == "Cats sleep all day. Birds sing at dawn."


def test_a_sentence_that_is_too_long_is_cut_at_a_word() -> None:
    assert summarize("one two three four five six", 15) == "one two three…"
    assert summarize("x" * 100, 5) == "xxxx…"
    assert summarize("字" * 100, 5) == "字字字字…"


@given(st.text(alphabet="ab. \n!?。！“”'\"…3,é\u3000", max_size=200), st.integers(0, 60))
def test_a_summary_is_never_longer_and_always_the_same(text: str, length: int) -> None:
    summary = summarize(text, length)
    assert len(summary) <= length
    assert summary == summarize(text, length)
    assert bool(summary) == bool(text.strip() and length)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "text",
    [
        "a" * 1_000_000,
        "." * 1_000_000,
        "a. " * 330_000,
        "!\"'" * 330_000,
        "\n" * 999_999 + "a",
        "“。" * 500_000,
    ],
    ids=["letters", "points", "abbreviations", "quotes", "lines", "full-width"],
)
def test_no_text_takes_long(text: str) -> None:
    assert len(summarize(f"x{text}x", 300)) <= 300


@pytest.fixture
async def with_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostedNodes]:
    """Give a host with a model that plays what is in a file."""
    settings = {"extensions.tavern-llm.models": {"player": {"adapter": "scripted", "file": "replies.json"}}}
    monkeypatch.setenv("TAVERN_SETTINGS", json.dumps(settings))
    project = tmp_path / "project"
    project.mkdir()
    (project / "tavern.yaml").write_text("name: test\n")
    (project / "replies.json").write_text(json.dumps([{"reply": "A harbour, in short. " * 3}]))
    async with Host(project=project) as host:
        yield HostedNodes(host, project / "files")


async def test_a_short_text_needs_no_summary(hosted: Any) -> None:
    assert await hosted.run("TextSummarizer", {"text": " Short. "}) == {"summary": "Short.", "method": "none"}


async def test_no_model_is_asked_unless_the_node_is_told_to(with_model: HostedNodes) -> None:
    outputs = await with_model.run("TextSummarizer", {"text": HARBOUR, "length": 100})
    assert outputs["method"] == "sentences"


@pytest.mark.parametrize("method", ["model", "model if there is one"])
async def test_a_model_writes_the_summary_and_is_held_to_the_length(with_model: HostedNodes, method: str) -> None:
    outputs = await with_model.run("TextSummarizer", {"text": HARBOUR, "length": 30}, {"method": method})
    assert outputs == {"summary": "A harbour, in short.", "method": "model"}


async def test_without_a_model_sentences_are_picked_or_it_is_an_error(hosted: Any) -> None:
    inputs = {"text": HARBOUR, "length": 100}
    assert (await hosted.run("TextSummarizer", inputs, {"method": "model if there is one"}))["method"] == "sentences"
    with pytest.raises(TavernError, match="model"):
        await hosted.run("TextSummarizer", inputs, {"method": "model"})


async def test_only_what_a_model_wrote_is_made_anew_in_each_run(hosted: Any) -> None:
    change = hosted.runner("TextSummarizer").change
    assert await change({}, {"method": "sentences"}) == await change({}, {})
    assert await change({}, {"method": "model"}) != await change({}, {"method": "model"})


async def test_a_length_below_one_is_refused(hosted: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^TextSummarizer: length must be at least 1, it is 0$"):
        await hosted.run("TextSummarizer", {"text": "a", "length": 0})
