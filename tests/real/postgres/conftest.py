"""A database that hosts of a test share: a schema of its own, in the server of the tests of this process."""

from __future__ import annotations

import json
import secrets

import pytest
from helpers.postgres import shared_server


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the address of the schema; hosts that are made from now on share it."""
    schema = f"hosts_{secrets.token_hex(8)}"
    url = f"{shared_server()}&options=-csearch_path%3D{schema}"
    settings = {"extensions.tavern-postgres.url": url, "extensions.tavern-postgres.schema": schema}
    monkeypatch.setenv("TAVERN_SETTINGS", json.dumps(settings))
    return url
