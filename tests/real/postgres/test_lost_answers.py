"""A database that has written a run, and whose answer is lost on the way."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from helpers.postgres import shared_server
from helpers.waiting import until

from benchmarks.faultchild import Place, graph_of
from tavern_host import EXECUTION_ENGINE
from tavern_host.contracts.errors import ServiceUnavailable
from tavern_host.contracts.executions import RunRequest, RunStatus

SOCKET = ".s.PGSQL.5432"


class Line:
    """A way to a PostgreSQL server. Where it is to cut, it ends once, when the server has answered the commit
    of what begins so."""

    def __init__(self, server: str) -> None:
        self._server = server
        self.cuts = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry a connection."""
        back, forth = await asyncio.open_unix_connection(f"{self._server}/{SOCKET}")
        said = bytearray()

        async def forwards() -> None:
            while data := await reader.read(65536):
                said.extend(data if self.cuts else b"")
                forth.write(data)

        async def backwards() -> None:
            while data := await back.read(65536):
                if self.cuts and self.cuts in said and b"COMMIT" in data:
                    self.cuts = b""
                    return
                writer.write(data)

        carrying = [asyncio.ensure_future(forwards()), asyncio.ensure_future(backwards())]
        await asyncio.wait(carrying, return_when=asyncio.FIRST_COMPLETED)
        for one in carrying:
            one.cancel()
        forth.close()
        writer.close()


@asynccontextmanager
async def way_to(database: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Line]:
    """Let hosts that are made from now on reach the database over a line that can be cut."""
    server = shared_server().partition("host=")[2]
    with tempfile.TemporaryDirectory(prefix="pg-") as folder:
        line = Line(server)
        serving = await asyncio.start_unix_server(line.serve, f"{folder}/{SOCKET}")
        settings = json.loads(os.environ["TAVERN_SETTINGS"])
        settings["extensions.tavern-postgres.url"] = database.replace(server, folder)
        monkeypatch.setenv("TAVERN_SETTINGS", json.dumps(settings))
        yield line
        serving.close()


async def test_a_run_whose_commit_was_not_answered_is_refused_and_not_carried_out(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here := Place(tmp_path / "here")).fill()
    (there := Place(tmp_path / "there")).fill()
    other = there.host(serving=True)
    async with other, way_to(database, monkeypatch) as line, here.host(serving=True) as host:
        engine, elsewhere = host.services.get(EXECUTION_ENGINE), other.services.get(EXECUTION_ENGINE)
        await engine.history()  # connects
        line.cuts = b"INSERT INTO runs"
        with pytest.raises(ServiceUnavailable) as refused:
            await engine.submit(RunRequest(workflow=graph_of(2, depth=2, width=2).workflow()))
        assert not line.cuts
        run_id = str(refused.value.info.details["run_id"])

        async def ended() -> bool:
            return (await elsewhere.get(run_id)).status is RunStatus.INTERRUPTED

        await until(ended)
        assert not here.log.exists() and not there.log.exists()
