"""What is seen inside of a sandbox, as arguments of bubblewrap: the system and the interpreter read-only, sized places
to write to, and what a launch mounts. It makes nothing."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from tavern_scripts.api.scripts import PROXY_SOCKET, SandboxLaunch, SandboxMount

SCRATCH = ("/tmp", "/dev/shm")
"""The places that every program may write to; what is there is gone with it."""

_DEVICES = ("/dev/null", "/dev/full", "/dev/random", "/dev/urandom")
_SHARING = "/dev/zero"
"""The device by which processes can share memory that has no file."""
_HIDDEN = ("/proc/keys", "/proc/key-users")
"""What names the host's users, and is in no namespace."""
_DEVICE_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
_OF_THE_HOST = (
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
)
_OWN = Path(__file__).parent / "etc"
_FIXED = ("/proc", "/dev", "/etc", "/run", "/usr", "/bin", "/sbin", "/lib", "/lib64")
_LINKS = 16
"""How many symbolic links are followed from an interpreter's name to its file."""


class BadLaunch(Exception):
    """A launch that cannot be carried out as it is; the message says why."""


def arguments(launch: SandboxLaunch, mark: str, *, sharing: bool = True) -> list[str]:
    """Return the arguments of bubblewrap that make the file system, the environment and the folder of a launch.

    `mark` is an empty folder in the root, from which one can tell from outside that all of it is there. Raises
    `BadLaunch`.
    """
    for word in _words(launch):
        if "\0" in word:
            raise BadLaunch(f"the sandbox was given {word!r}, which has a zero byte in it: leave it out")
    size = str(launch.limits.scratch)
    made: set[str] = set()
    result = [*_folder(mark, "0755"), *_system(sharing)]
    for folder in SCRATCH:
        result += [*_parents(folder, made), "--perms", "1777", "--size", size, "--tmpfs", folder]
    covered = [mount.target for mount in launch.mounts]
    mounts = sorted(launch.mounts, key=lambda mount: mount.target.count("/"))
    folders = [folder for folder in installation(launch.argv[0]) if not _within(folder, covered)]
    for folder in folders:
        result += [*_parents(folder, made), "--ro-bind", folder, folder]
    inner = [*folders, *covered]
    for mount in mounts:
        check_target(mount.target)
        if not _within(os.path.dirname(mount.target), inner):
            result += _parents(mount.target, made)
        if mount.mode == "read":
            result += ["--ro-bind", _existing(mount), mount.target]
        elif mount.mode == "write":
            result += ["--bind", _existing(mount), mount.target]
        else:
            result += ["--perms", "0777", "--size", size, "--tmpfs", mount.target]
    if launch.proxy is not None:
        result += [*_parents(PROXY_SOCKET, made), "--ro-bind", os.path.realpath(launch.proxy), PROXY_SOCKET]
    result += ["--remount-ro", "/", "--chdir", launch.folder]
    for name, value in launch.environment.items():
        if not name or "=" in name:
            raise BadLaunch(f"{name!r} is not the name of an environment variable: it is empty or has a '=' in it")
        result += ["--setenv", name, value]
    return result


def check_target(target: str) -> None:
    """Raise `BadLaunch` for a target that is no plain absolute path, or hides what the sandbox rests on."""
    if not target.startswith("/") or target != os.path.normpath(target) or target.startswith("//"):
        raise BadLaunch(f"a mount's target must be an absolute path without '..' and '//', not {target!r}")
    if target in ("/", *SCRATCH) or _within(target, [path for path in _FIXED if path != "/usr"]) or target == "/usr":
        raise BadLaunch(f"nothing can be mounted at {target!r}: the sandbox has its own there")


def installation(program: str) -> list[str]:
    """Return the folders outside of /usr that an interpreter needs, outermost names first: those of each symbolic link
    on the way to it, of its virtual environment and of what that was made from."""
    settings = str(Path(program).parent.parent / "pyvenv.cfg")
    return [*_installation(program, (_stamp(program, False), _stamp(program, True), _stamp(settings, True)))]


def _stamp(path: str, follow: bool) -> tuple[int, int, int] | None:
    """Return a stamp that is another one when there is something else at a path."""
    try:
        about = os.stat(path, follow_symlinks=follow)
    except OSError:
        return None
    return about.st_dev, about.st_ino, about.st_ctime_ns


@functools.lru_cache(maxsize=64)
def _installation(program: str, _stamps: tuple[tuple[int, int, int] | None, ...]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    path = program
    for _ in range(_LINKS):
        if not path.startswith("/") or _within(path, _FIXED):
            break
        for folder in _prefixes(path):
            found[folder] = None
        if not os.path.islink(path):
            break
        path = os.path.normpath(os.path.join(os.path.realpath(os.path.dirname(path)), os.readlink(path)))
    outer = [folder for folder in found if not _within(os.path.dirname(folder), found)]
    return tuple(folder for folder in outer if not _within(folder, _FIXED))


def _prefixes(path: str) -> list[str]:
    """Return the files of one name of an interpreter: its prefix if that is an installation, else the file only."""
    prefix = Path(path).parent.parent
    if Path(path).parent.name != "bin" or not _is_installation(prefix):
        return [path] if os.path.exists(path) else []
    folders = [str(prefix), os.path.realpath(prefix)]
    try:
        settings = (prefix / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return folders
    for line in settings.splitlines():
        name, _, value = line.partition("=")
        base = Path(value.strip()).parent
        if name.strip() == "home" and _is_installation(base):
            folders += [str(base), os.path.realpath(base)]
    return folders


def _is_installation(prefix: Path) -> bool:
    """Return whether a folder holds an interpreter and what belongs to it, and not a user's home as well."""
    home = os.path.realpath(Path.home())
    if _within(home, [os.path.realpath(prefix)]):
        return False
    libraries = prefix / "lib"
    signs = [prefix / "pyvenv.cfg", libraries / "node_modules", prefix / "include" / "node"]
    return any(sign.exists() for sign in signs) or any(libraries.glob("python3*"))


@functools.cache
def _system(sharing: bool) -> tuple[str, ...]:
    """Return the arguments for what is the same in every sandbox."""
    result = [*_folder("/usr", "0755"), "--ro-bind", "/usr", "/usr"]
    for name in ("/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32"):
        if os.path.islink(name):
            result += ["--symlink", os.readlink(name), name]
        elif os.path.isdir(name):
            result += [*_folder(name, "0755"), "--ro-bind", name, name]
    result += [*_folder("/etc", "0755")]
    for path in _OF_THE_HOST:
        if os.path.exists(path):
            result += ["--ro-bind", os.path.realpath(path), path]
    for file in sorted(_OWN.iterdir()):
        result += ["--ro-bind", str(file), f"/etc/{file.name}"]
    result += [*_folder("/proc", "0755"), "--proc", "/proc", *_folder("/dev", "0755")]
    for path in _HIDDEN:
        if os.path.exists(path):
            result += ["--ro-bind", "/dev/null", path]
    for device in (*_DEVICES, *([_SHARING] if sharing else [])):
        result += ["--dev-bind", device, device]
    for name, to in _DEVICE_LINKS.items():
        result += ["--symlink", to, f"/dev/{name}"]
    return tuple(result)


def _folder(path: str, mode: str) -> list[str]:
    return ["--perms", mode, "--dir", path]


def _parents(path: str, made: set[str]) -> list[str]:
    """Return the arguments that make the parents of a path, which would else be closed to other users."""
    result: list[str] = []
    for parent in reversed(Path(path).parents[:-1]):
        if str(parent) not in made and str(parent) not in ("/dev", "/tmp", "/dev/shm", "/etc", "/usr", "/proc"):
            made.add(str(parent))
            result += _folder(str(parent), "0755")
    return result


def _within(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


def _existing(mount: SandboxMount) -> str:
    try:
        return os.path.realpath(mount.source, strict=True)
    except OSError as error:
        reason = error.strerror or error
        raise BadLaunch(f"{mount.source} cannot be mounted at {mount.target}: {reason}") from None


def _words(launch: SandboxLaunch) -> Sequence[str]:
    mounts = [part for mount in launch.mounts for part in (mount.source, mount.target)]
    variables = [part for item in launch.environment.items() for part in item]
    return [*launch.argv, *variables, *mounts, launch.folder, launch.proxy or ""]
