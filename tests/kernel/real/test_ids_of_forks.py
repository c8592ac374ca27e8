"""A process that was forked gives other ids than the one that it was forked from."""

from __future__ import annotations

import os

from helpers.systems import on_linux

from tavern_host.contracts.calls import numbered_id


@on_linux
def test_a_forked_process_begins_a_series_of_its_own() -> None:
    ours, (reading, writing) = numbered_id("trace"), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, numbered_id("trace").encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reading, 100).decode()
    assert theirs.startswith("trace_")
    assert theirs[:-10] != ours[:-10]
