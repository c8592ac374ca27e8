"""What plugin authors test with: pytest fixtures, a recorder of calls, a client for routes, and real installations. Not
for running hosts.

Write `pytest_plugins = ["tavern_host.testing"]` into the `conftest.py` at the top of the tests.
"""

from __future__ import annotations

from tavern_host.testing.environments import InstallationError, InstalledPlugin, Ran
from tavern_host.testing.fixtures import InstallPlugin, MakeHost
from tavern_host.testing.http import HttpClient
from tavern_host.testing.recorder import CallRecorder, RecordedCall

__all__ = ["CallRecorder", "HttpClient", "InstallPlugin", "InstallationError"]
__all__ += ["InstalledPlugin", "MakeHost", "Ran", "RecordedCall"]

pytest_plugins = ["tavern_host.testing.fixtures"]
