"""What plugin authors test with: pytest fixtures, a recorder of calls and a client for routes. Not for running
hosts; real installations are in `tavern_devtools.testing`.

Write `pytest_plugins = ["tavern_host.testing"]` into the `conftest.py` at the top of the tests.
"""

from __future__ import annotations

from tavern_host.testing.fixtures import MakeHost
from tavern_host.testing.http import HttpClient
from tavern_host.testing.recorder import CallRecorder, RecordedCall

__all__ = ["CallRecorder", "HttpClient", "MakeHost", "RecordedCall"]

pytest_plugins = ["tavern_host.testing.fixtures"]
