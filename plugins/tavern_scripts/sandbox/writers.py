"""Lets the user that a program of root runs as change the folders that it was given: by an entry of its own in their
access control lists (POSIX.1e draft 17, as Linux keeps them in extended attributes). Owners and modes stay, and what
root makes in such a folder later is the program's to change, too."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterable
from hashlib import sha256

from tavern_host.common.system import open_flags
from tavern_scripts.sandbox.layout import BadLaunch

_FIRST = 0x50000000
"""The first of the users that programs with folders to change run as: nobody has them, and no script gets them."""

_ACCESS, _DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
_HEAD, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
_VERSION, _NO_ID = 2, 0xFFFFFFFF
_OWNER, _USER, _GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
_ALL, _READ_AND_WRITE = 0o7, 0o6
_OPEN = open_flags("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK")

_DEEPEST = 200
"""How deep folders may be: each is open while those in it are looked at."""

_Entries = dict[tuple[int, int], int]
"""Permissions by the tag and the id of an entry."""


def writer_of(places: Iterable[str]) -> int:
    """Return the user that programs which may change these places run as: always the same, who finds its own again."""
    named = "\n".join(sorted(places))
    return _FIRST + (int.from_bytes(sha256(named.encode()).digest()[:4]) & 0x0FFFFFFF)


def let_write(place: str, user: int) -> None:
    """Let a user change a file, or a folder and all that is in it. Nothing is done where its list has the user already.

    Blocking. What is a link is left alone, also one that takes the place of a folder meanwhile: other programs may be
    able to change the same folder. Raises `BadLaunch` where the file system keeps no such lists.
    """
    try:
        top = os.open(place, _OPEN)
        try:
            if os.fstat(top).st_uid == user or (_USER, user) in _entries(top, _ACCESS):
                return
            if stat.S_ISDIR(os.fstat(top).st_mode):
                _let_write_inside(top, user)
            _add(top, user)  # the last, so that what was broken off is done again
        finally:
            os.close(top)
    except OSError as error:
        why = "keeps no access control lists" if error.errno == errno.ENOTSUP else f"refuses: {error.strerror}"
        raise BadLaunch(
            f"{place} cannot be changed by the user that programs of root run as, {user}: its file system {why}. "
            f"Give it to that user (chown -R {user}), or run the host as an ordinary user"
        ) from None


def _let_write_inside(top: int, user: int) -> None:
    for path, folders, files, there in os.fwalk(".", dir_fd=top, onerror=_raise):
        if path.count("/") > _DEEPEST:
            raise OSError(errno.ENAMETOOLONG, f"it has more than {_DEEPEST} folders inside of each other")
        for name in (*folders, *files):
            try:
                number = os.open(name, _OPEN, dir_fd=there)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOENT, errno.ENXIO):  # a link, gone, a socket
                    continue
                raise
            try:
                kind = os.fstat(number)
                if stat.S_ISDIR(kind.st_mode) or _is_plain(kind):
                    _add(number, user)
            finally:
                os.close(number)


def _is_plain(kind: os.stat_result) -> bool:
    """Return whether it is a file that is nowhere else, and does not run with its owner's rights: those outlast a
    change through a mapping of it."""
    return stat.S_ISREG(kind.st_mode) and kind.st_nlink == 1 and not kind.st_mode & (stat.S_ISUID | stat.S_ISGID)


def _raise(error: OSError) -> None:
    raise error


def _add(number: int, user: int) -> None:
    """Add the user to the list of an open file or folder, and to what is made in the folder later."""
    facts = os.fstat(number)
    is_folder = stat.S_ISDIR(facts.st_mode)
    entries = _entries(number, _ACCESS) or {
        (_OWNER, _NO_ID): facts.st_mode >> 6 & 7,
        (_GROUP, _NO_ID): facts.st_mode >> 3 & 7,
        (_OTHER, _NO_ID): facts.st_mode & 7,
    }
    _set(number, _ACCESS, entries, {user: _ALL if is_folder else _READ_AND_WRITE})
    if is_folder:  # whose owner shall be able to change what the program makes
        _set(number, _DEFAULT, _entries(number, _DEFAULT) or entries, {user: _ALL, facts.st_uid: _ALL})


def _set(number: int, list_name: str, entries: _Entries, users: dict[int, int]) -> None:
    allowed = entries.get((_MASK, _NO_ID), _ALL)  # the mask is set again: what it kept back stays so
    made = {key: own if key[0] in (_OWNER, _OTHER) else own & allowed for key, own in entries.items()}
    made |= {(_USER, user): permissions for user, permissions in users.items()}
    most = 0
    for (tag, _), permissions in made.items():
        most |= permissions if tag not in (_OWNER, _OTHER, _MASK) else 0
    made[_MASK, _NO_ID] = most
    packed = b"".join(_ENTRY.pack(tag, permissions, id) for (tag, id), permissions in sorted(made.items()))
    os.setxattr(number, list_name, _HEAD.pack(_VERSION) + packed)


def _entries(number: int, list_name: str) -> _Entries:
    """Return the entries of a list; none where there is none."""
    try:
        packed = os.getxattr(number, list_name)
    except OSError as error:
        if error.errno == errno.ENODATA:
            return {}
        raise
    return {(tag, id): permissions for tag, permissions, id in _ENTRY.iter_unpack(packed[_HEAD.size :])}
