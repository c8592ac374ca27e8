"""`tavern audit tail --follow` shows what is recorded until it is ended."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest
from helpers.command_line import COMMAND, minds_ctrl_c

from tavern_host.audit.log import AuditLog


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_following_shows_what_is_recorded_until_ended(project: Path, log: AuditLog, options: list[str]) -> None:
    following = subprocess.Popen(
        [*COMMAND, "--project", str(project), "audit", "tail", "--lines", "1", "--follow", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=minds_ctrl_c,  # noqa: PLW1509
    )

    def line() -> str:
        """Return a line, or a whole document, of which there is one for each entry."""
        text = following.stdout.readline()
        while options and not text.endswith("\n}\n"):
            text += following.stdout.readline()
        return f"{json.loads(text)['action']}  {json.loads(text)['subject']}\n" if options else text

    try:
        assert "plugin.granted  acme" in line()
        for number in range(3):
            log.record("acme.followed", actor="plugin:acme", subject=str(number))
            log.flush()
            assert line().endswith(f"acme.followed  {number}\n")
        following.send_signal(signal.SIGINT)
        assert following.wait(60) == 130
    finally:
        following.kill()
        _, err = following.communicate()
    assert err == "interrupted\n"
