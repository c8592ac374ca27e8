"""Runs a child on the descriptor that its one argument names."""

import gc
import os

gc.disable()  # until the plugin is loaded: what is made until then stays
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # as `tavern` does

import asyncio  # noqa: E402
import socket  # noqa: E402
import sys  # noqa: E402

from tavern_isolation.child.main import main  # noqa: E402

asyncio.run(main(socket.socket(fileno=int(sys.argv[1]))))
