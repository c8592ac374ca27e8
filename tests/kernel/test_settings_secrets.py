"""Secrets among saved settings: encrypted in the file, unset where the key is lost, never shown, never a crash."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import repetitions
from hypothesis import given, settings
from hypothesis import strategies as st
from settings_maker import file_in, full, manifest_with, store_with

from tavern_host.contracts.errors import Misconfigured
from tavern_host.contracts.settings import MASK, SettingItem
from tavern_host.settings.redaction import MaskedValue, masked, unmasked
from tavern_host.settings.secrets import SecretBox

TOKEN = "extensions.acme.token"
ACME = manifest_with({"key": "token", "type": "password"}, {"key": "models", "type": "json", "secretKeys": ["api_key"]})
MODELS = SettingItem.model_validate(
    {"key": "extensions.acme.models", "type": "json", "label": "M", "secretKeys": ["api_key"]}
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("api_key"), inner, max_size=3)
    ),
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


async def test_all_projects_share_the_key(tmp_path: Path) -> None:
    await saved_token(tmp_path)
    key = (tmp_path / "secret.key").read_bytes()
    other = file_in(tmp_path, "other")
    async with other.locked():
        other.write(other.read().changed({TOKEN: "swordfish"}, [TOKEN], other.box))
    assert (tmp_path / "secret.key").read_bytes() == key
    assert token_in(tmp_path) == "hunter2"


def test_concurrent_processes_make_one_key(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tavern_host.settings.secrets import SecretBox\n"
        "sys.stdin.readline(); print(SecretBox(Path(sys.argv[1])).encrypt('x', sys.argv[2]))"
    )
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    for maker in makers:  # all have been started: let them go
        maker.stdin.write("\n")
        maker.stdin.flush()
    tokens = [maker.communicate(timeout=60)[0].strip() for maker in makers]
    assert [SecretBox(tmp_path).decrypt("x", token) for token in tokens] == ["0", "1", "2", "3"]
    assert [path.name for path in tmp_path.iterdir()] == ["secret.key"]


async def test_a_lost_key_unsets_its_secrets(tmp_path: Path) -> None:
    await saved_token(tmp_path)
    (tmp_path / "secret.key").unlink()
    assert token_in(tmp_path) is None
    assert problems_in(tmp_path) == [
        f"the saved secret '{TOKEN}' cannot be used: the key {tmp_path}/secret.key is missing "
        f"(save it again with `tavern settings set {TOKEN} --stdin`)"
    ]


async def test_a_restored_key_counts_at_once(tmp_path: Path) -> None:
    await saved_token(tmp_path)
    (tmp_path / "secret.key").rename(tmp_path / "away")
    assert token_in(tmp_path) is None
    (tmp_path / "away").rename(tmp_path / "secret.key")
    assert token_in(tmp_path) == "hunter2"


async def test_another_key_unsets_saved_secrets(tmp_path: Path) -> None:
    await saved_token(tmp_path)
    (tmp_path / "secret.key").unlink()
    SecretBox(tmp_path).encrypt("anything", "makes a new key")
    (problem,) = problems_in(tmp_path)
    assert "it was saved with another key than that in" in problem
    assert token_in(tmp_path) is None

    await saved_token(tmp_path, "swordfish")
    assert token_in(tmp_path) == "swordfish"
    assert problems_in(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is no key"),
        (b"x" * 44, "it is no key"),
        (b"\xff" * 44, "it is no key"),
        (b"x" * 100_000, "it is no key"),
    ],
)
async def test_a_damaged_key_is_told_and_never_replaced(tmp_path: Path, content: bytes, why: str) -> None:
    await saved_token(tmp_path)
    (tmp_path / "secret.key").write_bytes(content)
    (problem,) = problems_in(tmp_path)
    assert f"the key {tmp_path}/secret.key cannot be used: {why}" in problem
    with pytest.raises(Misconfigured, match="cannot be used"):
        await saved_token(tmp_path, "swordfish")
    assert (tmp_path / "secret.key").read_bytes() == content


async def test_a_world_readable_key_is_not_used(tmp_path: Path) -> None:
    await saved_token(tmp_path)
    (tmp_path / "secret.key").chmod(0o644)
    (problem,) = problems_in(tmp_path)
    assert f"every user can read or write it; `chmod 600 {tmp_path}/secret.key`" in problem
    assert token_in(tmp_path) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
async def test_a_key_of_another_user_is_not_used(tmp_path: Path) -> None:
    await saved_token(tmp_path)
    os.chown(tmp_path / "secret.key", 12345, 12345)
    (problem,) = problems_in(tmp_path)
    assert "it belongs to another user" in problem


@pytest.mark.parametrize("kind", ["folder", "pipe", "link to nothing", "link to itself"])
async def test_a_key_that_is_no_file_is_told(tmp_path: Path, kind: str) -> None:
    await saved_token(tmp_path)
    key = tmp_path / "secret.key"
    key.unlink()
    {
        "folder": key.mkdir,
        "pipe": lambda: os.mkfifo(key),
        "link to nothing": lambda: key.symlink_to(tmp_path / "nothing"),
        "link to itself": lambda: key.symlink_to(key),
    }[kind]()
    (problem,) = problems_in(tmp_path)
    assert str(key) in problem
    with pytest.raises(Misconfigured):
        await saved_token(tmp_path)


async def test_secrets_copied_to_another_setting_are_refused(tmp_path: Path) -> None:
    await saved_token(tmp_path)
    file = tmp_path / "projects" / "p" / "settings.json"
    content = json.loads(file.read_text())
    content["secrets"]["extensions.acme.models"] = content["secrets"][TOKEN]
    file.write_text(json.dumps(content))
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


async def test_former_secrets_are_not_shown(tmp_path: Path) -> None:
    await saved_token(tmp_path)
    plain = manifest_with({"key": "token", "type": "string"})
    store = store_with(tmp_path)
    assert store.of(plain).get("token") is None
    (problem,) = store.problems(plain)
    assert "the plugin does not declare it as a secret any more" in problem.message


async def test_unfit_secrets_are_left_out_unseen(tmp_path: Path) -> None:
    await saved_token(tmp_path)
    number = manifest_with({"key": "token", "type": "number", "secret": True})
    (problem,) = store_with(tmp_path).problems(number)
    assert problem.message == f"the saved secret '{TOKEN}' cannot be used: it must be a number"


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


def test_encryption_is_imported_only_for_secrets(tmp_path: Path) -> None:
    code = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from settings_maker import manifest_with, store_with
acme = manifest_with({"key": "size", "type": "number"}, {"key": "token", "type": "password"})
store = store_with(Path(sys.argv[1]), environment={"extensions.acme.token": "e"})
asyncio.run(store.save({"extensions.acme.size": 5}))
assert store.of(acme).get("size") == 5 and store.problems(acme) == []
print("cryptography" in sys.modules)
asyncio.run(store.save({"extensions.acme.token": "x"}, encrypted=["extensions.acme.token"]))
print("cryptography" in sys.modules)
"""
    here = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", code, tmp_path, here], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["False", "True"], done.stderr


# --- masks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "current"),
    [
        ({"a": {"api_key": MASK}}, {"b": {"api_key": "k"}}),
        ({"a": {"api_key": MASK}}, {"a": {"api_key": ""}}),
        ({"a": {"api_key": MASK}}, None),
        ([{"api_key": MASK, "url": "new"}], [{"api_key": "k", "url": "old"}]),
        ([{"api_key": MASK}, {"api_key": MASK}], [{"api_key": "k"}]),
    ],
)
def test_masks_without_a_secret_are_refused(value: Any, current: Any) -> None:
    with pytest.raises(MaskedValue, match="give the secret itself"):
        unmasked(MODELS, value, current)


@given(value=JSON)
def test_masked_values_come_back_unmasked(value: Any) -> None:
    assert unmasked(MODELS, masked(MODELS, value), value) == value
