"""Secrets among saved settings: encrypted in the file, unset where the key is lost, never shown, never a crash."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures, repetitions
from helpers.systems import on_linux
from hypothesis import given, settings
from hypothesis import strategies as st
from settings_maker import full, manifest_with, store_with

from tavern_host.contracts.errors import Misconfigured
from tavern_host.contracts.settings import MASK, SettingItem
from tavern_host.settings.redaction import MaskedValue, masked, unmasked
from tavern_host.settings.secrets import SecretBox

TOKEN = "extensions.acme.token"
ACME = manifest_with({"key": "token", "type": "password"}, {"key": "models", "type": "json", "secretKeys": ["api_key"]})
MODELS = SettingItem.model_validate(
    {"key": "extensions.acme.models", "type": "json", "label": "M", "secretKeys": ["api_key"]}
)
PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
KEYS = st.text(max_size=5) | st.just("api_key")
JSON = st.recursive(
    PLAIN | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


async def saved_token(state: Path, value: str = "hunter2") -> None:
    await store_with(state).save({TOKEN: value}, encrypted=[TOKEN])


def problems_in(state: Path) -> list[str]:
    return [str(problem) for problem in store_with(state).problems(ACME)]


def token_in(state: Path) -> Any:
    return store_with(state).of(ACME).get("token")


# --- the key --------------------------------------------------------------------------------------------


async def test_secrets_are_saved_encrypted(tmp_path: Path) -> None:
    await saved_token(tmp_path)

    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [file for file in files if b"hunter2" in file.read_bytes()] == []
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert (tmp_path / "secret.key").is_file()
    assert token_in(tmp_path) == "hunter2"


async def test_another_key_unsets_saved_secrets(tmp_path: Path) -> None:
    await saved_token(tmp_path)
    key = tmp_path / "secret.key"
    key.rename(tmp_path / "away")
    assert token_in(tmp_path) is None
    assert problems_in(tmp_path) == [
        f"the saved secret '{TOKEN}' cannot be used: the key {key} is missing "
        f"(save it again with `tavern settings set {TOKEN} --stdin`)"
    ]
    SecretBox(tmp_path).encrypt("anything", "makes a new key")
    (problem,) = problems_in(tmp_path)
    assert "it was saved with another key than that in" in problem
    assert token_in(tmp_path) is None
    (tmp_path / "away").rename(key)
    assert token_in(tmp_path) == "hunter2", "a restored key counts at once"
    key.unlink()
    await saved_token(tmp_path, "swordfish")
    assert (token_in(tmp_path), problems_in(tmp_path)) == ("swordfish", [])


def unusable_keys(key: Path) -> Iterator[tuple[Callable[[], object], str]]:
    """Yield ways to make a key unusable, and the message of each."""
    for content in (b"", b"x" * 44, b"\xff" * 44, b"x" * 100_000):
        yield lambda content=content: key.write_bytes(content), f"the key {key} cannot be used: it is no key"
    yield lambda: key.chmod(0o644), f"every user can read or write it; `chmod 600 {key}`"
    if os.geteuid() == 0:
        yield lambda: os.chown(key, 12345, 12345), "it belongs to another user"
    yield lambda: (key.unlink(), key.mkdir()), str(key)
    yield lambda: (key.unlink(), os.mkfifo(key)), str(key)
    yield lambda: (key.unlink(), key.symlink_to(key.parent / "nothing")), str(key)
    yield lambda: (key.unlink(), key.symlink_to(key)), str(key)


@on_linux
async def test_an_unusable_key_is_told_and_never_replaced(tmp_path: Path) -> None:
    with Failures() as failures:
        for number in range(len([*unusable_keys(tmp_path)])):
            state = tmp_path / f"{number}"
            await saved_token(state)
            spoil, told = [*unusable_keys(state / "secret.key")][number]
            spoil()
            with failures.row((number, told)):
                before = (state / "secret.key").lstat()
                (problem,) = problems_in(state)
                assert told in problem
                assert token_in(state) is None
                with pytest.raises(Misconfigured, match=str(state)):
                    await saved_token(state, "swordfish")
                assert (state / "secret.key").lstat().st_mtime_ns == before.st_mtime_ns


async def test_secrets_copied_to_another_setting_are_refused(tmp_path: Path) -> None:
    await saved_token(tmp_path)
    file = tmp_path / "projects" / "p" / "settings.json"
    file.write_text(file.read_text().replace(TOKEN, "extensions.acme.models"))
    (problem,) = problems_in(tmp_path)
    assert "the saved secret 'extensions.acme.models' cannot be used: it was saved for another setting" in problem


# --- what a plugin makes of it ----------------------------------------------------------------------------


def test_a_project_holds_no_secrets(tmp_path: Path) -> None:
    store = store_with(project=full({"token": "hunter2"}))
    assert store.of(ACME).get("token") is None
    (problem,) = store.problems(ACME)
    assert str(problem) == (
        f"the project's setting '{TOKEN}' is a secret, and a project holds none "
        f"(take it out of tavern.yaml, and save it with `tavern settings set {TOKEN} --stdin`)"
    )


def test_operator_and_environment_may_hold_secrets() -> None:
    store = store_with(operator=full({"token": "o"}), environment=full({"token": "e"}))
    assert store.of(ACME).layers("token") == {"operator": "o", "environment": "e"}
    assert store.problems(ACME) == []


async def test_secrets_of_another_declaration_are_not_shown(tmp_path: Path) -> None:
    await saved_token(tmp_path)
    store = store_with(tmp_path)
    for option, told in (
        ({"type": "string"}, "the plugin does not declare it as a secret any more"),
        ({"type": "number", "secret": True}, "it must be a number"),
    ):
        declared = manifest_with({"key": "token", **option})
        (problem,) = store.problems(declared)
        assert problem.message.endswith(told) and "hunter2" not in str(problem)
        assert store.of(declared).get("token") is None


async def test_the_same_secret_saved_again_changes_nothing(tmp_path: Path) -> None:
    await saved_token(tmp_path)
    before = (tmp_path / "projects" / "p" / "settings.json").read_bytes()
    mine, changed = await store_with(tmp_path).save({TOKEN: "hunter2"}, encrypted=[TOKEN])
    assert (mine, changed) == ([], {})
    assert (tmp_path / "projects" / "p" / "settings.json").read_bytes() == before


@settings(max_examples=repetitions(15, 50), deadline=None)
@given(value=JSON, name=st.text())
def test_every_value_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, value: Any, name: str) -> None:
    box = SecretBox(tmp_path_factory.getbasetemp() / "keys")
    assert json.dumps(box.decrypt(name, box.encrypt(name, value))) == json.dumps(value)


# --- masks ------------------------------------------------------------------------------------------------


def test_masks_without_a_secret_are_refused() -> None:
    mask = {"api_key": MASK}
    with Failures() as failures:
        for value, current in (
            ({"a": mask}, {"b": {"api_key": "k"}}),
            ({"a": mask}, {"a": {"api_key": ""}}),
            ({"a": mask}, None),
            ([{**mask, "url": "new"}], [{"api_key": "k", "url": "old"}]),
            ([mask, mask], [{"api_key": "k"}]),
        ):
            with failures.row(value), pytest.raises(MaskedValue, match="give the secret itself"):
                unmasked(MODELS, value, current)


@given(value=JSON)
def test_masked_values_come_back_unmasked(value: Any) -> None:
    assert unmasked(MODELS, masked(MODELS, value), value) == value
