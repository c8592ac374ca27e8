"""What the filter of system calls answers, on both machines that it is written for; it is read here step by step."""

from __future__ import annotations

import errno
import struct

import pytest
from helpers.repetition import Failures

from tavern_scripts.sandbox.seccomp import UnknownMachine, build_filter

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
NUMBERS = {
    "read": (0, 63),
    "execve": (59, 221),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "mount": (165, 40),
    "unshare": (272, 97),
    "setns": (308, 268),
    "clone": (56, 220),
    "clone3": (435, 435),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "io_uring_setup": (425, 425),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "memfd_create": (319, 279),
    "open_by_handle_at": (304, 265),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "ioctl": (16, 29),
    "personality": (135, 92),
    "newest": (463, 463),
}


def answer(machine: str, number: int, *arguments: int, sockets: bool = True, architecture: int | None = None) -> int:
    """Return the verdict of the filter on a call."""
    data = struct.pack("=IIQ6Q", number, architecture or ARCHITECTURES[machine], 0, *(*arguments, *[0] * 6)[:6])
    steps = list(struct.iter_unpack("=HBBI", build_filter(machine, sockets=sockets)))
    value, at = 0, 0
    while True:
        code, then, otherwise, operand = steps[at]
        at += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("=I", data, operand)
            case 0x54:
                value &= operand
            case 0x15:
                at += then if value == operand else otherwise
            case 0x25:
                at += then if value > operand else otherwise
            case 0x45:
                at += then if value & operand else otherwise
            case 0x06:
                return operand
            case _:
                raise AssertionError(f"no such step: {code:#x}")


NOT_PERMITTED = "ptrace process_vm_readv mount unshare setns keyctl bpf perf_event_open userfaultfd open_by_handle_at"
ANSWERS: list[tuple[str, tuple[int, ...], int]] = [
    *((call, (), 0) for call in ("read", "execve")),
    *((call, (), errno.EPERM) for call in NOT_PERMITTED.split()),
    *((call, (), errno.ENOSYS) for call in ("io_uring_setup", "memfd_create", "clone3", "newest")),
    *((call, (), errno.ENOSYS) for call in NUMBERS if call.startswith("landlock_")),
    ("clone", (0x3D0F00,), 0),
    ("clone", (17,), 0),
    *(("clone", (1 << bit | 17,), errno.EPERM) for bit in (17, 25, 26, 27, 28, 29, 30)),
    *(("socket", (family, kind), 0) for family, kind in ((1, 1), (2, 2), (10, 1))),
    *(("socket", (family, 3), errno.EAFNOSUPPORT) for family in (16, 17, 40, 1 << 32 | 16)),
    ("socketpair", (1, 1), 0),
    ("ioctl", (0, 0x5401), 0),
    *(("ioctl", (0, request), errno.EPERM) for request in (0x5412, 0x541C, 1 << 32 | 0x5412)),
    ("personality", (0xFFFFFFFF,), 0),
    ("personality", (0,), 0),
    ("personality", (0x0040000,), errno.EPERM),
]


def test_each_call_has_its_answer() -> None:
    with Failures() as failures:
        for column, machine in enumerate(ARCHITECTURES):
            for call, arguments, expected in ANSWERS:
                with failures.row((machine, call, arguments)):
                    number = NUMBERS[call][column]
                    assert answer(machine, number, *arguments) == (ERRNO | expected if expected else ALLOW)


def test_without_a_network_there_are_connected_pairs_only() -> None:
    with Failures() as failures:
        for machine in ARCHITECTURES:
            with failures.row(machine):
                column = list(ARCHITECTURES).index(machine)
                socket, pair = NUMBERS["socket"][column], NUMBERS["socketpair"][column]

                answers = [answer(machine, socket, family, 1, sockets=False) for family in (1, 2, 10, 16)]

                assert answers == [ERRNO | errno.EAFNOSUPPORT] * 4
                assert answer(machine, pair, 1, 0o2000001, sockets=False) == ALLOW
                assert answer(machine, pair, 1, 2, sockets=False) == ERRNO | errno.EAFNOSUPPORT


def test_calls_of_another_architecture_end_the_program() -> None:
    assert answer("x86_64", 11, architecture=0x40000003) == KILL
    assert answer("x86_64", 0x40000000 | 101) == ERRNO | errno.ENOSYS


def test_it_is_written_in_one_piece() -> None:
    assert all(len(build_filter(machine)) < 4096 for machine in ARCHITECTURES)


def test_an_unknown_machine_is_said() -> None:
    with pytest.raises(UnknownMachine, match="no filter of system calls for 's390x'"):
        build_filter("s390x")
