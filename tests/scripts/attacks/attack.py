"""What an attack is, and the program that is made of it. It runs nothing; see `table` for how to add one."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Language = Literal["python", "nodejs"]

MEGABYTE = 1 << 20

SHARED = "it is root among the mounts of the host"
"""The loot of an attack on namespaces that has got that far without doing anything: it would do harm there."""

_PYTHON = """\
import ctypes, errno, json, os, signal, socket, subprocess, sys, time
target = json.loads(sys.stdin.readline())
if target["degraded"]:
    target["output"] = os.environ["TAVERN_OUTPUT"]
    target["cache"] = target["output"] + "/cache"
    os.makedirs(target["cache"], exist_ok=True)
print("began", target["token"], os.readlink("/proc/self/ns/pid"), flush=True)

def attack(target):
{body}

loot = error = None
try:
    unsafe = target["guarded"] and os.geteuid() == 0 and os.readlink("/proc/self/ns/mnt") == target["mounts"]
    loot = "SHARED" if unsafe else attack(target)
    error = None if loot else "nothing"
except OSError as problem:
    error = errno.errorcode.get(problem.errno, repr(problem))
except BaseException as problem:
    error = f"{{type(problem).__name__}}: {{problem}}"
print("ended", json.dumps({{"loot": loot, "error": error}}, default=str), flush=True)
"""

_NODEJS = """\
import fs from "node:fs"; import os from "node:os"; import path from "node:path"; import net from "node:net";
import dgram from "node:dgram"; import { spawn, spawnSync } from "node:child_process";
const sleep = (ms) => new Promise((go) => setTimeout(go, ms));
const target = JSON.parse(fs.readFileSync(0, "utf8").split("\\n")[0]);
if (target.degraded) {
  target.output = process.env.TAVERN_OUTPUT;
  target.cache = target.output + "/cache";
  fs.mkdirSync(target.cache, { recursive: true });
}
fs.writeSync(1, `began ${target.token} ${fs.readlinkSync("/proc/self/ns/pid")}\\n`);

async function attack(target) {
BODY
}

let loot = null, error = null;
try {
  const unsafe = target.guarded && process.geteuid() === 0 && fs.readlinkSync("/proc/self/ns/mnt") === target.mounts;
  loot = unsafe ? "SHARED" : ((await attack(target)) ?? null);
  if (!loot || loot.length === 0) error = "nothing";
} catch (problem) {
  error = problem.code ?? String(problem);
}
fs.writeSync(1, `ended ${JSON.stringify({ loot, error })}\\n`);
process.exit(0);
"""


@dataclass(frozen=True)
class Attack:
    """One way to break out, written as the body of a function `attack(target)` that returns its loot or fails.

    `refused` are the errors, or parts of them, one of which must be what stops it inside; `ends` are the ways in which
    the sandbox may end it in their place. `outside` says how the same code is shown to work without a sandbox, with
    the parts of `control` in its target, and `damages` that this is seen in the playground too.
    """

    name: str
    python: str = ""
    nodejs: str = ""
    refused: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    outside: Literal["plain", "namespaced"] = "plain"
    target: Mapping[str, Any] = field(default_factory=dict)
    """What the target has besides the playground."""
    control: Mapping[str, Any] = field(default_factory=dict)
    """What the target has in place of it outside of a sandbox: what is permitted there, or harmless."""
    damages: bool = False
    keeps_its_loot: bool = False
    """What it does inside is allowed there; only what is seen on the host counts."""
    limits: Mapping[str, float] = field(default_factory=dict)
    wall: float = 20
    rounds: int = 1
    """How many times it runs; the loot of the last one counts."""
    survives: bool = False
    """Without a sandbox something of it lives on."""
    degraded: str = ""
    """Why the degraded sandbox does not fend it off: one of those that it says itself."""
    may_lack: str = ""
    """An error of the control that means that this machine does not have what is attacked."""

    def program(self, language: Language) -> str:
        """Return the program that does it."""
        if language == "python":
            body = textwrap.indent(textwrap.dedent(self.python).strip("\n"), "    ")
            return _PYTHON.replace("SHARED", SHARED).format(body=body)
        return _NODEJS.replace("SHARED", SHARED).replace("BODY", textwrap.dedent(self.nodejs).strip("\n"))

    def languages(self) -> Iterator[Language]:
        """Yield the languages that it is written in."""
        if self.python:
            yield "python"
        if self.nodejs:
            yield "nodejs"


@dataclass(frozen=True)
class Observed:
    """What was seen of one run: what it printed, and how it ended. `reason` is the sandbox's, `wall` the time limit,
    `output` the limit of what it may print."""

    stdout: str
    stderr: str
    exit_code: int | None
    reason: str | None
    note: str = ""
    peak_of_host: int = 0
    """By how many bytes the host's own memory grew meanwhile."""
    spoke_at: float = float("inf")
    """When something last came of it, in seconds since this machine was started: it lived then."""
    survivors: int = 0
    """How many processes lived on, of an attack without a sandbox."""

    def began(self, token: str) -> bool:
        """Return whether the attack itself ran."""
        return f"began {token} pid:[" in self.stdout

    @property
    def namespace(self) -> str:
        """The namespace of processes in which it ran."""
        words = self.stdout.partition("began ")[2].split()
        return words[1] if len(words) > 1 else ""

    @property
    def loot(self) -> Any:
        """What it got."""
        return self._said().get("loot")

    @property
    def error(self) -> str:
        """What stopped it, as it says itself."""
        return str(self._said().get("error") or "")

    def _said(self) -> dict[str, Any]:
        for line in self.stdout.splitlines():
            if line.startswith("ended {"):
                said: dict[str, Any] = json.loads(line.removeprefix("ended "))
                return said
        return {}
