"""`tavern models …`: from nothing set up to an answer. The server is on a thread: commands have a loop of theirs."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import Ran, tavern
from helpers.model_server import ModelServer, model_server, says
from helpers.repetition import Failures
from helpers.screen import on_screen

KEY = "sk-very-secret"


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    """Run a server on a thread of its own."""
    with_server: list[ModelServer] = []
    is_up, is_over = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def run() -> None:
        async with model_server(key=KEY, models=["large-model", "tiny"], default=says("Hello, traveller.")) as running:
            with_server.append(running)
            is_up.set()
            await is_over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    assert is_up.wait(60)
    yield with_server[0]
    loop.call_soon_threadsafe(is_over.set)
    thread.join()
    loop.close()


@pytest.fixture
def inn(tmp_path: Path) -> Path:
    folder = tmp_path / "inn"
    folder.mkdir()
    (folder / "tavern.yaml").write_text("name: Inn\n")
    return folder


def models(project: Path, *arguments: str, **more: Any) -> Ran:
    return tavern("models", *arguments, cwd=project, **more)


def listed(project: Path) -> dict[str, dict[str, Any]]:
    ran = models(project, "list", "--json")
    assert ran.code == 0, ran
    return {model["name"]: model for model in ran.json()["models"]}


def add(project: Path, name: str, server: ModelServer, *more: str, model: str = "tiny", key: str = KEY) -> Ran:
    return models(project, "add", name, "--url", server.base_url, "--key", key, "--model", model, *more)


def in_project(inn: Path, name: str) -> None:
    """Let the project have a model of its own, which plays a file."""
    (inn / "replies.yaml").write_text("- reply: I play.\n")
    setup = json.dumps({name: {"adapter": "scripted", "file": "replies.yaml"}})
    (inn / "tavern.yaml").write_text(f"settings:\n  extensions.tavern-llm.models: {setup}\n")


def test_one_command_leads_from_nothing_to_an_answer(inn: Path, operator_folders: Path, server: ModelServer) -> None:
    lost = '{"extensions.tavern-llm.models": {"lost": {"alias": "nobody"}}}'
    nothing = models(inn, "list", TAVERN_SETTINGS=lost)
    assert "no language model is set up; `tavern models add NAME --url" in nothing.out
    assert "the alias 'lost' stands for 'nobody'" in nothing.err
    failed = models(inn, "test")
    assert (failed.code, "`tavern models add NAME --url" in failed.error) == (2, True)
    added = add(inn, "mine", server)
    assert added.code == 0, added
    assert added.out.splitlines() == [
        f"mine is set up: tiny at {server.base_url}, as the default.",
        "It says: Hello, traveller.",
    ]
    tested = models(inn, "test")
    assert (tested.code, "mine (openai, default) answered in " in tested.out) == (0, True), tested
    assert "10 + 5 tokens: Hello, traveller." in tested.out

    seen = [added.out, added.err, tested.out, tavern("settings", "list", "tavern-llm", cwd=inn).out]
    files = [path for folder in (operator_folders, inn) for path in folder.rglob("*") if path.is_file()]
    written = [path.read_bytes().decode("utf-8", "replace") for path in files]
    assert [text for text in seen + written if KEY in text] == []


def test_further_models_are_added_beside_the_first(
    inn: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INN_KEY", KEY)
    url, root = server.base_url, server.base_url.removesuffix("/v1")
    in_project(inn, "parrot")
    parrot = listed(inn)["parrot"]
    assert (parrot["adapter"], parrot["isDefault"], parrot["isScripted"]) == ("scripted", True, True)
    assert "scripted: plays replies from a file" in models(inn, "list").out
    first = models(inn, "add", "first", "--url", root, "--key", "-", "--model", "tiny", "--json", stdin=f"{KEY}\n")
    assert first.code == 0, first
    answer = first.json()
    assert (answer["baseUrl"], answer["model"], answer["isDefault"]) == (url, "tiny", True)
    second = models(inn, "add", "second", "--url", url, "--key-env", "INN_KEY", "--model", "large-model").out
    assert "second is set up: large-model" in second
    assert "; `tavern models default second` makes it the default." in second
    assert models(inn, "default", "second").out == "second is the default model.\n"
    found = listed(inn)
    assert sorted(found) == ["first", "parrot", "second"]
    assert [name for name, model in found.items() if model.get("isDefault")] == ["second"]
    ran = models(inn, "default", "first", TAVERN_SETTINGS='{"extensions.tavern-llm.defaultModel": "parrot"}')
    assert "the environment (TAVERN_SETTINGS) sets 'parrot', which stays in force" in ran.out
    refused = models(inn, "default", "third")
    assert refused.error.endswith("no language model 'third' (there is first, parrot, second)")
    assert refused.code == 2
    assert models(inn, "test", "parrot").out.startswith("parrot (scripted: plays replies from a file) answered in ")
    taken = add(inn, "first", server)
    assert (taken.code, "there is a model 'first' already; --replace replaces it" in taken.error) == (2, True)
    assert add(inn, "first", server, "--replace", model="large-model").code == 0


def test_saved_keys_are_masked_kept_and_removed(inn: Path, server: ModelServer) -> None:
    def settings(*words: str, stdin: str = "") -> Ran:
        return tavern("settings", words[0], "tavern-llm.models", *words[1:], cwd=inn, stdin=stdin)

    one = {"adapter": "openai", "base_url": server.base_url, "model": "tiny"}
    channels = {"adapter": "openai", "model": "tiny", "channels": [{"base_url": server.base_url, "api_key": KEY}]}
    saved = {"keyed": {**one, "api_key": [KEY, "sk-other"]}, "channels": channels, "fast": {"alias": "mine"}}
    assert settings("set", "--stdin", stdin=json.dumps({**saved, "mine": one})).code == 0
    shown = settings("get")
    assert ("sk-" in shown.out, "********" in shown.out) == (False, True)
    assert settings("set", "--stdin", stdin=shown.out).code == 0
    for name in ("keyed", "channels"):
        tested = models(inn, "test", name)
        assert (tested.code, "Hello, traveller." in tested.out) == (0, True), tested

    in_project(inn, "mine")
    assert models(inn, "remove", "keyed").out == "keyed is removed.\n"
    assert models(inn, "remove", "channels").code == 0
    shown = settings("get")
    assert ("keyed" in shown.out, "***" in shown.out) == (False, False)
    assert models(inn, "remove", "keyed").error == "Error: there is no language model 'keyed' (there is fast, mine)"
    assert models(inn, "default", "mine").code == 0
    ran = models(inn, "remove", "mine", "--json")
    assert (ran.code, ran.json()) == (0, {"name": "mine", "wasDefault": True})
    assert listed(inn)["mine"]["isScripted"] is True, "the project's own of this name"
    assert models(inn, "remove", "fast", "--project", str(inn)).out == "fast is removed.\n"
    hidden = models(inn, "remove", "mine")
    told = "Error: 'mine' stands in the project's settings, not in yours: take it out there"
    assert (hidden.code, hidden.error) == (2, told)


def test_a_server_that_lists_nothing_is_tried(inn: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "lists", False)
    unnamed = models(inn, "add", "mine", "--url", server.base_url, "--key", KEY)
    assert "knows no such model or address" in unnamed.error
    assert "There is no model huge." in add(inn, "mine", server, model="huge").error
    assert add(inn, "mine", server).code == 0


def test_a_person_chooses_among_the_models(inn: Path, server: ModelServer) -> None:
    words = ("models", "add", "mine", "--url", server.base_url, "--key", KEY, "--project", inn)
    code, screen, _ = on_screen(*words, typed="2\n", columns=200)
    assert (code, "mine is set up: tiny at" in screen.text) == (0, True), screen.text
    assert "   1  large-model\n   2  tiny\nWhich one? Number or name: " in screen.text


KEYED, LISTED = ("--url", "{url}", "--key", KEY), "it has large-model, tiny"
WRONG: list[tuple[tuple[str, ...], int, str]] = [
    (("--url", "{url}", "--key", "sk-wrong", "--model", "tiny"), 1, "refuses the API key (401)"),
    (("--url", "{url}"), 1, "Error: the server at {root} wants an API key (401)"),
    (("--url", "{url}", "--key-env", "NO_KEY"), 2, "variable NO_KEY, named by --key-env"),
    ((*KEYED, "--key-env", "X"), 2, "give --key or --key-env, not both"),
    (("--url", "http://127.0.0.1:1/v1", "--key", KEY), 1, "cannot be reached: Connection refused; does it run"),
    (("--key", KEY), 2, "--url is missing: the server's address"),
    (("--url", "ftp://example.com"), 2, "--url: must be an address such as https://api.example.com/v1"),
    (("--url", "http://a:{key}@x.com"), 2, "--url: must not hold credentials; use --key or --key-env"),
    (("--url", "{root}/v2", "--key", KEY), 1, "knows no such model or address; check the address"),
    ((*KEYED, "--model", "tny"), 2, f"the server has no model 'tny' (did you mean tiny?); {LISTED}"),
    (KEYED, 2, "2 models; name one with --model: large-model, tiny"),
    (("--adapter", "scripted"), 2, "the options of the adapter 'scripted': file: field required"),
    (
        ("--adapter", "opnai"),
        2,
        "no adapter 'opnai'; there is anthropic, gemini, openai, openai-responses, scripted",
    ),
]


def test_what_is_wrong_is_told_and_nothing_saved(inn: Path, server: ModelServer) -> None:
    root = server.base_url.removesuffix("/v1")
    with Failures() as failures:
        for arguments, code, told in WRONG:
            with failures.row(told):
                options = [argument.format(url=server.base_url, root=root, key=KEY) for argument in arguments]
                ran = models(inn, "add", "mine", *options)
                assert (ran.code, told.format(root=root) in ran.error, KEY in ran.err) == (code, True, False), ran
        for words, told in (
            (("add", "my model", "--url", server.base_url), "is no name for a model"),
            (("default", "mine"), "no language model is set up"),
        ):
            with failures.row(told):
                ran = models(inn, *words)
                assert (ran.code, told in ran.error) == (2, True), ran
    assert listed(inn) == {}
