"""What is masked in texts, answers and documents: by name, by mark, and by value."""

from __future__ import annotations

import html
import json
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote, quote_plus

import pytest
from helpers.repetition import Failures

from tavern_host.common.redaction import redacted, redacted_json, secrets_of
from tavern_host.contracts.settings import MASK, SettingItem
from tavern_workflows.api.redaction import masked_document

LONG = 'sk-"ö\\long'


def test_a_short_secret_is_masked_as_a_whole_value_only() -> None:
    rows = [
        ("is asked too often (429)", "k", "is asked too often (429)"),
        ("is asked too often", "is", "is asked too often"),
        ("is asked too often", "often", "is asked too often"),
        ("often", "often", MASK),
        ("the key 'often' is wrong", "often", f"the key '{MASK}' is wrong"),
        ("Incorrect key provided: often.", "often", f"Incorrect key provided: {MASK}."),
        ("?key=often&more=1", "often", f"?key={MASK}&more=1"),
        ("Authorization: Bearer often", "often", f"Authorization: Bearer {MASK}"),
        ("host=often.example", "often", "host=often.example"),
        ("it is sevens7 here", "sevens7", "it is sevens7 here"),
        ("it is eights88, hereighteights88s", "eights88", f"it is {MASK}, hereight{MASK}s"),
    ]
    with Failures() as failures:
        for text, secret, shown in rows:
            with failures.row((text, secret)):
                assert redacted(text, [secret]) == shown


def test_a_secret_is_masked_in_each_form_that_json_has_for_it() -> None:
    known = frozenset({LONG})
    assert redacted("a sk-12345678-more b", ["sk-12345678", "sk-12345678-more"]) == f"a {MASK} b"
    for said in (json.dumps({"a": f"x {LONG} y"}), json.dumps({"a": f"x {LONG} y"}, ensure_ascii=False)):
        shown = redacted_json(said.encode(), known)
        assert json.loads(shown) == {"a": f"x {MASK} y"}


def test_a_secret_is_masked_however_it_is_spelled() -> None:
    secret = "sk/\"ö\\ 'long+&"
    spelled = [
        *(quote(secret, safe=""), quote_plus(secret), quote(secret), html.escape(secret), repr(secret), ascii(secret)),
        *(encoded(secret.encode()).decode().rstrip("=") for encoded in (b64encode, urlsafe_b64encode)),
        *(json.dumps({secret: 1}), json.dumps([json.dumps({"key": secret})]), json.dumps([repr(ValueError(secret))])),
    ]
    assert [text for text in spelled if MASK not in redacted(text, [secret])] == []
    assert [text for text in spelled if MASK.encode() not in redacted_json(text.encode(), frozenset({secret}))] == []


def test_plain_words_and_paths_stay_in_answers() -> None:
    content = b'{"role": "assistant", "type": "password", "path": "/home/inn/files"}'
    assert redacted_json(content, frozenset({"assistant", "password", "/home/inn", "k", ""})) is content


def test_values_of_nodes_are_masked_by_name_and_nothing_else_of_a_document() -> None:
    document = {
        "name": "password",
        "nodes": [
            {"id": "token", "type": "a:Token", "inputValues": {"api_key": "x", "text": "y", "max_tokens": 5}},
            {"id": "b", "type": "a:B", "configValues": {"headers": [{"name": "Cookie", "value": "x"}], "cookie": ""}},
        ],
        "edges": [{"targetHandle": "api_key"}],
        "interfaceInputs": {"password": {"key": "password", "config": {"default": "x"}}, "text": {"key": "text"}},
    }
    assert masked_document(document) == {
        **document,
        "nodes": [
            {"id": "token", "type": "a:Token", "inputValues": {"api_key": MASK, "text": "y", "max_tokens": 5}},
            {"id": "b", "type": "a:B", "configValues": {"headers": [{"name": "Cookie", "value": MASK}], "cookie": ""}},
        ],
        "interfaceInputs": {"password": {"key": "password", "config": {"default": MASK}}, "text": {"key": "text"}},
    }


def test_secrets_of_a_setting_are_found_at_any_depth_and_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INN_KEY", "from-outside")
    item = SettingItem(key="extensions.a.b", type="json", label="B", secret_keys=["api_key", "headers", "env"])
    value = {
        "m": {"api_key": "deep", "url": "u"},
        "n": {"api_key_env": "INN_KEY"},
        "o": [{"headers": {"Authorization": "Bearer whole", "X": {"env": "INN_KEY"}}, "env": {"A": 7, "B": True}}],
    }
    assert {*secrets_of(item, value)} == {"deep", "from-outside", "Bearer whole", "whole", "7"}
