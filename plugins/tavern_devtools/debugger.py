"""Waits for a debugger, by debugpy and the Debug Adapter Protocol that editors speak."""

from __future__ import annotations

import os
import sys

from tavern_host.contracts.errors import InvalidInput, Misconfigured
from tavern_host.contracts.languages import say

_PORT = "TAVERN_DEBUG_PORT"


def wait_for_debugger() -> None:
    """Return once a debugger has attached at 127.0.0.1, port 5678 unless `TAVERN_DEBUG_PORT` says another. Raises
    `Misconfigured` where debugpy is not installed, or the port is taken."""
    text = os.environ.get(_PORT, "5678")
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise InvalidInput(f"{_PORT} must be a port, not {text!r:.40}")
    try:
        import debugpy
    except ImportError:
        raise Misconfigured("the package debugpy is not installed: pip install debugpy") from None
    try:
        debugpy.listen(("127.0.0.1", int(text)))  # an interpreter of its own, by the path of this one
    except RuntimeError as error:
        raise Misconfigured(f"no debugger can attach at port {text}: {error}") from None
    print(say(f"A debugger can attach at 127.0.0.1:{text}; the command begins then."), file=sys.stderr, flush=True)
    debugpy.wait_for_client()
