"""Attacks on what keeps the sandbox together: namespaces, mounts, rights, limits, and the kernel's less guarded calls."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import resource
import socket
import struct
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.scripts.real.attacks.attack import attack

REFUSED = ("EPERM", "ENOSYS", "not permitted", "denied")
NO_MOUNT = (*REFUSED, "superuser", "failed")
ARM = platform.machine() == "aarch64"
CALLS: list[tuple[Any, ...]] = [
    (425, 425, 1, "held"),  # io_uring_setup
    (426, 426, 0, 0, 0, 0, 0, 0),  # io_uring_enter
    (430, 430, 0, 0),  # fsopen
    (428, 428, -100, 0, 0),  # open_tree
    (429, 429, -1, 0, -1, 0, 0),  # move_mount
    (432, 432, -1, 0, 0),  # fsmount
    (442, 442, -100, 0, 0, 0, 0),  # mount_setattr
    (440, 440, -1, 0, 0, 0, 0),  # process_madvise
    (447, 447, 0),  # memfd_secret
    (443, 443, -1, 0, 0, 0),  # quotactl_fd
    (457, 457, 0, 0, 0, 0),  # statmount
    (250, 219, 0, -3, 1),  # keyctl
    (248, 217, 0, 0, 0, 0, -2),  # add_key
    (321, 280, 99, 0, 0),  # bpf
    (298, 241, "held", 0, -1, -1, 0),  # perf_event_open
    (323, 282, 1),  # userfaultfd
    (303, 264, -100, 0, 0, 0, 0),  # name_to_handle_at
    (304, 265, -100, 0, 0),  # open_by_handle_at
    (300, 262, 0, 0),  # fanotify_init
    (246, 0, 0, 99, 0, -1),  # kexec_load
    (175, 105, 0, 0, 0),  # init_module
    (313, 0, -1, 0, 0),  # finit_module
    (169, 0, 0, 0, 0, 0),  # reboot
    (103, 0, 99, 0, 0),  # syslog
    (163, 0, 1),  # acct
    (167, 0, 0, 0),  # swapon
    (154, 0, 99, 0, 0),  # modify_ldt
    (172, 0, 3),  # iopl
    (29, 194, 0, 4096, 0o1600),  # shmget
    (64, 190, 0, 1, 0o1600),  # semget
    (68, 186, 0, 0o1600),  # msgget
    (240, 180, 0, 0, 0, 0),  # mq_open
    (312, 0, 0, 0, 99, 0, 0),  # kcmp
    (256, 0, 0, 0, 0, 0),  # migrate_pages
    (135, 92, 0x0040000),  # personality
    (227, 0, 0, 0),  # clock_settime
    (155, 0, 0, 0),  # pivot_root
    (444, 444, 0, 0, 1),  # landlock_create_ruleset, its version
]
"""The number of a call on x86_64 and on aarch64, 0 where it is not tried, and its arguments."""

HARMLESS = (430, 428, 440, 250, 248, 303, 312)
"""Those that answer something else than a refusal to anybody, by their number on x86_64."""

SETTINGS = """
    /proc/sysrq-trigger /proc/sys/kernel/core_pattern /proc/sys/kernel/hostname /proc/sys/kernel/modprobe
    /proc/sys/kernel/randomize_va_space /proc/sys/fs/binfmt_misc/register /proc/sys/vm/overcommit_memory
    /proc/sys/vm/drop_caches /proc/sys/net/ipv4/ip_forward /proc/sys/user/max_user_namespaces
    /proc/irq/0/smp_affinity /proc/mtrr /proc/acpi/wakeup /sys/kernel/uevent_helper
    /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/cgroup.procs
"""
MEMORY = """
    /proc/kcore /proc/kmsg /dev/mem /dev/kmem /dev/port /dev/kmsg /proc/kpagecount /dev/vda /dev/sda
    /dev/nvme0n1 /etc/shadow /proc/vmallocinfo /proc/keys /proc/key-users /sys/kernel/debug
    /sys/firmware/dmi/tables/DMI /proc/1/stack /proc/self/stack
"""
libc = ctypes.CDLL(None, use_errno=True)


def called(answer: int, what: object) -> object:
    """Return `what` was done by a call, unless its answer says that it failed."""
    if answer < 0:
        raise OSError(ctypes.get_errno(), str(what))
    return what


def cloned(pid: int) -> object:
    if pid == 0:
        os._exit(0)
    if called(pid, pid):
        os.waitpid(pid, 0)
    return "made"


@attack(*REFUSED)
def makes_a_user_namespace(target: SimpleNamespace) -> object:
    return called(libc.unshare(0x10000000), "made")


@attack(*REFUSED, extra={"clone": 220 if ARM else 56})
def clones_itself_into_a_user_namespace(target: SimpleNamespace) -> object:
    return cloned(libc.syscall(target.clone, 0x10000000 | 17, 0, 0, 0, 0))


@attack("ENOSYS")
def clones_itself_by_the_newer_call(target: SimpleNamespace) -> object:
    """No filter can see its flags."""
    return cloned(
        libc.syscall(435, ctypes.create_string_buffer(struct.pack("8Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0)), 64)
    )


@attack(*REFUSED, namespaced=True)
def makes_any_other_namespace(target: SimpleNamespace) -> object:
    flags = (0x20000, 0x4000000, 0x8000000, 0x2000000, 0x40000000, 0x20000000, 0x80)
    made = [hex(flag) for flag in flags if libc.unshare(flag) == 0]
    return made or called(-1, "unshare")


@attack(*REFUSED, namespaced=True)
def enters_the_namespaces_of_another_process(target: SimpleNamespace) -> object:
    for path in [f"/proc/{pid}/ns/{name}" for pid in (1, "self") for name in ("user", "mnt", "net", "pid", "uts")]:
        try:
            number = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        if libc.setns(number, 0) == 0:
            return path
    return called(-1, "setns")


@attack(*NO_MOUNT, namespaced=True)
def mounts_a_file_system(target: SimpleNamespace) -> object:
    return called(libc.mount(b"none", b"/tmp", b"tmpfs", ctypes.c_ulong(0), None), "mounted")


@attack(*NO_MOUNT, namespaced=True, extra={"place": "/usr"}, control={"place": "/proc"})
def makes_what_is_read_only_writable_by_mounting_it_again(target: SimpleNamespace) -> object:
    return called(libc.mount(None, target.place.encode(), None, ctypes.c_ulong(0x20 | 0x1000), None), "mounted")


@attack(*REFUSED, namespaced=True)
def mounts_by_the_newer_calls(target: SimpleNamespace) -> object:
    opened = max(libc.syscall(430, b"tmpfs", 0), libc.syscall(428, -100, b"/tmp", 1))
    return called(opened, "opened")


@attack(
    *NO_MOUNT,
    namespaced=True,
    extra={"places": ["/proc", "/dev/shm", "/tmp", "/script", "/etc/passwd", "/"]},
    control={"places": ["/proc"]},
)
def takes_a_mount_away_to_see_what_lies_beneath(target: SimpleNamespace) -> object:
    taken = [place for place in target.places if libc.umount2(place.encode(), 2) == 0]
    return taken or called(-1, "umount")


@attack(*REFUSED, namespaced=True)
def changes_its_root_folder(target: SimpleNamespace) -> object:
    os.chroot("/tmp")
    return "changed"


@attack("EPERM", "not permitted", extra={"kind": 0o020000}, control={"kind": 0o010000})
def makes_a_device(target: SimpleNamespace) -> object:
    path = f"/tmp/device-{target.token}"
    os.mknod(path, target.kind | 0o600, os.makedev(1, 1))
    os.unlink(path)
    return "made"


@attack("EPERM", "EINVAL", namespaced=True)
def becomes_another_user(target: SimpleNamespace) -> object:
    problems = []
    attempts = [(become, user) for user in (0, 1, 65534) for become in (os.setuid, os.setgid, os.seteuid)]
    for become, user in [*attempts, (os.setgroups, [0])]:
        try:
            become(user)  # type: ignore[operator]
            return f"{become.__name__} {user}"
        except OSError as problem:
            problems.append(problem)
    raise problems[0]


@attack("nothing", may_lack="ENOENT")
def runs_a_program_that_would_run_as_its_owner(target: SimpleNamespace) -> object:
    found = subprocess.run([f"{target.script}/set-uid-id"], capture_output=True, text=True, check=True).stdout
    return found if "euid=0" in found or "uid=0" in found.split()[0] else None


@attack("nothing")
def has_rights_of_root_left(target: SimpleNamespace) -> object:
    lines = Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":\t") for line in lines if ":\t" in line)
    rights = ("CapInh", "CapPrm", "CapEff", "CapAmb", "CapBnd")
    left = [f"{name} {status[name]}" for name in rights if int(status[name], 16)]
    left += [] if status["NoNewPrivs"].strip() == "1" else ["may get new ones"]
    left += [] if status["Seccomp"].strip() == "2" else ["no filter"]
    is_root = "0" in status["Uid"].split() + status["Gid"].split() + status["Groups"].split()
    return [*left, "is root"] if is_root else left


@attack("nothing", extra={"calls": CALLS}, control={"calls": [call for call in CALLS if call[0] in HARMLESS]})
def uses_the_calls_that_the_kernel_guards_least(target: SimpleNamespace) -> object:
    held, done = ctypes.create_string_buffer(256), []
    for intel, arm, *arguments in target.calls:
        if arm or not ARM:
            number = arm if ARM else intel
            answer = libc.syscall(number, *[held if each == "held" else each for each in arguments])
            code = ctypes.get_errno()
            if answer >= 0 or code not in (errno.EPERM, errno.ENOSYS):
                done.append((number, errno.errorcode.get(code) if answer < 0 else answer))
    return done


@attack("ENOSYS", extra={"bit": 0x40000000}, control={"bit": 0})
def calls_the_kernel_by_numbers_of_another_kind_of_program(target: SimpleNamespace) -> object:
    return called(libc.syscall(ctypes.c_long(target.bit | 39)), "called")


@attack("ENOSYS", "signal 31", may_lack="no such programs")
def calls_the_kernel_as_a_program_of_32_bits(target: SimpleNamespace) -> object:
    """No filter for 64 bits would see it."""
    if platform.machine() != "x86_64":
        raise RuntimeError("no such programs")
    code = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=7)
    code.write(b"\x53\xb8\x14\0\0\0\xcd\x80\x5b\xc3")  # getpid
    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))() == os.getpid()


@attack(
    *("EROFS", "EACCES", "ENOENT", "EPERM"), extra={"paths": SETTINGS.split()}, control={"paths": ["/proc/self/comm"]}
)
def writes_to_the_settings_of_the_kernel(target: SimpleNamespace) -> object:
    opened, problems = [], []
    for path, flags in [(path, flags) for path in target.paths for flags in (os.O_WRONLY, os.O_RDWR)]:
        try:
            os.close(os.open(path, flags))
            opened.append(path)
        except OSError as problem:
            problems.append(problem)
    if not opened:
        raise problems[-1]
    return opened


@attack("nothing", extra={"paths": MEMORY.split()}, control={"paths": ["/proc/self/stat"]})
def reads_the_memory_of_the_machine_and_its_log(target: SimpleNamespace) -> object:
    found = []
    for path in target.paths:
        try:
            with open(path, "rb") as file:
                found += [path] if file.read(4096).strip(b"\0") else []
        except OSError:
            pass
    return found


@attack("nothing")
def reaches_the_control_groups(target: SimpleNamespace) -> object:
    found = [place for place in ("/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys") if os.path.isdir(place)]
    return found + [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if " - cgroup" in line]


@attack("EACCES", "EPERM", "EROFS", extra={"score": "-1000"}, control={"score": "1000"})
def protects_itself_from_the_end_when_memory_runs_out(target: SimpleNamespace) -> object:
    return Path("/proc/self/oom_score_adj").write_text(target.score)


@attack("nothing", "not permitted", "cannot modify", extra={"beyond": True}, control={"beyond": False})
def raises_its_limits(target: SimpleNamespace) -> object:
    raised: list[object] = []
    for name in ("NPROC", "NOFILE", "FSIZE", "CPU", "CORE", "DATA", "MEMLOCK", "MSGQUEUE"):
        soft, hard = resource.getrlimit(kind := getattr(resource, f"RLIMIT_{name}"))
        raised += [f"{name} has no limit"] if hard == resource.RLIM_INFINITY else []
        try:
            resource.setrlimit(kind, (soft, hard + 1 if target.beyond else hard))
            raised.append(name)
        except (OSError, ValueError):
            pass
    return raised


@attack("nothing", degraded="it has no name of its own", extra={"own": ["sandbox", "localhost"]}, control={"own": []})
def sees_the_name_of_the_host(target: SimpleNamespace) -> object:
    said = Path("/proc/sys/kernel/hostname").read_text().strip()
    return sorted({socket.gethostname(), os.uname().nodename, said} - set(target.own))
