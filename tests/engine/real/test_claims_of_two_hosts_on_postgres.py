"""What `test_claims_of_two_hosts` shows of a server and a command, of two servers on one database."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest
from helpers.postgres import shared_server
from test_claims_of_two_hosts import *  # noqa: F403


@pytest.fixture
def projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return the projects of two servers that share a database."""
    schema = f"claims_{secrets.token_hex(8)}"
    settings = {"extensions.tavern-postgres.url": shared_server(), "extensions.tavern-postgres.schema": schema}
    monkeypatch.setenv("TAVERN_SETTINGS", json.dumps(settings))
    return tmp_path / "here", tmp_path / "there"
