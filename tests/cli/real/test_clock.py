"""`tavern serve` on a machine whose clock is set back, or forth, while it works."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import tavern
from helpers.serve_process import SECONDS, Listener, Serving, serving

CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long offset(void) {
    long seconds = 0;
    FILE *file = fopen(getenv("CLOCK_OFFSET"), "r");
    if (file) {
        if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
        fclose(file);
    }
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (!result && clock == CLOCK_REALTIME) now->tv_sec += offset();
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
"""
"""The system's clock with what a file says added to it: each process has its own, and no other notices."""
WAITS = {"nodes": [{"id": "w", "type": "core:Wait", "inputValues": {"value": "x", "seconds": 1}}], "edges": []}
HOUR = 3600


@pytest.fixture
def offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that says how many seconds the clock of the processes is off that are begun now."""
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("a C compiler is needed for a clock of the server's own")
    source, library, file = tmp_path / "clock.c", tmp_path / "clock.so", tmp_path / "offset"
    source.write_text(CLOCK)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    file.write_text("0")
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("CLOCK_OFFSET", str(file))
    return file


async def ended(site: Serving, run: str) -> str:
    async with asyncio.timeout(SECONDS):
        while (status := str((await site.get(f"/api/prompt/{run}"))["status"])) in ("queued", "running"):
            await asyncio.sleep(0.05)
    return status


async def begin(site: Serving, body: dict[str, Any] = WAITS) -> str:
    return str((await site.post("/api/prompt", body))["promptId"])


async def test_a_clock_that_is_set_harms_nothing(tmp_path: Path, offset: Path) -> None:
    project = tmp_path / "inn"
    assert (await asyncio.to_thread(tavern, "init", "--empty", project)).code == 0
    async with serving(project) as site:
        async with site.session.ws_connect(site.base + "/ws") as socket:
            heard = Listener(socket)
            first = await begin(site)
            await heard.until("NODE_EXECUTING", promptId=first)
            offset.write_text(str(-HOUR))
            second = await begin(site)
            assert [await ended(site, run) for run in (first, second)] == ["complete", "complete"]
            await heard.until("EXECUTION_STATUS_UPDATE", promptId=second, status="complete")
            numbers = [message["seq"] for message in heard.messages if "seq" in message]
            assert numbers == sorted(numbers), "events are in order, whatever the clock says"
        await drafts(site, offset)
        (called,) = (await site.post("/api/tools/execute", {"toolId": "system:list_tools"}))["results"]
        assert called["status"] == "done", called
        third = await begin(site)
        offset.write_text(str(HOUR))
        code, err = await site.stop()
        assert (code, "Traceback" in err) == (0, False)
    async with serving(project) as site:
        assert await ended(site, third) == "complete"
        assert {run["id"] for run in (await site.get("/api/runs"))["runs"]} == {first, second, third}
        assert (await site.get("/readyz"))["status"] == "ready"
    assert (await asyncio.to_thread(tavern, "--project", project, "audit", "verify")).code == 0


async def drafts(site: Serving, offset: Path) -> None:
    """Keep drafts of a workflow while the clock is set: the history says them in the order in which they were kept."""
    async with site.session.post(f"{site.base}/api/workflows", json={"id": "a", "workflow": flow(0)}) as answer:
        assert answer.status == 201
    for value in (1, 2, 3):
        offset.write_text(str(-value * HOUR))
        async with site.session.put(
            f"{site.base}/api/workflows/a/draft", json={"workflow": flow(value)}, headers={"If-Match": "*"}
        ) as answer:
            assert answer.status in (200, 201), await answer.text()
    kept = await site.get("/api/workflows/a/history")
    assert [revision["number"] for revision in kept] == [4, 3, 2, 1]


def flow(value: int) -> dict[str, Any]:
    return {"nodes": [{"id": "a", "type": "core:Echo", "inputValues": {"value": value}}], "edges": []}
