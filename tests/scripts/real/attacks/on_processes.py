"""Attacks on the processes of the host: what they hold, signals, debugging, living on, what is inherited from them."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import signal
import subprocess
import termios
import time
from types import SimpleNamespace
from typing import NoReturn

from tests.scripts.real.attacks.attack import attack, say
from tests.scripts.real.attacks.on_files import read
from tests.scripts.real.attacks.on_kernel import called, libc

NOBODY = ("ESRCH", "EPERM", "ENOENT", "EINVAL", "ERR_SYSTEM_ERROR")
LIVES_ON = {"alone": True, "keeps_its_loot": True, "survives": True}
GOES_ON = {"alone": True, "keeps_its_loot": True, "ends": ("wall",), "goes_on": 0.5}
ENDLESS = {"extra": {"is_endless": True}, "control": {"is_endless": False}}


@attack("nothing")
def reads_its_environment_for_secrets(target: SimpleNamespace) -> object:
    return [value for value in os.environ.values() if target.needle in value]


@attack("nothing")
def reads_environment_and_arguments_of_every_process(target: SimpleNamespace) -> object:
    found = []
    for pid in [*filter(str.isdecimal, os.listdir("/proc")), target.victim_pid, os.getppid(), 1, 2]:
        for name in ("environ", "cmdline", f"task/{pid}/environ"):
            try:
                found += [text for text in read(f"/proc/{pid}/{name}").split("\0") if target.needle in text]
            except OSError:
                pass
    return found


@attack("nothing", extra={"pid": 1}, control={"pid": "self"})
def reads_the_memory_of_the_first_process(target: SimpleNamespace) -> object:
    found, needle = set(), target.needle.encode()
    try:
        areas, memory = read(f"/proc/{target.pid}/maps").splitlines(), open(f"/proc/{target.pid}/mem", "rb")
    except OSError:
        return None
    for first, last in [[int(end, 16) for end in area.split()[0].split("-")] for area in areas if " rw" in area]:
        try:
            memory.seek(first)
            data = memory.read(min(last - first, 1 << 26))
        except (OSError, ValueError, OverflowError):
            continue
        words = [part[:24].split(b"\0")[0] for part in data.split(needle)[1:]]
        found |= {word for word in words if len(word) == 24}
    return sorted(needle + word for word in found)


@attack("nothing", degraded="the pids of the host are not hidden", extra={"above": 999}, control={"above": 0})
def takes_the_pids_of_the_host_from_proc(target: SimpleNamespace) -> object:
    return [pid for pid in os.listdir("/proc") if pid.isdecimal() and int(pid) > target.above]


@attack(namespaced=True, keeps_its_loot=True)
def sends_a_signal_to_all_processes_that_there_are(target: SimpleNamespace) -> object:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGURG, lambda *_: os._exit(9))
        os.write(writer, b"x")
        time.sleep(60)
    os.read(reader, 1)
    os.kill(-1, signal.SIGURG)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@attack("EPERM", "ENOSYS")
def debugs_a_process_of_the_host(target: SimpleNamespace) -> object:
    return called(libc.ptrace(0x4206, target.victim_pid, None, None), "seized")


@attack("EPERM", "ENOSYS")
def debugs_another_process_of_its_own(target: SimpleNamespace) -> object:
    """So that it is free of its own filter."""
    with subprocess.Popen(["sleep", "5"]) as child:
        try:
            return called(libc.ptrace(0x4206, child.pid, None, None), "seized")
        finally:
            child.kill()


@attack("ENOENT", "EACCES")
def opens_the_memory_of_a_process_of_the_host(target: SimpleNamespace) -> object:
    with open(f"/proc/{target.victim_pid}/mem", "rb") as memory:
        memory.seek(target.victim_address)
        return memory.read(38).decode()


@attack("EPERM", "ENOSYS")
def takes_a_descriptor_from_a_process_of_the_host(target: SimpleNamespace) -> object:
    try:
        process = os.pidfd_open(target.victim_pid)
    except OSError:
        process = os.pidfd_open(os.getpid())
    taken = libc.syscall(438, process, target.victim_descriptor, 0)
    called(taken, "pidfd_getfd")
    return os.pread(taken, 100, 0).decode()


@attack("nothing")
def reads_from_what_it_inherits(target: SimpleNamespace) -> object:
    found = []
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and number != target.tells_by:
            try:
                found.append(os.pread(number, 100, 0).decode())
            except OSError as problem:
                found += [] if problem.errno == errno.EBADF else [os.readlink(f"/proc/self/fd/{number}")]
    return found


@attack("EPERM", "ENOTTY", extra={"types": True}, control={"types": False})
def types_into_the_terminal_of_the_host(target: SimpleNamespace) -> object:
    problems = []
    for path in ("/dev/tty", "/dev/console", "/dev/tty0", "/dev/pts/0", "/proc/1/fd/0", 0, 1, 2):
        try:
            number = path if isinstance(path, int) else os.open(path, os.O_RDWR | os.O_NONBLOCK)
            if target.types:
                fcntl.ioctl(number, termios.TIOCSTI, b"#")
            if target.types or os.isatty(number):
                return "typed"
        except OSError as problem:
            problems.append(problem)
    raise problems[-1]


@attack("ENXIO", "ENOENT", "EACCES")
def opens_the_terminal_that_the_host_was_started_from(target: SimpleNamespace) -> object:
    return os.ttyname(os.open("/dev/tty", os.O_RDWR))


@attack(*NOBODY)
def changes_limits_and_priority_of_a_process_of_the_host(target: SimpleNamespace) -> object:
    done, problems = [], []
    for what in (
        lambda: resource.prlimit(target.victim_pid, resource.RLIMIT_NOFILE, (4, 4096)),
        lambda: os.setpriority(os.PRIO_PROCESS, target.victim_pid, 19),
        lambda: os.sched_setaffinity(target.victim_pid, {0}),
    ):
        try:
            what()
            done.append(1)
        except OSError as problem:
            problems.append(problem)
    if not done:
        raise problems[0]
    return done


class Piece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


@attack("EPERM", "ENOSYS")
def reads_and_writes_the_memory_of_a_process_of_the_host(target: SimpleNamespace) -> object:
    theirs, done = Piece(target.victim_address, 38), []
    for call in (libc.process_vm_readv, libc.process_vm_writev):
        held = ctypes.create_string_buffer(b"spoilt", 64)
        mine = Piece(ctypes.addressof(held), 38)
        if call(target.victim_pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0) >= 0:
            done.append(held.value.decode())
    return done or called(-1, "process_vm")


@attack(*NOBODY)
def stops_a_process_of_the_host_by_its_descriptor(target: SimpleNamespace) -> object:
    signal.pidfd_send_signal(os.pidfd_open(target.victim_pid), signal.SIGSTOP)
    return "sent"


@attack(*NOBODY, damages="the victim")
def ends_a_process_of_the_host(target: SimpleNamespace) -> object:
    os.kill(target.victim_pid, signal.SIGKILL)
    return "sent"


def _sleeps() -> NoReturn:
    while True:
        time.sleep(1)


def _ignore_signals() -> None:
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass


@attack(**LIVES_ON)
def leaves_a_process_behind_that_ignores_all_signals(target: SimpleNamespace) -> object:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            _ignore_signals()
            os.closerange(0, 64)
            _sleeps()
        os._exit(0)
    os.wait()
    return "left"


@attack(**LIVES_ON)
def leaves_a_process_behind_that_holds_its_outputs_open(target: SimpleNamespace) -> object:
    if os.fork() == 0:
        os.setsid()
        _sleeps()
    return "left"


@attack(**GOES_ON, **ENDLESS, survives=True)
def ignores_every_signal_and_outlives_its_time_with_children(target: SimpleNamespace) -> object:
    _ignore_signals()
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            _sleeps()
    say("it goes on")
    while target.is_endless:
        time.sleep(0.1)
    os._exit(0)


@attack(**GOES_ON, **ENDLESS)
def closes_its_outputs_and_goes_on(target: SimpleNamespace) -> object:
    say("it goes on")
    os.closerange(0, 3)
    while target.is_endless:
        time.sleep(0.1)
    os._exit(0)


@attack(**GOES_ON, **ENDLESS)
def stops_itself_so_that_nothing_of_it_ends(target: SimpleNamespace) -> object:
    say("it stops")
    while target.is_endless:
        os.kill(0, signal.SIGSTOP)
    os._exit(0)
