"""Starts the hosts that are attacked, as root and as an ordinary user, and hands attacks to them."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import pty
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.scripts.ordinary import as_ordinary_user, why_not
from tests.scripts.real.attacks.attack import MEGABYTE, Attack
from tests.scripts.real.attacks.playground import Playground

ORDINARY = 64321
"""The user that the ordinary host runs as where the tests are run by root: one that nobody has."""

HOSTS = {"user": "bubblewrap", "root": "bubblewrap-root", "degraded": "landlock"}
"""The hosts by name, with the sandbox of each: that of root is made by root, the others by an ordinary user."""

Language = Literal["python", "nodejs"]
NAMES = {"python": "attack.py", "nodejs": "attack.mjs"}
_ROOT = Path(__file__).parents[4]
_SECRET = "TAVERN-SECRET-"
_numbers = itertools.count()


class Unavailable(Exception):
    """This machine does not have such a host; the message says why."""


@dataclass(frozen=True)
class Observed:
    """What was seen of one run: what it printed, and how it ended. `reason` is the sandbox's, `wall` the time limit,
    `output` the limit of what it may print."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    reason: str | None = None
    note: str = ""
    peak_of_host: int = 0
    """By how many bytes the host's own memory grew meanwhile."""
    spoke_at: float = float("inf")
    """When something last came of it, in seconds since this machine was started: it lived then."""
    survivors: int = 0
    """How many processes lived on, of an attack without a sandbox."""

    @property
    def namespace(self) -> str:
        """The namespace of processes in which it ran."""
        return ([*self.stdout.partition("began ")[2].split(), "", ""])[1]

    @property
    def verdicts(self) -> list[tuple[Any, str]]:
        """What each attack got, and what stopped it."""
        said = [line for line in self.stdout.splitlines() if line.startswith("ended [")]
        return json.loads(said[0].removeprefix("ended ")) if said else []

    @property
    def end(self) -> str:
        """How it ended."""
        code = self.exit_code
        return self.reason or (f"signal {-code}" if code is not None and code < 0 else f"exit {code}")


@dataclass
class HostProcess:
    """A host that runs. `opened` says where its servers are."""

    name: str
    user: int
    folder: Path
    secret: str
    process: subprocess.Popen[bytes]
    opened: dict[str, Any]
    link: socket.socket
    terminal: int
    _reader: Any = field(init=False)
    _waiting: dict[int, dict[str, Any]] = field(init=False, default_factory=dict)
    _ids: Iterator[int] = field(init=False, default_factory=itertools.count)

    def __post_init__(self) -> None:
        """Make ready to read what it answers."""
        self._reader = self.link.makefile("rb")

    @property
    def is_degraded(self) -> bool:
        """Whether this backend enforces less, and is used only if the operator says so."""
        return self.name == "degraded"

    @property
    def temporary(self) -> list[str]:
        """What it keeps in its folder for temporary files."""
        return sorted(path.name for path in (self.folder / "temporary").iterdir())

    def begin(self, do: str, **job: Any) -> int:
        """Ask for something and return the number of the question."""
        number = next(self._ids)
        self.link.sendall(json.dumps({"do": do, "id": number, **job}).encode() + b"\n")
        return number

    def answer(self, number: int) -> dict[str, Any]:
        """Wait for the answer to a question."""
        while number not in self._waiting:
            line = self._reader.readline()
            assert line, "the host has ended"
            read: dict[str, Any] = json.loads(line)
            self._waiting[read.pop("id")] = read
        answer = self._waiting.pop(number)
        assert "failed" not in answer, answer["failed"]
        return answer

    def ask(self, do: str, **job: Any) -> dict[str, Any]:
        """Ask for something and wait for the answer."""
        return self.answer(self.begin(do, **job))

    def playground(self) -> Playground:
        """Return a new playground with the attacks in it."""
        ground = Playground(self.folder / f"ground-{next(_numbers)}", self.secret, self.user)
        ground.ready()
        return ground

    def target(self, attacks: Sequence[Attack], ground: Playground, *, inside: bool, round: int = 0) -> dict[str, Any]:
        """Return what attacks are told of where things are."""
        token = token_of(ground)
        victim = {key: value for key, value in self.ask("state").items() if key.startswith("victim_")}
        is_namespaced = any(each.namespaced for each in attacks)
        return {
            **self.opened,
            **victim,
            "names": [each.name for each in attacks],
            "of": {each.name: {**each.extra, **({} if inside else each.control)} for each in attacks},
            "inside": inside,
            "token": token,
            "needle": _SECRET,
            "round": round,
            "outside": str(ground.outside),
            "climb": "../" * 20 + str(ground.outside).lstrip("/"),
            "degraded": inside and self.is_degraded,
            "script": "/script" if inside and not self.is_degraded else str(ground.script),
            "output": "/output" if inside else str(ground.output),
            "cache": "/script/.cache" if inside else str(ground.kept / ".cache"),
            "guarded": is_namespaced,
            "mounts": os.readlink(f"/proc/{self.process.pid}/ns/mnt"),
        }

    def start(
        self,
        attacks: Sequence[Attack],
        language: Language,
        ground: Playground,
        *,
        inside: bool = True,
        round: int = 0,
        **more: Any,
    ) -> int:
        """Begin to run attacks once, in the sandbox or without one, and return the number of the run."""
        target = self.target(attacks, ground, inside=inside, round=round)
        return self.begin(
            "run" if inside else "outside",
            language=language,
            name=NAMES[language],
            script=str(ground.script),
            output=str(ground.output),
            kept=str(ground.kept),
            input=json.dumps(target) + "\n",
            token=token_of(ground),
            limits=dict(attacks[0].limits),
            goes_on=attacks[0].goes_on,
            output_limit=MEGABYTE,
            namespaced=target["guarded"],
            writes=[] if self.is_degraded else [".cache"],
            **{"wall": 200, **more},
        )

    def end(self, number: int) -> Observed:
        """Wait for what was observed of a run."""
        return Observed(**self.answer(number))

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            self.link.shutdown(socket.SHUT_WR)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        self.kill()

    def kill(self) -> None:
        """End it as the system does when memory runs out: it can do nothing any more."""
        self.process.kill()
        self.process.wait()

    def free(self) -> None:
        """Give up what this side has of it."""
        self._reader.close()
        self.link.close()
        os.close(self.terminal)
        shutil.rmtree(self.folder, ignore_errors=True)


def token_of(ground: Playground) -> str:
    """Return the word that marks everything of one run."""
    return f"{mark_of(ground.secret)}{ground.root.name}"


def mark_of(secret: str) -> str:
    """Return the beginning of such a word, which all attacks on one host share."""
    return f"tavern-attack-{secret[-8:]}-"


def start(name: str) -> HostProcess:
    """Start a host, with a terminal and an open file that whatever it starts could inherit. Raises `Unavailable`."""
    if name == "root" and os.geteuid() != 0:
        raise Unavailable("the tests are not run by root")
    user = 0 if name == "root" else ORDINARY if os.geteuid() == 0 else os.geteuid()
    if user != os.geteuid() and (reason := why_not()):
        raise Unavailable(reason)
    secret = _SECRET + secrets.token_hex(12)
    folder = Path(tempfile.mkdtemp(prefix="tavern-attacked-"))
    folder.chmod(0o755)
    for path in (folder, folder / "temporary", folder / "spare"):
        path.mkdir(exist_ok=True)
        os.chown(path, user, user)
    (folder / "inherited.txt").write_text(secret)
    ours, theirs = socket.socketpair()
    terminal, slave = pty.openpty()
    inherited = os.open(folder / "inherited.txt", os.O_RDONLY)
    environment = {
        **{name: value for name, value in os.environ.items() if name == "PYTHONPYCACHEPREFIX"},
        "PATH": os.environ.get("PATH", os.defpath),
        "PYTHONPATH": os.pathsep.join([str(_ROOT), *filter(None, sys.path)]),
        "HOME": str(folder),
        "TMPDIR": str(folder / "temporary"),
        "TAVERN_SECRET": secret,
        "OPENAI_API_KEY": secret,
    }

    def enter() -> None:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    argv = [sys.executable, "-m", "tests.scripts.real.attacks.host", HOSTS[name], str(folder), str(theirs.fileno())]
    if user != os.geteuid():
        argv = as_ordinary_user(argv, user=user, spare=folder / "spare", cwd=folder)
    process = subprocess.Popen(
        argv,
        stdin=slave,
        stdout=subprocess.DEVNULL,
        env=environment,
        cwd=folder,
        preexec_fn=enter,
        pass_fds=[theirs.fileno(), inherited],
    )
    for number in (slave, inherited):
        os.close(number)
    theirs.close()
    host = HostProcess(name, user, folder, secret, process, {}, ours, terminal)
    said = json.loads(host._reader.readline() or '{"missing": ["it ended at once"]}')
    host.opened = said.get("opened", {})
    if said["missing"]:
        host.kill()
        host.free()
        raise Unavailable("; ".join(said["missing"]))
    return host


def processes_of(observed: Observed, token: str) -> list[str]:
    """Return the processes of an attack that still run: by the namespace of processes that it was in, and by its mark.

    The number of a namespace is given to another one as soon as this one is gone, so only what is older than the last
    word of the attack counts; and a process that is dead counts for whoever is to take note of it, not for the attack.
    """
    found = []
    tick = os.sysconf("SC_CLK_TCK")
    ours = os.readlink("/proc/self/ns/pid")
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        namespace, command, state = "", "", ""
        with contextlib.suppress(OSError):
            namespace = os.readlink(f"/proc/{pid}/ns/pid")
        with contextlib.suppress(OSError):
            command = Path("/proc", pid, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        if (namespace == observed.namespace and namespace not in ("", ours)) or token in command:
            with contextlib.suppress(OSError):
                state = Path("/proc", pid, "stat").read_text()
            words = state.rpartition(")")[2].split()
            if words and words[0] not in ("Z", "X") and int(words[19]) / tick < observed.spoke_at:
                found.append(f"{pid}: {command or state}")
    return found


def wait_for_nothing(token: str, seconds: float) -> list[str]:
    """Wait until nothing is left of attacks, and return what is nevertheless."""
    until = time.monotonic() + seconds
    while (left := processes_of(Observed(), token)) and time.monotonic() < until:
        time.sleep(0.02)
    return left
