"""Landlock, asked by its system calls: takes from the calling thread, for good, all files but those that are named,
TCP, abstract sockets of others, and signals to others. It imports nothing but the standard library, so that it can be
used by a program that is about to become another one."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

NEEDED = 6
"""The first version that keeps signals and abstract sockets inside."""

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE, _READ, _LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_ALL_OF_FILES = (1 << 16) - 1
"""All rights to files of version 5 and later, up to those to control devices."""
_OF_A_FILE = _EXECUTE | _WRITE | _READ | 1 << 14 | 1 << 15
_TCP = 0b11
_SCOPES = 0b11

READ = _EXECUTE | _READ | _LIST
WRITE = _ALL_OF_FILES & ~(_EXECUTE | 1 << 6 | 1 << 11 | 1 << 15)
"""Everything but running programs, making devices and controlling them."""


def version() -> int:
    """Return the version that the kernel has, 0 where it has none or it is switched off."""
    library = ctypes.CDLL(None, use_errno=True)
    answer = library.syscall(ctypes.c_long(_CREATE), None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    return max(0, int(answer))


def restrict(rights: Iterable[tuple[str, int]]) -> None:
    """Allow only these paths and what is below them; paths that do not exist are left out. Raises `OSError`."""
    library = ctypes.CDLL(None, use_errno=True)
    attributes = struct.pack("=QQQ", _ALL_OF_FILES, _TCP, _SCOPES)
    rules = _call(library, _CREATE, attributes, len(attributes), 0)
    try:
        for path, allowed in rights:
            try:
                number = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                if not os.path.isdir(path):
                    allowed &= _OF_A_FILE
                rule = struct.pack("=Qi", allowed, number)
                _call(library, _ADD, rules, _PATH_BENEATH, rule, 0)
            finally:
                os.close(number)
        if library.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "no_new_privs could not be set")
        _call(library, _RESTRICT, rules, 0)
    finally:
        os.close(rules)


def _call(library: ctypes.CDLL, number: int, *arguments: int | bytes) -> int:
    values = [each if isinstance(each, bytes) else ctypes.c_long(each) for each in arguments]
    result = int(library.syscall(ctypes.c_long(number), *values))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"Landlock (call {number}): {os.strerror(code)}")
    return result
