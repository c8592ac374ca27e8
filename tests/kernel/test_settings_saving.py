"""Saving settings in a running host: checks, permissions, notifications and secrets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures
from plugin_maker import context_of, contextual, host_with, make_plugin, module_of, problems_of

from tavern_host import Host
from tavern_host.contracts.audit import AUDIT
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import InvalidInput, TavernError, Vetoed
from tavern_host.contracts.events import Event
from tavern_host.contracts.hooks import Veto
from tavern_host.contracts.settings import MASK, SETTINGS, SettingsChange, SettingValue

OPTIONS = [
    {"key": "extensions.acme.colour", "type": "string", "label": "Colour", "defaultValue": "red"},
    {"key": "extensions.acme.size", "type": "number", "label": "Size", "min": 1, "max": 9},
    {"key": "extensions.acme.table", "type": "json", "label": "Table", "defaultValue": {"a": [1]}},
    {"key": "extensions.acme.token", "type": "password", "label": "Token"},
    {"key": "extensions.acme.pin", "type": "number", "label": "Pin", "secret": True, "min": 1000},
    {"key": "extensions.acme.models", "type": "json", "label": "Models", "secretKeys": ["api_key"]},
    {"key": "extensions.acme.tidy", "type": "action-button", "label": "Tidy", "buttonText": "Go"},
]
SECRET = "hunter2-swordfish"


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    """Run a host with a plugin that has one option of every kind that matters here."""
    async with host_with(tmp_path / "p", contextual(tmp_path, configOptions=OPTIONS)) as running:
        yield running


async def save(host: Host, call: CallContext | None = None, /, **values: Any) -> dict[str, SettingValue]:
    """Save values of `acme`; return all its settings by short key."""
    change = SettingsChange(plugin="acme", values=values)
    return by_key(await host.services.get(SETTINGS).save(change, call=call))


def by_key(values: list[SettingValue]) -> dict[str, SettingValue]:
    return {value.key.removeprefix("extensions.acme."): value for value in values}


async def values_of(host: Host) -> dict[str, SettingValue]:
    return by_key(await host.services.get(SETTINGS).values("acme"))


async def refusal(host: Host, **values: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as refused:
        await save(host, **values)
    return refused.value


def asking(parent: Path) -> Path:
    """Write a plugin that is asked before settings are saved; it keeps what it was shown in `SEEN`."""
    code = """
    from tavern_host import hookimpl

    SEEN, CALLS = [], []

    def ANSWER(change):
        return None

    @hookimpl
    async def tavern_before_save_settings(change, call):
        SEEN.append(dict(change.values))
        CALLS.append(str(call.principal))
        return ANSWER(change)
    """
    return make_plugin(parent, "asker", code, hooked=["tavern_before_save_settings"])


def everything_written(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


# --- what is saved ----------------------------------------------------------------------------------------


async def test_saved_values_hold_until_they_are_reset(tmp_path: Path) -> None:
    folder = contextual(tmp_path, configOptions=OPTIONS)
    async with Host(tmp_path / "p", plugins=[folder]) as host:
        assert host.plugin("acme").state.value == "needs-review"
        assert (await save(host, colour="green"))["colour"].value == "green", "of one that is not loaded, too"
    async with host_with(tmp_path / "p", folder) as host:
        answer, settings = await save(host, colour="blue"), context_of().settings
        assert (answer["colour"].value, answer["colour"].origin) == ("blue", "operator")
        assert (settings.get("colour"), settings.origin("colour")) == ("blue", "operator")
    async with host_with(tmp_path / "p", folder) as host:
        assert context_of().settings.get("colour") == "blue"
        await save(host, size=3, colour=None)
    async with host_with(tmp_path / "p", folder):
        assert (context_of().settings.get("colour"), context_of().settings.get("size")) == ("red", 3)
    async with host_with(tmp_path / "another", folder):
        assert context_of().settings.get("size") is None


async def test_an_empty_change_writes_no_file(host: Host, operator_folders: Path) -> None:
    assert set(await save(host)) == {"colour", "size", "table", "token", "pin", "models"}
    assert not list(operator_folders.rglob("settings.json"))


async def test_masks_may_stand_for_environment_secrets(tmp_path: Path, operator_folders: Path) -> None:
    folder, settings = contextual(tmp_path, configOptions=OPTIONS), {"extensions.acme.token": SECRET}
    async with host_with(tmp_path / "p", folder, settings=settings) as host:
        answer = await save(host, token=MASK)
        assert (answer["token"].value, answer["token"].origin) == (MASK, "environment")
        assert not list(operator_folders.rglob("settings.json"))


# --- what is refused ----------------------------------------------------------------------------------------


OTHER = "acme has no setting 'extensions"
NO_SECRET = f"'extensions.acme.models' has {MASK} at m.api_key, where no secret is set: give the secret itself"
TWICE = "'extensions.acme.colour' stands there twice, with its prefix and without"
THREE = (
    "3 settings of acme cannot be saved: 'extensions.acme.size' must be at least 1, found 0; "
    "acme has no setting 'sise' (did you mean size?); 'extensions.acme.token' must be a text"
)
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"color": None}, "acme has no setting 'color' (did you mean colour?)"),
    ({"extensions.acme.color": 1}, f"{OTHER}.acme.color' (did you mean extensions.acme.colour"),
    ({"extensions.other.colour": 1}, f"{OTHER}.other.colour'"),
    ({"": 1}, "acme has no setting ''"),
    ({"tidy": None}, "'extensions.acme.tidy' is a button and holds no value"),
    ({"pin": 7}, "'extensions.acme.pin' must be at least 1000"),
    ({"models": {"m": {"api_key": MASK}}}, NO_SECRET),
    ({"table": {"x": "y" * (1 << 20)}}, "'extensions.acme.table' is longer than 1024 KiB"),
    ({"colour": "a", "extensions.acme.colour": "b"}, TWICE),
    ({"colour": "blue", "size": 0, "sise": 1, "token": 5}, THREE),
]


async def test_wrong_changes_are_refused(host: Host) -> None:
    with Failures() as failures:
        for values, message in WRONG:
            with failures.row(message):
                refused = await refusal(host, **values)
                assert refused.message.startswith(message)
                assert refused.info.code == "invalid_input"
    assert (await values_of(host))["colour"].origin == "default"


async def test_a_change_has_at_most_1000_values(host: Host) -> None:
    assert (await refusal(host, **{f"colou{n}": n for n in range(1001)})).message == (
        "a change of settings has at most 1000 values, found 1001"
    )
    many = await refusal(host, **{f"colou{n}": n for n in range(1000)})
    assert len(many.info.details["problems"]) == 1000  # type: ignore[arg-type]


async def test_values_of_removed_options_can_be_reset(tmp_path: Path) -> None:
    folder = contextual(tmp_path, configOptions=OPTIONS)
    async with host_with(tmp_path / "p", folder) as host:
        await save(host, size=3, token=SECRET)
    contextual(tmp_path, configOptions=OPTIONS[:1])
    async with host_with(tmp_path / "p", folder) as host:
        assert len(problems_of(host)) == 2
        await save(host, **{"extensions.acme.size": None, "token": None})
        assert host.settings.problems("acme") == []
    async with Host(tmp_path / "p") as host:
        assert host.settings.problems() == []


# --- secrets ----------------------------------------------------------------------------------------------


async def test_saving_a_mask_keeps_the_secret(host: Host, operator_folders: Path) -> None:
    await save(host, token=SECRET, pin=1234, models={"m": {"api_key": SECRET, "url": "old"}})
    (file,) = operator_folders.rglob("settings.json")
    before = file.read_bytes()
    answer = {key: value.value for key, value in (await values_of(host)).items() if value.origin == "operator"}
    assert answer == {"token": MASK, "pin": MASK, "models": {"m": {"api_key": MASK, "url": "old"}}}
    await save(host, **answer)
    assert file.read_bytes() == before
    await save(host, models={"m": {"api_key": MASK, "url": "new"}})
    settings = context_of().settings
    assert settings.get("models") == {"m": {"api_key": SECRET, "url": "new"}}
    assert (settings.get("token"), settings.get("pin")) == (SECRET, 1234)
    empty = (await save(host, token=""))["token"]
    assert (empty.value, empty.is_set) == ("", False)


async def test_a_secret_is_nowhere_but_with_the_plugin(
    asked: Host, tmp_path: Path, operator_folders: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    events = asked.events.subscribe()
    told = [await save(asked, token=SECRET, models={"a": [{"api_key": SECRET}]}), await values_of(asked)]
    refused = await refusal(asked, token=SECRET, models=SECRET + "\ud800", pin=SECRET)
    await events.close()
    told_too = [event async for event in events]
    seen = module_of("asker").SEEN
    assert context_of().settings.get("token") == SECRET
    assert SECRET not in f"{told} {told_too} {seen} {refused.info} {asked.plugins()} {asked.settings.problems()}"
    assert SECRET not in caplog.text
    assert SECRET.encode() not in everything_written(operator_folders) + everything_written(tmp_path / "p")


# --- who is asked -----------------------------------------------------------------------------------------

Answer = Callable[[SettingsChange], object]


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Host]:
    """Run a host with a plugin that is asked before settings are saved; a test gives its `ANSWER`."""
    async with host_with(tmp_path / "p", contextual(tmp_path, configOptions=OPTIONS), asking(tmp_path)) as running:
        yield running


def with_values(values: dict[str, Any], *, beside: bool = False) -> Answer:
    """Return a hook's answer that changes other values, or others beside those that are saved."""
    full = {f"extensions.acme.{key}": value for key, value in values.items()}
    return lambda change: change.model_copy(update={"values": {**(change.values if beside else {}), **full}})


async def test_a_hook_may_change_what_is_saved(asked: Host) -> None:
    asker, settings = module_of("asker"), context_of().settings
    await save(asked, CallContext(principal=Principal(kind="agent", id="keeper")), token="old")
    await save(asked, token=MASK)
    await save(asked)
    await asked.settings.save(SettingsChange(plugin="acme", values={"size": 3}))
    assert asker.CALLS == ["agent:keeper", "system:host"], "a hook is not asked about nothing"
    models = {"m": {"api_key": SECRET, "url": "u"}}
    asker.ANSWER = with_values({"size": 5}, beside=True)
    await save(asked, colour="blue", size=2, token=SECRET, models=models)
    assert [settings.get(key) for key in ("colour", "size", "token", "models")] == ["blue", 5, SECRET, models]
    shown = {"colour": "blue", "size": 2, "token": MASK, "models": {"m": {"api_key": MASK, "url": "u"}}}
    assert asker.SEEN[-1] == {f"extensions.acme.{key}": value for key, value in shown.items()}
    asker.ANSWER = with_values({"token": "x", "pin": None})
    await save(asked, token="y", pin=1234, colour="green")
    assert [settings.get(key) for key in ("token", "pin", "colour")] == ["x", None, "blue"]
    asker.ANSWER = lambda change: change.values.update({"extensions.acme.size": 9})
    assert (await save(asked, size=4))["size"].value == 4


def fail(_: SettingsChange) -> None:
    raise ValueError("broken")


LEFT = "as tavern_before_save_settings left it"
REFUSALS: list[tuple[Answer, str]] = [
    (lambda _: Veto(reason="not on Sundays"), "asker refused: not on Sundays"),
    (fail, "asker failed in tavern_before_save_settings"),
    (lambda _: 5, "asker failed in tavern_before_save_settings"),
    (with_values({"size": 50}), f"'extensions.acme.size' must be at most 9, found 50, {LEFT}"),
    (with_values({"nope": 5}), f"acme has no setting 'extensions.acme.nope', {LEFT}"),
    (with_values({"token": MASK}), "'extensions.acme.token' is a secret that is not set yet"),
    (lambda change: change.model_copy(update={"plugin": "asker"}), "turned a change of acme into one of 'asker'"),
]


async def test_a_refusing_hook_lets_nothing_be_saved(asked: Host) -> None:
    with Failures() as failures:
        for answer, message in REFUSALS:
            with failures.row(message):
                module_of("asker").ANSWER = answer
                with pytest.raises(TavernError) as refused:
                    await save(asked, colour="blue", size=3)
                assert message in refused.value.message
                values = await values_of(asked)
                assert (values["colour"].value, values["size"].is_set) == ("red", False)


async def test_a_hook_that_saves_is_refused(tmp_path: Path) -> None:
    code = """
    from tavern_host import SETTINGS, hookimpl

    @hookimpl
    async def tavern_before_save_settings(change, call, context):
        await context.services.get(SETTINGS).save(change, call=call.child())
    """
    permissions = {"services": {"use": ["settings:write"]}}
    asker = make_plugin(tmp_path, "asker", code, hooked=["tavern_before_save_settings"], permissions=permissions)
    async with host_with(tmp_path / "p", contextual(tmp_path, configOptions=OPTIONS), asker) as host:
        with pytest.raises(Vetoed, match="calls itself without end"):
            await save(host, size=3)
        assert not (await values_of(host))["size"].is_set


# --- notifications ---------------------------------------------------------------------------------------


async def test_changes_are_told_once_by_key_alone(host: Host) -> None:
    changes = context_of().settings.changes()
    events = host.events.subscribe("SETTINGS_CHANGED")
    await save(host, CallContext(principal=Principal(kind="user", id="ada")), colour="blue", token=SECRET)
    assert await asyncio.wait_for(anext(changes), 60) == ["colour", "token"]
    await save(host, colour="blue", token=SECRET, size=None)  # which changes nothing
    await events.close()
    told = {"plugin": "acme", "keys": ["extensions.acme.colour", "extensions.acme.token"]}
    assert [event.payload async for event in events] == [told]
    (entry,) = [e for e in await host.services.get(AUDIT).tail() if e.action == "settings.saved"]
    assert (entry.actor, entry.subject, entry.details) == ("user:ada", "acme", told)
    for value in (1, True):  # which are different values
        await save(host, table={"a": value})
    assert context_of().settings.get("table")["a"] is True


async def test_changes_end_when_the_plugin_is_taken_out(host: Host) -> None:
    changes = context_of().settings.changes()
    await host.disable("acme")
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(anext(changes), 60)


async def test_saving_at_once_loses_nothing(host: Host) -> None:
    saves = [save(host, **{key: value}) for key, value in (("colour", "blue"), ("size", 3), ("token", SECRET))]
    await asyncio.gather(*saves, *(save(host, pin=number) for number in range(2000, 2010)))
    settings = context_of().settings
    assert (settings.get("colour"), settings.get("size"), settings.get("token")) == ("blue", 3, SECRET)
    assert settings.get("pin") in range(2000, 2010)


async def test_a_host_takes_over_what_another_host_saves(tmp_path: Path) -> None:
    folder = contextual(tmp_path, configOptions=OPTIONS)
    async with host_with(tmp_path / "p", folder) as host, host_with(tmp_path / "p") as other:
        changes = context_of().settings.changes()
        events = host.events.subscribe("SETTINGS_CHANGED")
        await save(host, colour="blue")
        file = host.folders.project_state(host.project) / "settings.json"
        content = json.loads(file.read_text())
        content["values"]["extensions.acme.size"] = 8
        file.write_text(json.dumps(content))
        other.settings.follow()
        host.settings.follow()
        assert await asyncio.wait_for(anext(changes), 60) == ["colour", "size"]
        assert context_of().settings.get("size") == 8
        await events.close()
        assert [e.payload["keys"] for e in [x async for x in events] if isinstance(e, Event)] == [
            ["extensions.acme.colour"],
            ["extensions.acme.size"],
        ]
