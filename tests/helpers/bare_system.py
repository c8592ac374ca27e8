"""Takes from Python, before the host is imported, what systems without POSIX do not have. Windows itself is not tested.

    PYTHONPATH=tests/helpers pytest -p bare_system -m fast -n auto

Libraries that choose by the name of the system have chosen before; only the host's own code misses what is gone.
"""

import asyncio
import importlib
import os
import select
import sys
from contextlib import suppress
from pathlib import Path

MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "pty", "tty")
NAMES = (
    *("O_DIRECTORY", "O_PATH", "fwalk", "fchown", "lchown", "killpg", "setsid", "fork"),
    *("memfd_create", "pidfd_open"),
)
CHOSEN_BEFORE = (
    *("filelock", "platformdirs", "subprocess", "shutil", "tempfile", "multiprocessing.util", "logging.handlers"),
    *("http.server", "anyio", "aiohttp", "argon2", "xdist", "psutil", "hypothesis", "execnet"),
    *("mcp.server.stdio", "mcp.client.stdio", "distributed"),
)

for name in CHOSEN_BEFORE:
    with suppress(ImportError):
        importlib.import_module(name)
asyncio.SelectorEventLoop.add_signal_handler = asyncio.AbstractEventLoop.add_signal_handler  # type: ignore[method-assign]
for name in MODULES:
    sys.modules[name] = None  # type: ignore[assignment]
for name in NAMES:
    delattr(os, name)
os.supports_dir_fd.clear()
os.supports_fd.clear()
del select.epoll
assert "tavern_host.common.system" not in sys.modules


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the other lane: its tests need processes and sandboxes as Linux has them."""
    return True if collection_path.name == "real" else None
