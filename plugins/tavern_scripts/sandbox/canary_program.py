"""What runs inside of a sandbox to find out whether it holds: each check tries to break one property and says what
came of it. It is run as a program of its own and imports nothing but the standard library.

Every attempt does no harm where it succeeds, since a sandbox that does not hold is what this is there to find: files
are opened and not changed, what is made is removed, signals are those that do nothing, and calls have arguments that a
kernel turns down.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import resource
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

Facts = dict[str, Any]
Finding = tuple[bool, str]

CALLS = {  # (x86-64, aarch64), arguments that do no harm, and the errors that a filter answers with
    "ptrace": ((101, 117), (17, 0, 0, 0), (errno.EPERM,)),
    "process_vm_readv": ((310, 270), (1, 0, 0, 0, 0, 0), (errno.EPERM,)),
    "mount": ((165, 40), (0, 0, 0, 0, 0), (errno.EPERM,)),
    "umount2": ((166, 39), (0, 0), (errno.EPERM,)),
    "open_tree": ((428, 428), (-100, 0, 0), (errno.EPERM,)),
    "unshare": ((272, 97), (0x10000000,), (errno.EPERM,)),
    "setns": ((308, 268), (-1, 0), (errno.EPERM,)),
    "clone3": ((435, 435), (0, 0), (errno.ENOSYS,)),
    "keyctl": ((250, 219), (0, 0, 0), (errno.EPERM,)),
    "add_key": ((248, 217), (0, 0, 0, 0, 0), (errno.EPERM,)),
    "bpf": ((321, 280), (0, 0, 0), (errno.EPERM,)),
    "io_uring_setup": ((425, 425), (1, 0), (errno.ENOSYS,)),
    "perf_event_open": ((298, 241), (0, 0, 0, 0, 0), (errno.EPERM,)),
    "userfaultfd": ((323, 282), (0,), (errno.EPERM,)),
    "memfd_create": ((319, 279), (0, 0), (errno.ENOSYS,)),
    "open_by_handle_at": ((304, 265), (-1, 0, 0), (errno.EPERM,)),
    "kexec_load": ((246, 104), (0, 1 << 20, 0, 0xFFFF), (errno.EPERM,)),
    "init_module": ((175, 105), (0, 0, 0), (errno.EPERM,)),
    "shmget": ((29, 194), (0, 0, 0o1600), (errno.ENOSYS,)),
    "personality": ((135, 92), (0x0040000,), (errno.EPERM,)),
}
_FAMILIES = {"netlink": 16, "packet": 17, "vsock": 40, "alg": 38, "bluetooth": 31}
_TIOCSTI = 0x5412
_ALLOCATED = 1 << 20


def _tried(action: Callable[..., object], *arguments: object) -> str:
    """Return the name of the error that an action fails with, or '' where it does not fail."""
    try:
        action(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return ""


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(1)


def _make(path: str) -> None:
    """Make a file that was not there, and remove it."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    os.unlink(path)


def _open_for_writing(path: str) -> None:
    """Open a file as if to write to it, and leave it as it is."""
    os.close(os.open(path, os.O_WRONLY))


def _put_back(path: str, other: str) -> None:
    """Rename a file, and give it its name back."""
    os.rename(path, other)
    os.rename(other, path)


def _make_device(path: str) -> None:
    os.mknod(path, 0o60600, os.makedev(8, 0))
    os.unlink(path)


def _all_fail(attempts: dict[str, str]) -> Finding:
    """Return whether each attempt failed, and those that did not."""
    done = [name for name, error in attempts.items() if not error]
    return not done, f"possible: {', '.join(done)}" if done else f"{len(attempts)} attempts failed"


def _status() -> dict[str, str]:
    with open("/proc/self/status", encoding="utf-8") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def rights(facts: Facts) -> Finding:
    user = os.getuid()
    try:
        status = _status()
    except PermissionError:
        return user != 0, f"uid {user}"
    sets = [status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")]
    none = all(int(value, 16) == 0 for value in (sets if facts["bounded"] else sets[:3]))
    good = user != 0 and os.getgid() != 0 and none and status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    groups = [group for group in os.getgroups() if group != os.getgid() and group != facts["overflow"]]
    seen = f"uid {user}, capabilities {'none' if none else sets}, no_new_privs {status['NoNewPrivs']}, "
    return good and not (facts["bounded"] and groups), f"{seen}seccomp {status['Seccomp']}, groups {groups}"


def files(facts: Facts) -> Finding:
    def through(path: str) -> str:
        return _tried(_read, path + facts["secret"])

    attempts = {f"{path or '/'} reading": through(path) for path in ("", "/proc/1/root", "/proc/self/root", "/..")}
    attempts["listing"] = _tried(os.listdir, os.path.dirname(facts["secret"]))
    attempts["a password file"] = _tried(_read, "/etc/shadow")
    return _all_fail(attempts)


def read_only(facts: Facts) -> Finding:
    name, inside = facts["token"], facts["read"]
    attempts = {
        f"making {folder}": _tried(_make, f"{folder}/{name}") for folder in ("", "/usr", "/etc", "/dev", inside)
    }
    files = (f"{inside}/given", "/etc/passwd", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger")
    attempts |= {f"writing {path}": _tried(_open_for_writing, path) for path in files}
    attempts["renaming"] = _tried(_put_back, f"{inside}/given", f"{inside}/other")
    attempts["device"] = _tried(_make_device, f"{facts['scratch']}/{name}")
    with open(f"{inside}/given", encoding="utf-8") as file:
        control = file.read() == "given"
    holds, said = _all_fail(attempts)
    return holds and control, said if control else "what was given could not be read"


def sizes(facts: Facts) -> Finding:
    results = {}
    for folder in (facts["scratch"], "/dev/shm", facts["staged"]):
        path, written = f"{folder}/{facts['token']}", 0
        try:
            with open(path, "wb", buffering=0) as file:
                while written < facts["size"] * 2:
                    written += file.write(bytes(_ALLOCATED))
        except OSError:
            pass
        os.unlink(path)
        results[folder] = written
    return all(0 < size <= facts["size"] for size in results.values()), f"bytes that could be written: {results}"


def file_size(facts: Facts) -> Finding:
    path = f"{facts['scratch']}/{facts['token']}-long"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    error = _tried(os.truncate, path, facts["file_size"] + 1)
    os.unlink(path)
    return bool(error), f"a file that is too long: {error or 'possible'}"


def processes(facts: Facts) -> Finding:
    pids = [name for name in os.listdir("/proc") if name.isdecimal()]
    known = [pid for pid in facts["pids"] if not _tried(os.kill, pid, 0) and str(pid) not in pids]
    return len(pids) <= 4 and not known and os.getpid() < 1000, f"{len(pids)} seen, pid {os.getpid()}"


def signals(facts: Facts) -> Finding:
    return _all_fail({f"signal to {pid}": _tried(os.kill, pid, 0) for pid in facts["pids"]})


def environment(facts: Facts) -> Finding:
    found = []
    try:
        names = os.listdir("/proc")
    except PermissionError:
        names = []
    for name in names:
        if name.isdecimal() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if file.read():
                        found.append(name)
            except OSError:
                continue
    own = [name for name in os.environ if name not in facts["variables"]]
    return not found and not own, f"variables of the host: {own or 'none'}, seen of other processes: {found or 'none'}"


def network(facts: Facts) -> Finding:
    def connect(family: int, address: Any) -> None:
        with socket.socket(family, socket.SOCK_STREAM) as made:
            made.settimeout(1)
            made.connect(address)

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
            made.sendto(b"x", ("192.0.2.1", 9))

    attempts = {
        "TCP to the host": _tried(lambda: connect(socket.AF_INET, ("127.0.0.1", facts["port"]))),
        "TCP to elsewhere": _tried(lambda: connect(socket.AF_INET, ("192.0.2.1", 9))),
        "UDP": _tried(send),
        "an abstract socket": _tried(lambda: connect(socket.AF_UNIX, "\0" + facts["abstract"])),
        "a socket in a folder": _tried(lambda: connect(socket.AF_UNIX, facts["socket"])),
        "raw": _tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close()),
    }
    return _all_fail(attempts)


def families(facts: Facts) -> Finding:
    made = {name: _tried(socket.socket, kind, 3) for name, kind in _FAMILIES.items()}
    filtered = all(error == "EAFNOSUPPORT" for error in made.values())
    return filtered, f"{made}"


def namespaces(facts: Facts) -> Finding:
    same = [name for name, number in facts["namespaces"].items() if os.readlink(f"/proc/self/ns/{name}") == number]
    return not same, f"shared with the host: {', '.join(same) or 'none'}"


def calls(facts: Facts) -> Finding:
    library = ctypes.CDLL(None, use_errno=True)
    column = 0 if platform.machine() == "x86_64" else 1
    passed = []
    for name, (numbers, arguments, answers) in CALLS.items():
        ctypes.set_errno(0)
        result = library.syscall(ctypes.c_long(numbers[column]), *(ctypes.c_long(each) for each in arguments))
        if result != -1 or ctypes.get_errno() not in answers:
            passed.append(f"{name} ({errno.errorcode.get(ctypes.get_errno(), result)})")
    ctypes.set_errno(0)
    flags = 0x10000000 | 17
    child = library.syscall(ctypes.c_long((56, 220)[column]), ctypes.c_long(flags), *[ctypes.c_long(0)] * 4)
    if child == 0:
        os._exit(0)
    if child > 0:
        os.waitpid(child, 0)
        passed.append("clone with a user namespace")
    return not passed, f"not filtered: {', '.join(passed)}" if passed else f"{len(CALLS) + 1} filtered"


def terminals(facts: Facts) -> Finding:
    import fcntl

    typed = _tried(lambda: fcntl.ioctl(0, _TIOCSTI, b"x"))
    opened = _tried(_read, "/dev/tty")
    return typed == "EPERM" and bool(opened), f"typing: {typed or 'possible'}, the terminal: {opened or 'possible'}"


def session(facts: Facts) -> Finding:
    return os.getsid(0) != facts["session"], f"session {os.getsid(0)}"


def descriptors(facts: Facts) -> Finding:
    there = [number for number in range(3, 256) if not _tried(os.fstat, number)]
    names = [os.readlink(f"/proc/self/fd/{number}") for number in there if os.path.exists("/proc/self/fd")]
    return not there, f"besides stdin, stdout and stderr: {names or there or 'none'}"


def limits(facts: Facts) -> Finding:
    wrong = []
    for name, wanted in facts["limits"].items():
        kind = getattr(resource, name)
        if max(resource.getrlimit(kind)) > wanted:
            wrong.append(f"{name} is {resource.getrlimit(kind)}")
        try:
            resource.setrlimit(kind, (wanted + 10, wanted + 10))
            wrong.append(f"{name} can be raised")
        except (OSError, ValueError):
            continue
    return not wrong, ", ".join(wrong) or f"{len(facts['limits'])} in force"


def forks(facts: Facts) -> Finding:
    children: list[int] = []
    error = ""
    while len(children) < facts["processes"] + 8:
        try:
            child = os.fork()
        except OSError as failed:
            error = errno.errorcode.get(failed.errno or 0, "")
            break
        if child == 0:
            time.sleep(10)
            os._exit(0)
        children.append(child)
    for child in children:
        os.kill(child, 9)
        os.waitpid(child, 0)
    return error == "EAGAIN" and len(children) > 0, f"{len(children)} more processes, then {error or 'no end'}"


def leave_behind(facts: Facts) -> Finding:
    """Leave what must not stay: a process that outlives this one, and in the staged folder links to elsewhere."""
    with open(f"{facts['staged']}/kept", "w", encoding="utf-8") as file:
        file.write("kept")
    os.symlink("/etc/passwd", f"{facts['staged']}/link")
    os.mkfifo(f"{facts['staged']}/pipe")
    with open(f"{facts['staged']}/one", "w", encoding="utf-8") as file:
        file.write("x")
    os.link(f"{facts['staged']}/one", f"{facts['staged']}/two")
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            import signal

            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            time.sleep(30)
        os._exit(0)
    return True, "left"


CHECKS: dict[str, Callable[[Facts], Finding]] = {
    "rights": rights,
    "files": files,
    "read-only": read_only,
    "sizes": sizes,
    "file size": file_size,
    "processes": processes,
    "signals": signals,
    "environment": environment,
    "network": network,
    "socket families": families,
    "namespaces": namespaces,
    "system calls": calls,
    "terminals": terminals,
    "session": session,
    "descriptors": descriptors,
    "limits": limits,
    "forks": forks,
}


def main() -> None:
    """Carry out the checks that stdin names, in the folders that the arguments name, and print what came of each."""
    facts = json.load(sys.stdin) | dict(zip(("read", "staged", "scratch"), sys.argv[1:], strict=False))
    found = []
    for name, check in CHECKS.items():
        if name in facts["checks"]:
            try:
                found.append([name, *check(facts)])
            except Exception as error:
                found.append([name, False, f"{type(error).__name__}: {error}"])
    leave_behind(facts)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
