"""What of an action's details is recorded: JSON of a bounded size, and no secrets."""

from __future__ import annotations

import datetime
import enum
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

from helpers.repetition import Failures
from hypothesis import given
from hypothesis import strategies as st

from tavern_host.audit.details import encoded
from tavern_host.contracts.errors import ErrorInfo
from tavern_host.contracts.settings import MASK


def kept(details: Any) -> Any:
    """Return the part of some details that an entry has."""
    return json.loads(encoded({"action": "was"}, details))["details"]


def test_what_is_json_is_kept_as_it_is() -> None:
    details = {"a": 1, "b": [1.5, None, True, "x", {"c": []}], "é": "日本\n\x1b", "big": 2**62, "": {}}
    assert kept(details) == details
    assert kept(None) == kept({}) == {}


SECRETS = [
    *("password", "Password", "db_password", "PASSWD", "passphrase", "pwd", "pass", "pin", "sessionId", "jwt"),
    *("token", "accessToken", "access-token", "refresh.token", "x-auth-token", "bearer", "authorization", "cookie"),
    *("api_key", "apiKey", "API-KEY", "extensions.acme.apiKey", "x api key", "private_key", "secretAccessKey"),
    *(
        "secret",
        "client_secret",
        "Proxy-Authorization",
        "Set-Cookie",
        "credentials",
        "ｐａｓｓｗｏｒｄ",
        "数据库密码",
        "访问令牌",
    ),
]


def test_values_under_secret_names_are_masked() -> None:
    with Failures() as failures:
        for key in SECRETS:
            for secret in ("s3cr3t", 1234, 1.5, b"s3cr3t", ["s3cr3t"], {"a": "s3cr3t"}, SimpleNamespace(a="s3cr3t")):
                with failures.row((key, secret)):
                    assert kept({key: secret}) == {key: MASK}
                    assert kept({"a": [{"b": ({key: secret},)}]}) == {"a": [{"b": [{key: MASK}]}]}
        for key in ("name", "key", "path", "author", "passed", "bypass_count", "pinned", "monkey"):
            with failures.row(key):
                assert kept({key: "value"}) == {key: "value"}


def test_missing_secrets_and_token_counts_are_kept() -> None:
    details = {"password": None, "token": "", "secret": False, "max_tokens": 512, "totalTokens": 7, "token_count": 3}
    assert kept(details) == details
    assert kept({"max_tokens": "s3cr3t", "tokens": ["s3cr3t"]}) == {"max_tokens": MASK, "tokens": MASK}


def test_a_value_beside_a_secrets_name_is_masked() -> None:
    assert kept({"key": "extensions.acme.apiKey", "value": "s3cr3t", "origin": "project"}) == {
        "key": "extensions.acme.apiKey",
        "value": MASK,
        "origin": "project",
    }
    assert kept({"h": [{"value": "s3cr3t", "name": "Cookie"}]}) == {"h": [{"value": MASK, "name": "Cookie"}]}
    assert kept({"key": "colour", "value": "red"}) == {"key": "colour", "value": "red"}


DESCRIBED = [
    (object(), "<object>"),
    (SimpleNamespace(a=1), "<SimpleNamespace>"),
    (ErrorInfo(code="x", message="y"), "<ErrorInfo>"),
    (print, "<builtin_function_or_method>"),
    (b"bytes", "<5 bytes>"),
    (float("nan"), "<nan>"),
    (float("-inf"), "<-inf>"),
    (10**5000, "<whole number of 16610 bits>"),
    (Path("/a/b"), "/a/b"),
    (datetime.date(2024, 2, 3), "2024-02-03"),
    (datetime.datetime(2024, 2, 3, tzinfo=datetime.UTC), "2024-02-03T00:00:00+00:00"),
    (enum.StrEnum("Colour", {"RED": "red"}).RED, "red"),
    (enum.IntEnum("Number", "ONE").ONE, 1),
    ((1, 2), [1, 2]),
    ({3}, [3]),
    (MappingProxyType({"token": "x", 7: 1, None: 2}), {"token": MASK, "7": 1, "<NoneType>": 2}),
    ("half \ud800 a pair", "half ? a pair"),
    ("x" * 5000, "x" * 1000 + "… (5000 characters)"),
]


def test_long_or_unencodable_values_are_described() -> None:
    assert [shown for value, shown in DESCRIBED if kept({"a": value, "b": [value]}) != {"a": shown, "b": [shown]}] == []


def endless() -> Any:
    value: dict[str, Any] = {"a": 1}
    value["self"] = [value]
    return value


def test_an_entry_stays_small_whatever_it_is_about() -> None:
    for details in (
        {"a": ["x" * 900] * 1000},
        {str(number): number for number in range(10_000)},
        {"x" * 100_000: {"y" * 100_000: 1}},
        {"a": [[list(range(1000))] * 1000] * 1000},
        {"a": ["\x00" * 1000] * 1000},
        endless(),
    ):
        assert len(encoded({"action": "x" * 100_000, "subject": "y" * 100_000}, details)) < 200_000


def test_what_was_left_out_is_told() -> None:
    assert kept({"a": list(range(1000))})["a"][-1] == "… 501 more"
    assert kept({str(number): 1 for number in range(600)})["…"] == "100 more"
    assert "nested too deeply" in json.dumps(kept(endless()))


class Trap(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("boom")

    def __iter__(self) -> Iterator[str]:
        return iter("a")

    def __len__(self) -> int:
        return 1


class Sly(str):
    def __len__(self) -> int:
        raise RuntimeError("boom")


def test_hostile_details_are_still_recorded() -> None:
    for details in (Trap(), {"a": [Trap()]}, {Sly("a"): 1}, {"a": Sly("x")}, 7, ["x"], "text"):
        assert isinstance(kept(details), dict)


def test_fields_that_are_no_texts_are_described() -> None:
    entry = json.loads(encoded({"action": 7, "subject": object(), "actor": Sly("x")}, {}))  # type: ignore[dict-item]
    assert entry == {"action": "<int>", "subject": "<object>", "actor": "x", "details": {}}


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), ANYTHING, max_size=3))
def test_an_entry_is_always_one_line_of_json(details: dict[str, Any]) -> None:
    line = encoded({"action": "was", "subject": "x\ny"}, details)
    assert b"\n" not in line
    assert json.loads(line)["subject"] == "x\ny"
