"""The loaders: what they read from the project's `files/` folder, and what they never read."""

from __future__ import annotations

import base64
import json
import os
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures
from node_bench import HostedNodes

from tavern_host import InvalidInput, NotFound
from tavern_nodes.cards import read_card_file

CARD = {"name": "Ann", "description": "An innkeeper.", "first_mes": "Welcome!"}
CARD_V2 = {"spec": "chara_card_v2", "spec_version": "2.0", "data": {**CARD, "tags": ["inn"], "extensions": {"x": 1}}}
CARD_V3 = {"spec": "chara_card_v3", "spec_version": "3.0", "data": {**CARD, "name": "Ann the Third", "nickname": "A"}}

on_module_loop = pytest.mark.asyncio(loop_scope="module")
LOADERS = {
    "PresetLoader": ("presetResource", "presetData"),
    "WorldBookLoader": ("worldBookResource", "worldBookData"),
    "CharacterCardLoader": ("cardResource", "characterData"),
    "HistoryLoader": ("historyResource", "historyMessages"),
    "RegexRuleLoader": ("ruleResource", "regexRules"),
}


async def load(hosted: HostedNodes, type: str, path: Any) -> Any:
    key, output = LOADERS[type]
    return (await hosted.run(type, config={key: path}))[output]


async def failure(hosted: HostedNodes, type: str, path: Any) -> str:
    with pytest.raises((InvalidInput, NotFound)) as caught:
        await load(hosted, type, path)
    return caught.value.message


def png(*chunks: tuple[bytes, bytes]) -> bytes:
    """Return a picture of these chunks; what a picture shows is of no interest here."""
    data = b"\x89PNG\r\n\x1a\n"
    for kind, content in (*chunks, (b"IEND", b"")):
        check = zlib.crc32(kind + content).to_bytes(4, "big")
        data += len(content).to_bytes(4, "big") + kind + content + check
    return data


def coded(card: Any) -> bytes:
    return base64.b64encode(json.dumps(card).encode())


# --- what they give -----------------------------------------------------------------------------------------


PRESET = {"temperature": 1.1, "prompts": [{"identifier": "main", "content": "Write.", "role": "system"}]}
MESSAGES = [{"role": "user", "content": "hi", "id": "m1"}]
FILES: list[tuple[str, str, str, Any]] = [
    ("PresetLoader", "presets/mine.json", json.dumps(PRESET), PRESET),
    ("WorldBookLoader", "world.json", '\ufeff{"entries": {"0": {"key": ["inn"], "content": "The inn burns."}}}',
        {"entries": {"0": {"key": ["inn"], "content": "The inn burns."}}}),
    ("WorldBookLoader", "world.yaml", "- keys: [inn]\n  content: The inn burns.\n  insertion_order: 3\n",
        {"entries": [{"keys": ["inn"], "content": "The inn burns.", "insertion_order": 3}]}),
    ("WorldBookLoader", "world.yml", "entries:\n  0: {key: [inn], content: 2024-01-01}\n",
        {"entries": {"0": {"key": ["inn"], "content": "2024-01-01"}}}),
    ("HistoryLoader", "chat.json", json.dumps(MESSAGES), MESSAGES),
    ("HistoryLoader", "./chat2.json", json.dumps({"messages": MESSAGES}), MESSAGES),
    ("RegexRuleLoader", "rules.yaml",
        "rules:\n- {name: x, pattern: /a/i, replacement: b}\n- {findRegex: c, disabled: true}\n",
        [{"name": "x", "pattern": "a", "replacement": "b", "flags": "i", "enabled": True},
            {"name": "", "pattern": "c", "replacement": "", "flags": "", "enabled": False}]),
]  # fmt: skip


@on_module_loop
async def test_files_are_given_in_one_form(hosted: HostedNodes) -> None:
    with Failures() as failures:
        for type, name, text, expected in FILES:
            with failures.row((type, name)):
                hosted.write(name, text)
                assert await load(hosted, type, name) == expected


@on_module_loop
async def test_a_card_of_any_version_has_one_form(hosted: HostedNodes) -> None:
    rows: list[Any] = [
        (json.dumps(CARD).encode(), "Ann", "chara_card_v1"),
        (json.dumps(CARD_V2).encode(), "Ann", "chara_card_v2"),
        (json.dumps(CARD_V3).encode(), "Ann the Third", "chara_card_v3"),
        (png((b"IHDR", b"0" * 13), (b"tEXt", b"chara\0" + coded(CARD_V2))), "Ann", "chara_card_v2"),
        (png((b"tEXt", b"Chara\0" + coded(CARD))), "Ann", "chara_card_v1"),
        (png((b"zTXt", b"chara\0\0" + zlib.compress(coded(CARD_V2)))), "Ann", "chara_card_v2"),
        (png((b"iTXt", b"chara\0\0\0en\0k\0" + coded(CARD_V2))), "Ann", "chara_card_v2"),
        (png((b"iTXt", b"chara\0\1\0\0\0" + zlib.compress(json.dumps(CARD_V2).encode()))), "Ann", "chara_card_v2"),
        (png((b"tEXt", b"chara\0" + coded(CARD_V2)), (b"tEXt", b"ccv3\0" + coded(CARD_V3))), "Ann the Third",
            "chara_card_v3"),
    ]  # fmt: skip
    with Failures() as failures:
        for content, name, spec in rows:
            with failures.row((content, name)):
                hosted.write("card", content)
                card = await load(hosted, "CharacterCardLoader", "card")
                assert (card["name"], card["spec"], card["description"]) == (name, spec, "An innkeeper.")
                assert (card["personality"], card["alternate_greetings"]) == ("", [])
                assert card.get("extensions") == ({"x": 1} if spec == "chara_card_v2" else None)


# --- what they do not read ----------------------------------------------------------------------------------


@on_module_loop
async def test_nothing_but_a_file_of_the_project_is_read(hosted: HostedNodes, tmp_path: Path) -> None:
    rows: list[Any] = [
        ("", "no file is chosen; name one by its path in the project's files/ folder"),
        (None, "no file is chosen; name one by its path in the project's files/ folder"),
        (3, "the path must be text, not a number"),
        ("none.json", "'none.json' is not in the project's files/ folder"),
        ("../tavern.yaml", "'../tavern.yaml' leads out of the project's files/ folder; name a file by its path in "
            "there"),
        ("/etc/passwd", "'/etc/passwd' leads out of the project's files/ folder; name a file by its path in there"),
        ("folder", "'folder' cannot be used: it is a folder, not a file"),
        ("link.json", "'link.json' cannot be used: the way to it leads over a link or a file, and links are not "
            "followed"),
        ("away/passwd", "'away/passwd' cannot be used: the way to it leads over a link or a file, and links are not "
            "followed"),
        ("pipe", "'pipe' cannot be used: it is not a file; links and devices are not used"),
    ]  # fmt: skip
    outside = tmp_path / "secret.json"
    outside.write_text("{}", encoding="utf-8")
    (hosted.files / "folder").mkdir(parents=True)
    (hosted.files / "link.json").symlink_to(outside)
    (hosted.files / "away").symlink_to("/etc")
    os.mkfifo(hosted.files / "pipe")
    with Failures() as failures:
        for path, message in rows:
            for type in LOADERS:
                with failures.row((path, message)):
                    assert await failure(hosted, type, path) == f"{type}: {message}"


@on_module_loop
async def test_a_file_that_is_too_large_is_not_read(hosted: HostedNodes) -> None:
    with hosted.write("big.json", "").open("wb") as file:
        file.truncate(17 << 20)
    assert await failure(hosted, "HistoryLoader", "big.json") == (
        "HistoryLoader: 'big.json' is larger than 16,777,216 bytes"
    )


@on_module_loop
async def test_what_is_wrong_with_a_file_is_told_in_one_line(hosted: HostedNodes) -> None:
    rows: list[Any] = [
        ("PresetLoader", b"[1]", "'f' must hold an object, not a list"),
        ("PresetLoader", b"\xff", "'f' is not UTF-8 text (byte 0)"),
        ("PresetLoader", b'{"prompts": 3}', "'f'.prompts: expected a list of objects"),
        ("PresetLoader", b"{,}", "'f' is not JSON: Expecting property name enclosed in double quotes at line 1, "
            "column 2"),
        ("PresetLoader", b'{"temperature": NaN}', "'f' holds a number that is not finite or too large"),
        ("PresetLoader", b'{"n": ' + b"9" * 5000 + b"}", "'f' holds a number with too many digits"),
        ("HistoryLoader", b'[{"role": "x"}]', "'f'[0].role: expected one of system, user, assistant, tool, not 'x'"),
        ("WorldBookLoader", b"a: &x [1]\nb: *x\n", "'f': references such as *x are not read; write the part out"),
        ("WorldBookLoader", b"a: !!python/name:os.system x", "'f': tags such as tag:yaml.org,2002:python/name:os."
            "system are not read"),
        ("WorldBookLoader", b"{entries: " + b"[" * 200 + b"]" * 200 + b"}", "'f' is nested more than 100 deep"),
        ("WorldBookLoader", b"entries: 3", "'f': a world book needs entries, a list or an object"),
        ("WorldBookLoader", b"entries: [{keys: [/(/], content: a}]", "'f'.entries[0]: the key '(' is no regular "
            "expression: a group is opened with ( and not closed"),
        ("RegexRuleLoader", b"- {name: x, pattern: '('}", "'f': the pattern '(' of the rule 'x' is wrong: a group is "
            "opened with ( and not closed"),
        ("CharacterCardLoader", b"{}", "'f': this is no character card; it has no name, description or other field of "
            "one"),
        ("CharacterCardLoader", b'{"name": "a", "description": 3}', "'f': the card's description must be text, not a "
            "number"),
        ("CharacterCardLoader", png(), "'f': this picture holds no character card (no text ccv3 or chara)"),
        ("CharacterCardLoader", png((b"tEXt", b"chara\0!!!!!")), "'f': the card in the picture is not JSON: Expecting "
            "value at line 1, column 1"),
        ("CharacterCardLoader", png((b"tEXt", b"chara\0abc"))[:24], "'f': the picture breaks off in the middle"),
        ("CharacterCardLoader", png((b"zTXt", b"chara\0\0abc")), "'f': a compressed text in the picture is damaged"),
        ("CharacterCardLoader", png((b"zTXt", b"chara\0\0" + zlib.compress(b"a" * 50_000_000))),
            "'f': a compressed text in the picture is too large"),
    ]  # fmt: skip
    with Failures() as failures:
        for type, content, message in rows:
            with failures.row((type, content)):
                hosted.write("f", content)
                assert await failure(hosted, type, "f") == f"{type}: {message}"


@on_module_loop
async def test_what_is_no_yaml_is_told_with_its_line(hosted: HostedNodes) -> None:
    hosted.write("f", "a: 1\nb: [")
    message = await failure(hosted, "WorldBookLoader", "f")
    assert re.fullmatch(r"WorldBookLoader: 'f' is not YAML: .* at line [23], column \d", message)


def test_a_picture_that_is_cut_off_anywhere_is_refused() -> None:
    with Failures() as failures:
        for cut in range(0, 120, 3):
            with failures.row(cut):
                whole = png((b"tEXt", b"chara\0" + coded(CARD_V2)))
                with pytest.raises(InvalidInput):
                    read_card_file(whole[:cut], "card")


# --- when they are run again --------------------------------------------------------------------------------


@on_module_loop
async def test_a_file_that_changed_is_noticed(hosted: HostedNodes) -> None:
    path = hosted.write("chat.json", "[]")
    hosted.write("other.json", "[]")
    runner = hosted.runner("HistoryLoader")
    before = await runner.change({}, {"historyResource": "chat.json"})
    assert await runner.change({}, {"historyResource": "chat.json"}) == before
    assert await runner.change({}, {"historyResource": "other.json"}) != before
    path.write_text("[ ]", encoding="utf-8")
    assert await runner.change({}, {"historyResource": "chat.json"}) != before
    path.unlink()
    gone = await runner.change({}, {"historyResource": "chat.json"})
    assert gone != before
    assert await runner.change({}, {}) != gone
