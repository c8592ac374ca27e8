"""Isolated nodes that behave well and badly. The process of a node imports this module as the test does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Annotated, Any, TypedDict

from tavern_host import Config, InvalidInput, NodeDefinition, node


class Halves(TypedDict):
    left: str
    right: str


@node(isolated=True)
def echo(value: Any, times: Annotated[int, Config()] = 1) -> list[Any]:
    return [value] * times


@node(isolated=True)
def halve(text: str) -> Halves:
    middle = len(text) // 2
    return {"left": text[:middle], "right": text[middle:]}


@node(isolated=True, definition=NodeDefinition(type="Raw", namespace="acme"))
def raw(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    return {"inputs": inputs, "config": config, "pid": os.getpid()}


@node(isolated=True)
def talk(text: str) -> str:
    print(text)
    os.write(1, text.encode())
    subprocess.run(["echo", text], check=True)
    return sys.stdin.read() + text


@node(isolated=True)
def end_badly(how: str) -> Any:
    match how:
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "exit":
            os._exit(3)
        case "sys.exit":
            sys.exit(3)
        case "kill the group":
            os.killpg(0, signal.SIGKILL)
        case "raise":
            raise ValueError("boom")
        case "refuse":
            raise InvalidInput("not that", wanted=["this"])
        case "odd error":
            raise InvalidInput("odd", share=float("inf"))
        case "set":
            return [{1, 2}]
        case "nan":
            return float("nan")
        case "deep":
            deep: list[Any] = []
            for _ in range(100_000):
                deep = [deep]
            return deep
    return how


@node(isolated=True)
def leave_behind(what: str) -> list[int]:
    """Start something that goes on for a minute, and end."""
    if what == "thread":
        threading.Thread(target=time.sleep, args=(60,)).start()
        return [os.getpid()]
    if what == "fork":
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        return [os.getpid(), child]
    return [os.getpid(), subprocess.Popen(["sleep", "60"]).pid]


@node(isolated=True)
def hang(note: str, how: str = "hold") -> None:
    """Write down the ids of this process, its parent and one that it starts, then go on for ever."""
    child = subprocess.Popen(["sleep", "60"])
    written = Path(f"{note}.part")
    written.write_text(f"{os.getpid()} {os.getppid()} {child.pid}")
    written.rename(note)
    match how:
        case "hold":
            re.match("(a+)+$", "a" * 60 + "b")  # never lets go of the interpreter
        case "stop":
            os.killpg(0, signal.SIGSTOP)
        case "leave":
            os.setsid()
        case "close":
            os.closerange(0, 50)
    time.sleep(60)
