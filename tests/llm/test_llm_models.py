"""Which models are set up, and what a project may not set up."""

from __future__ import annotations

from typing import Any

import pytest

from tavern_host.contracts.errors import Misconfigured
from tavern_host.contracts.llm import LlmAdapterInfo
from tavern_llm.models import check_setup, read_models

ADAPTERS: dict[str, LlmAdapterInfo | list[str]] = {
    "openai": LlmAdapterInfo(name="openai", handler="x:Y"),
    "scripted": LlmAdapterInfo(name="scripted", handler="x:Z", network=False),
    "twice": ["acme", "zenith"],
}


def refusal(layer: str, entry: Any) -> str:
    with pytest.raises(Misconfigured) as caught:
        check_setup(read_models({layer: {"m": entry}})["m"], ADAPTERS)
    return caught.value.message


@pytest.mark.parametrize("layer", ["operator", "environment"])
def test_the_operator_and_the_environment_may_reach_the_network(layer: str) -> None:
    entry = {"adapter": "openai", "api_key": "k"}
    check_setup(read_models({layer: {"m": entry}})["m"], ADAPTERS)


def test_a_project_may_use_an_adapter_that_stays_on_the_machine() -> None:
    check_setup(read_models({"project": {"m": {"adapter": "scripted"}}})["m"], ADAPTERS)


def test_a_project_may_not_reach_the_network() -> None:
    assert refusal("project", {"adapter": "openai", "base_url": "http://evil"}) == (
        "the model 'm' in the project's setting extensions.tavern-llm.models: the adapter 'openai' reaches the "
        "network, which only the operator's settings (host.yaml) or the environment may set up; a project may use "
        "scripted"
    )


def test_a_layer_that_nobody_knows_is_not_trusted() -> None:
    assert "reaches the network" in refusal("somewhere", {"adapter": "openai"})


@pytest.mark.parametrize("key", ["api_key", "api_key_env"])
def test_a_project_may_not_give_or_name_a_key(key: str) -> None:
    message = refusal("project", {"adapter": "scripted", key: "HUSH"})
    assert f"a project may not give {key}; API keys belong in the operator's settings" in message
    assert "HUSH" not in message


@pytest.mark.parametrize("entry", ["openai", None, {}, {"adapter": 3}])
def test_an_entry_without_an_adapter_is_told(entry: Any) -> None:
    assert 'expected an object with "adapter"' in refusal("operator", entry)


def test_an_unknown_adapter_is_told_with_those_there_are() -> None:
    assert "there is no adapter 'opanai'; there is openai, scripted, twice" in refusal(
        "operator", {"adapter": "opanai"}
    )


def test_a_layer_that_is_no_object_is_an_error() -> None:
    with pytest.raises(Misconfigured, match=r"the operator's setting extensions.tavern-llm.models: expected an object"):
        read_models({"operator": ["openai"]})


def test_a_setup_does_not_show_its_key() -> None:
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
    for given, expected in rows:
        assert channels({**given, "concurrency": 3, "price_input": 1}) == expected


def test_what_is_wrong_with_an_entry_is_told_without_its_values() -> None:
    rows: list[tuple[Any, str]] = [
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


def test_a_project_may_not_hide_a_key_in_a_channel() -> None:
    for entry in ({"channels": [{}, {"api_key": "HUSH"}]}, {"channels": [{"api_key_env": ["HUSH"]}]}):
        message = refusal("project", {"adapter": "scripted", **entry})
        assert "API keys belong in the operator's settings" in message
        assert "HUSH" not in message
