"""Secrets in the arguments of tasks: given to the call, shown to nobody, and kept no longer than they are needed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures
from task_bench import TaskBench, caller, opened, tasks_folder, tool

from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.settings import MASK
from tavern_host.contracts.toolcalls import ToolCallRequest
from tavern_tools.catalog.parameters import Parameters
from tavern_tools.tasks.secrets import masked, unmasked


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[TaskBench]:
    async with opened(tmp_path / "p") as made:
        yield made


async def test_a_secret_reaches_the_call_and_is_shown_masked(bench: TaskBench) -> None:
    task = await bench.submit(apiKey="hunter2")
    ended = await bench.ended(task)
    assert bench.noted()[0] == ["", "began", "hunter2"]
    assert task.arguments["apiKey"] == ended.arguments["apiKey"] == MASK
    assert "hunter2" not in str(bench.events)


async def test_what_is_kept_is_for_this_user_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "p") as bench:
        await bench.park(apiKey="hunter2")
        folder = tasks_folder(tmp_path / "p")
        modes = {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())}
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}


async def test_a_secret_is_not_kept_when_the_task_has_ended(tmp_path: Path) -> None:
    async with opened(tmp_path / "p") as bench:
        await bench.ended(await bench.submit(apiKey="hunter2-hunter2"))
        await bench.tasks.cancel((await bench.park(apiKey="hunter2-hunter2")).id, caller())
    folder = tasks_folder(tmp_path / "p")
    kept = b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())
    assert b"acme:work" in kept
    assert b"hunter2-hunter2" not in kept


async def test_an_argument_that_the_tool_marks_as_secret_is_masked_whatever_its_name(bench: TaskBench) -> None:
    marked = tool(name={"type": "string", "format": "password"}, size={"type": "integer", "writeOnly": True})
    request = ToolCallRequest(tool_id="acme:work", arguments={"name": "hunter2", "size": 3, "seconds": 0})
    task = await bench.tasks.submit(request, marked, caller(), None)
    await bench.ended(task)
    assert task.arguments == {"name": MASK, "size": MASK, "seconds": 0}


def test_what_stands_under_a_secrets_name_is_masked() -> None:
    rows: Any = [
        ({"password": "x", "Passwort": "y"}, {"password": MASK, "Passwort": MASK}),
        ({"a": {"b": [{"api_key": "x"}]}}, {"a": {"b": [{"api_key": MASK}]}}),
        (
            {"headers": [{"name": "Authorization", "value": "x"}]},
            {"headers": [{"name": "Authorization", "value": MASK}]},
        ),
        ({"token": {"id": 1}}, {"token": MASK}),
        ({"maxTokens": 12, "token": "", "secret": None, "usePassword": True}, None),
        ({"密码": "x"}, {"密码": MASK}),
        ({"ＰＡＳＳＷＯＲＤ": "x"}, {"ＰＡＳＳＷＯＲＤ": MASK}),
    ]
    with Failures() as failures:
        for given, shown in rows:
            with failures.row(given):
                assert masked(given) == (given if shown is None else shown)


def test_a_mask_that_comes_back_stands_for_the_secret() -> None:
    real = {"url": "a", "apiKey": "x", "list": [{"token": "y"}, {"token": "z"}]}
    edited = {**masked(real), "url": "b"}
    assert unmasked(edited, real) == {**real, "url": "b"}


def test_a_secret_is_not_moved_to_where_it_was_not() -> None:
    rows: Any = [
        {"url": MASK},
        {"url": "a", "other": {"apiKey": MASK}},
        {"list": [{"token": MASK}]},
        {"list": MASK},
    ]
    with Failures() as failures:
        for edited in rows:
            with failures.row(edited):
                real = {"url": "a", "apiKey": "x", "list": [{"token": "y"}, {"token": "z"}]}
                with pytest.raises(InvalidInput, match="where no secret stands"):
                    unmasked(edited, real)


def test_a_schema_without_parameters_marks_none() -> None:
    assert Parameters({}).secrets == frozenset()
    assert Parameters({"properties": {"a": True, "b": {"writeOnly": "yes"}}}).secrets == frozenset()
