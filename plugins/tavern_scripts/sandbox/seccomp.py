"""The filter of system calls, written by hand in classic BPF for x86-64 and aarch64. It takes away what a program
could use to get at other programs, at the kernel's less guarded parts, or out of its namespaces; it limits no files."""

from __future__ import annotations

import errno
import functools
import platform
import struct

MACHINES = ("x86_64", "aarch64")

_LOAD, _EQUAL, _GREATER, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Where things are in `struct seccomp_data`; of an argument the lower half comes first, which is all that the kernel
reads for those that are examined here."""

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NEWEST = 462
"""Calls with higher numbers are not known here, or are those of the x32 architecture: there are none of these."""

_FORBIDDEN = {  # (x86-64, aarch64); not permitted
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "unshare": (272, 97),
    "setns": (308, 268),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "create_module": (174, None),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "acct": (163, 89),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
}
_ABSENT = {  # libraries do without these where the kernel does not have them
    "clone3": (435, 435),  # its flags are in memory, where no filter can look
    "memfd_create": (319, 279),  # files that count as nobody's memory
    "memfd_secret": (447, 447),
    "landlock_create_ruleset": (444, 444),  # its rules take memory that no process is seen to have
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "shmget": (29, 194),  # System V objects take memory that no process is seen to have
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "nfsservctl": (180, 42),
    "lookup_dcookie": (212, 18),
    "uselib": (134, None),
    "_sysctl": (156, None),
    "sysfs": (139, None),
}
_OF_OTHERS = {  # not permitted where other processes and their files are not out of reach
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "lchown": (94, None),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "inotify_add_watch": (254, 27),
    "ioprio_set": (251, 30),
}
_OF_ITSELF = {  # their first argument is a process; 0 is the caller
    "prlimit64": (302, 261),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
}
_SETPRIORITY = (141, 140)
_MMAP = (9, 222)
_CLONE = (56, 220)
_PERSONALITY = (135, 92)
_SOCKET = (41, 198)
_SOCKETPAIR = (53, 199)
_IOCTL = (16, 29)

_NEW_NAMESPACES = 0x7E020000
"""All of CLONE_NEW* that fit into the flags of clone."""
_SHARING, _SHARED, _SHARED_VALIDATE, _ANONYMOUS = 0x0F, 0x01, 0x03, 0x20
"""Flags of mmap: those in the mask say whether memory is shared."""
_AF_UNIX, _AF_INET, _AF_INET6, _SOCK_STREAM = 1, 2, 10, 1
_TERMINAL_TRICKS = (0x5412, 0x541C, 0x541D, 0x5423)
"""TIOCSTI types into a terminal, TIOCLINUX and TIOCCONS reach the console, TIOCSETD loads line disciplines."""


class UnknownMachine(Exception):
    """The filter cannot be written for this machine."""


@functools.cache
def build_filter(machine: str | None = None, *, sockets: bool = True, sharing: bool = True) -> bytes:
    """Return the filter for a machine (this one by default) as an array of `struct sock_filter`, below 4 kB.

    Without `sockets` there are only pairs of connected ones, and a program changes no other process, and of files only
    what is in them: for sandboxes without namespaces. Without `sharing` processes share memory by files only: what has
    no file belongs to no one while it is not opened, and no watch sees it. Raises `UnknownMachine`.
    """
    machine = machine or platform.machine()
    if machine not in MACHINES:
        raise UnknownMachine(
            f"the sandbox has no filter of system calls for {machine!r}: it has them for {', '.join(MACHINES)}"
        )
    column = MACHINES.index(machine)
    program = [
        _load(_ARCHITECTURE),
        _step(_EQUAL, _AUDIT[machine], 1, 0),
        _end(_KILL),
        _load(_NUMBER),
        _step(_GREATER, _NEWEST, 0, 1),
        _fail(errno.ENOSYS),
    ]
    tables = [(_FORBIDDEN, errno.EPERM), (_ABSENT, errno.ENOSYS)]
    if not sockets:
        tables.append((_OF_OTHERS, errno.EPERM))
    for table, code in tables:
        for numbers in table.values():
            number = numbers[column]
            if number is not None:
                program += [_step(_EQUAL, number, 0, 1), _fail(code)]
    program += _when(_CLONE[column], [_load(_ARGUMENTS), _step(_ANY_BIT, _NEW_NAMESPACES, 0, 1), _fail(errno.EPERM)])
    program += _when(_IOCTL[column], [_load(_ARGUMENTS + 8), *_none_of(_TERMINAL_TRICKS, errno.EPERM)])
    program += _when(_PERSONALITY[column], [_load(_ARGUMENTS), *_only((0, 0xFFFFFFFF), errno.EPERM)])
    if not sockets:
        for calls in _OF_ITSELF.values():
            program += _when(calls[column], [_load(_ARGUMENTS), *_only((0,), errno.EPERM)])
        itself = [*_only((0,), errno.EPERM), _load(_ARGUMENTS + 8), *_only((0,), errno.EPERM)]
        program += _when(_SETPRIORITY[column], [_load(_ARGUMENTS), *itself])
    if not sharing:
        checks = [_load(_ARGUMENTS + 24), _step(_AND, _SHARING | _ANONYMOUS)]
        kinds = (_SHARED | _ANONYMOUS, _SHARED_VALIDATE | _ANONYMOUS)
        program += _when(_MMAP[column], [*checks, *_none_of(kinds, errno.EPERM)])
    families = (_AF_UNIX, _AF_INET, _AF_INET6) if sockets else ()
    program += _when(_SOCKET[column], [_load(_ARGUMENTS), *_only(families, errno.EAFNOSUPPORT)])
    pairs = [_load(_ARGUMENTS), *_only((_AF_UNIX,), errno.EAFNOSUPPORT)]
    if not sockets:  # one of datagrams could be sent from to any socket in the file system
        pairs += [_load(_ARGUMENTS + 8), _step(_AND, 0xF), *_only((_SOCK_STREAM,), errno.EAFNOSUPPORT)]
    program += _when(_SOCKETPAIR[column], pairs)
    program.append(_end(_ALLOW))
    return b"".join(program)


def _when(number: int, then: list[bytes]) -> list[bytes]:
    """What is done for one call only. Whatever `then` does not end is allowed."""
    return [_step(_EQUAL, number, 0, len(then) + 1), *then, _end(_ALLOW)]


def _only(values: tuple[int, ...], code: int) -> list[bytes]:
    """Fail unless the loaded value is one of these; continue after it otherwise."""
    checks = [_step(_EQUAL, value, len(values) - index, 0) for index, value in enumerate(values)]
    return [*checks, _fail(code)]


def _none_of(values: tuple[int, ...], code: int) -> list[bytes]:
    """Fail if the loaded value is one of these; continue after it otherwise."""
    return [part for value in values for part in (_step(_EQUAL, value, 0, 1), _fail(code))]


def _load(offset: int) -> bytes:
    return _step(_LOAD, offset)


def _fail(code: int) -> bytes:
    return _end(_ERRNO | code)


def _end(value: int) -> bytes:
    return _step(_RETURN, value)


def _step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, value)
