"""Which models are set up, and what a project may not set up."""

from __future__ import annotations

from typing import Any

import pytest

from tavern_host.contracts.errors import Misconfigured
from tavern_llm.api.llm import LlmAdapterInfo
from tavern_llm.models import check_setup, read_models

ADAPTERS: dict[str, LlmAdapterInfo] = {
    "openai": LlmAdapterInfo(name="openai", handler="x:Y"),
    "scripted": LlmAdapterInfo(name="scripted", handler="x:Z", network=False),
}


def refusal(layer: str, entry: Any) -> str:
    with pytest.raises(Misconfigured) as caught:
        check_setup(read_models({layer: {"m": entry}})["m"], ADAPTERS)
    return caught.value.message


def test_a_project_may_not_reach_the_network() -> None:
    for layer in ("operator", "environment"):
        check_setup(read_models({layer: {"m": {"adapter": "openai", "api_key": "k"}}})["m"], ADAPTERS)
    check_setup(read_models({"project": {"m": {"adapter": "scripted"}}})["m"], ADAPTERS)
    assert refusal("project", {"adapter": "openai", "base_url": "http://evil"}) == (
        "the model 'm' in the project's setting extensions.tavern-llm.models: the adapter 'openai' reaches the "
        "network, which only the operator's settings (host.yaml) or the environment may set up; a project may use "
        "scripted"
    )
    assert "reaches the network" in refusal("somewhere", {"adapter": "openai"}), "a layer that nobody knows"


def test_a_project_may_not_give_or_name_a_key() -> None:
    for entry in (
        *({key: "HUSH"} for key in ("api_key", "api_key_env")),
        *({"channels": one} for one in ([{}, {"api_key": "HUSH"}], [{"api_key_env": ["HUSH"]}])),
    ):
        message = refusal("project", {"adapter": "scripted", **entry})
        assert "; API keys belong in the operator's settings" in message
        assert "HUSH" not in message
    assert "a project may not give api_key;" in refusal("project", {"adapter": "scripted", "api_key": "HUSH"})
    assert "hush" not in repr(read_models({"operator": {"m": {"adapter": "openai", "api_key": "hush"}}}))


def channels(entry: dict[str, Any]) -> list[dict[str, Any]]:
    setup = read_models({"operator": {"m": {"adapter": "openai", **entry}}})["m"]
    assert setup.problem is None
    return [channel.options for channel in setup.channels]


def test_each_key_of_each_channel_is_a_channel() -> None:
    rows: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
        ({"model": "x"}, [{"model": "x"}]),
        ({"api_key": ["a", "b"]}, [{"api_key": "a"}, {"api_key": "b"}]),
        ({"api_key": "a", "api_key_env": ["B"]}, [{"api_key": "a"}, {"api_key_env": "B"}]),
        (
            {"model": "x", "api_key": "a", "channels": [{}, {"model": "y"}, {"api_key_env": "B"}]},
            [{"model": "x", "api_key": "a"}, {"model": "y", "api_key": "a"}, {"model": "x", "api_key_env": "B"}],
        ),
    ]
    for options, expected in rows:
        assert channels({**options, "concurrency": 3, "price_input": 1}) == expected


def test_what_is_wrong_with_an_entry_is_told_without_its_values() -> None:
    rows: list[tuple[Any, str]] = [
        *((wrong, 'expected an object with "adapter"') for wrong in ("openai", None, {}, {"adapter": 3})),
        ({"adapter": "opanai"}, "there is no adapter 'opanai'; there is openai, scripted"),
        ({"alias": "x", "adapter": "openai"}, 'an alias is {"alias": "the name of a model"} and nothing else'),
        ({"alias": 3}, 'an alias is {"alias": "the name of a model"} and nothing else'),
        ({"adapter": "openai", "concurrency": 0}, "concurrency: input should be greater than or equal to 1"),
        ({"adapter": "openai", "channels": []}, "channels: list should have at least 1 item"),
        ({"adapter": "openai", "channels": ["hush"]}, "channels.0: input should be a valid dictionary"),
        ({"adapter": "openai", "context_tokens": "hush"}, "context_tokens: input should be a valid integer"),
        ({"channels": [{"adapter": "openai"}, {}]}, 'expected an object with "adapter"'),
        ({"adapter": "openai", "channels": [{}, {"adapter": "nope"}]}, "there is no adapter 'nope'"),
    ]
    for entry, told in rows:
        message = refusal("operator", entry)
        assert told in message
        assert "hush" not in message
    with pytest.raises(Misconfigured, match=r"the operator's setting extensions.tavern-llm.models: expected an object"):
        read_models({"operator": ["openai"]})
