"""Runs a child on the descriptor that its one argument names."""

import asyncio
import socket
import sys

from tavern_isolation.child.main import main

asyncio.run(main(socket.socket(fileno=int(sys.argv[1]))))
