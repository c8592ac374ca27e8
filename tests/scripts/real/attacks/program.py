"""The program that carries out attacks: it runs in the sandbox and, to show that they work, without one."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from tests.scripts.real.attacks import on_files, on_kernel, on_network, on_others, on_processes, on_resources  # noqa: F401
from tests.scripts.real.attacks.attack import ATTACKS, Attack, attempt, say


def main() -> None:
    """Carry out the attacks that stdin names, and print what became of each."""
    common = json.loads(sys.stdin.readline())
    if common["degraded"]:
        common["output"] = os.environ["TAVERN_OUTPUT"]
        common["cache"] = common["output"] + "/cache"
        os.makedirs(common["cache"], exist_ok=True)
    print("began", common["token"], os.readlink("/proc/self/ns/pid"), flush=True)
    attacks = [ATTACKS[name] for name in common["names"]]
    if attacks[0].alone and len(attacks) == 1:
        say(*attempt(attacks[0], common))
    else:
        print("ended", json.dumps([in_a_process(each, common) for each in attacks], default=str), flush=True)


def in_a_process(one: Attack, common: dict[str, Any]) -> tuple[object, str]:
    """Carry out an attack in a process of its own, so that it leaves this one as it is."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.write(writer, json.dumps(attempt(one, {**common, "tells_by": writer}), default=str).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        said = file.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return json.loads(said) if said else (None, f"signal {-code}")
