"""A reader that goes away, and a disk that is full."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from helpers.command_line import COMMAND


@pytest.mark.parametrize("arguments", [["nodes", "list", "--json"], ["demo"]])
def test_a_reader_that_goes_away_is_no_error(arguments: list[str]) -> None:
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    with process.stderr:
        err = process.stderr.read()
    assert (process.wait(timeout=60), err) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full to write to")
def test_a_disk_that_is_full_is_one_line() -> None:
    command = [*COMMAND, "plugins", "list"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.decode().startswith("Error: OSError: [Errno 28]")
    assert b"Traceback" not in done.stderr
