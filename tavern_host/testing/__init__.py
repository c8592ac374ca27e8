"""What plugin authors test with: pytest fixtures, a recorder of calls, a client for routes, and real installations. Not
for running hosts.

Write `pytest_plugins = ["tavern_host.testing"]` into the `conftest.py` at the top of the tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tavern_host.testing.environments import InstallationError, InstalledPlugin, Ran
from tavern_host.testing.fixtures import InstallPlugin, MakeHost
from tavern_host.testing.recorder import CallRecorder, RecordedCall

if TYPE_CHECKING:
    from tavern_host.testing.http import HttpClient

__all__ = [
    "CallRecorder",
    "HttpClient",
    "InstallPlugin",
    "InstallationError",
    "InstalledPlugin",
    "MakeHost",
    "Ran",
    "RecordedCall",
]

pytest_plugins = ["tavern_host.testing.fixtures"]


def __getattr__(name: str) -> Any:
    """Return `HttpClient` when it is first asked for, since it imports the server."""
    if name != "HttpClient":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tavern_host.testing.http import HttpClient

    return HttpClient
