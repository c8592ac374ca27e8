"""Kinds of triggers that plugins add: in the host's process, and where all that crosses is encoded."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from helpers.folder_plugins import write_plugin
from helpers.waiting import let_pass

from tavern_host.contracts.errors import InvalidInput
from tests.triggers.trigger_bench import trigger_bench

MAIL = """
import asyncio
import json

from tavern_host import hookimpl
from tavern_triggers.api.kinds import TriggerKindInfo, TriggerSignal, TriggerSignals

SCHEMA = {"type": "object", "required": ["folder"], "properties": {"folder": {"type": "string"}}}

@hookimpl
def tavern_register_trigger_kinds():
    names = ("acme:mail", "acme:hangs", "acme:fails")
    handlers = {name: f"{__name__}:{name[5:]}" for name in names}
    return [TriggerKindInfo(name=n, handler=h, config_schema=SCHEMA, seconds=2) for n, h in handlers.items()]

async def mail(config, cursor, context):
    mails = json.loads((context.project.root / "files" / config["folder"]).read_text())
    signals = [TriggerSignal(key=one, payload={"text": f"{one}-after-{cursor}"}) for one in mails]
    return TriggerSignals(signals=signals, cursor=mails[-1])

async def hangs(config, cursor, context):
    await asyncio.sleep(1e6)

async def fails(config, cursor, context):
    raise RuntimeError("no mail today")
"""


@pytest.mark.parametrize("placement", ["in-process", "loopback"])
async def test_what_a_plugin_finds_fires_once_and_one_that_hangs_or_fails_delays_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, placement: str
) -> None:
    if placement == "loopback":
        monkeypatch.setenv("TAVERN_PLACEMENT", "loopback")
    permissions = {"hooks": ["hook:server:triggers:register-kinds"]}
    write_plugin(tmp_path / "plugins" / "acme", {"__init__.py": MAIL}, permissions=permissions)
    async with trigger_bench(tmp_path) as bench:
        mails = bench.project.root / "files" / "in.json"
        mails.parent.mkdir(exist_ok=True)
        mails.write_text(json.dumps(["a"]))
        for name in ("hangs", "fails", "mail"):
            await bench.on(name, f"acme:{name}", {"folder": "in.json"})
        await let_pass(10)
        mails.write_text(json.dumps(["a", "b"]))
        await bench.until_fired("mail", 2)
        await let_pass(10)
        assert bench.marks() == ["a-after-", "b-after-a"]
        assert [kind.plugin for kind in await bench.triggers.kinds() if kind.name == "acme:mail"] == ["acme"]
        said = {one.id: one.reason for one in await bench.triggers.list_triggers() if one.status == "on"}
        assert re.fullmatch(r"cannot look: .*RuntimeError: no mail today", said.pop("fails"))
        assert said == {"hangs": "", "mail": ""}
        mails.unlink()
        await let_pass(4)
        assert "FileNotFoundError" in (await bench.triggers.get("mail")).reason
        mails.write_text(json.dumps(["a", "b"]))
        await let_pass(4)
        assert (await bench.triggers.get("mail")).reason == ""
        with pytest.raises(InvalidInput, match="folder"):
            await bench.save("bad", "acme:mail", {})
