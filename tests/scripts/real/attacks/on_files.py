"""Attacks on the files of the host: reading, writing, links, what the next run finds, what exists at all."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from types import SimpleNamespace

from tests.scripts.real.attacks.attack import attack

ABSENT = ("ENOENT", "EACCES")
NOT_WRITABLE = ("EROFS", "EACCES", "ENOENT", "EPERM")
NO_LINK = ("ENOENT", "EXDEV", "EPERM", "EACCES", "EROFS")
SEEN = "whether a file exists can be found out"
OF_THE_SYSTEM = """
    / /usr /usr/bin /usr/lib /usr/local/lib /etc /etc/ssl /dev /dev/pts /run /run/tavern /var /proc /sys /home
    /script /tavern /lib /bin
"""
OF_THE_HOST = """
    /home /root/.ssh /root/.bashrc /var /var/run/docker.sock /run/docker.sock /run/dbus /boot /sys /opt /srv
    /mnt /media /etc/shadow /etc/hostname /etc/machine-id /etc/ssh /etc/sudoers /dev/sda /dev/vda /dev/kvm
    /dev/mem /dev/fuse /dev/net /.dockerenv /lost+found /proc/1/root/home /proc/self/root/home
"""


def read(path: str) -> str:
    with open(path) as file:
        return file.read()


def write(path: str, mode: str = "w") -> str:
    with open(path, mode) as file:
        file.write("# spoilt")
    return "written"


@attack(*ABSENT)
def reads_a_file_by_its_absolute_path(target: SimpleNamespace) -> object:
    return read(f"{target.outside}/secret.txt")


@attack(*ABSENT)
def climbs_out_of_its_folder(target: SimpleNamespace) -> object:
    return read(f"{target.script}/{target.climb}/secret.txt")


@attack(*ABSENT)
def reads_through_a_link_that_lies_beside_it(target: SimpleNamespace) -> object:
    return read(f"{target.script}/link-to-secret.txt")


@attack(*ABSENT)
def reads_through_a_link_that_it_makes_itself(target: SimpleNamespace) -> object:
    os.symlink(target.outside, f"{target.output}/made")
    return read(f"{target.output}/made/secret.txt")


@attack(*NO_LINK, damages="outside/linked.txt was changed")
def makes_hard_links_to_files_of_the_host(target: SimpleNamespace) -> object:
    for name in ("secret.txt", "linked.txt"):
        os.link(f"{target.outside}/{name}", f"{target.output}/{name}")
    write(f"{target.output}/linked.txt")
    return read(f"{target.output}/secret.txt")


@attack(*NO_LINK, damages="script/linked.txt was changed")
def makes_a_hard_link_to_what_lies_beside_it(target: SimpleNamespace) -> object:
    os.link(f"{target.script}/linked.txt", f"{target.output}/hard")
    return write(f"{target.output}/hard", "a")


@attack(*ABSENT)
def lists_a_folder_of_the_host(target: SimpleNamespace) -> object:
    return os.listdir(target.outside)


@attack(*NOT_WRITABLE, damages="outside/writable.txt was changed")
def writes_to_a_file_by_its_absolute_path(target: SimpleNamespace) -> object:
    return write(f"{target.outside}/writable.txt")


@attack(*NOT_WRITABLE, damages="outside/climbed.txt is new")
def writes_out_of_its_folders(target: SimpleNamespace) -> object:
    return write(f"{target.output}/../outside/climbed.txt")


@attack(*NOT_WRITABLE, damages="outside/through-a-link.txt is new")
def writes_through_a_link_that_lies_beside_it(target: SimpleNamespace) -> object:
    return write(f"{target.script}/link-to-folder/through-a-link.txt")


@attack("EROFS", "EACCES", damages="script/attack.")
def overwrites_its_own_script(target: SimpleNamespace) -> object:
    return write(f"{target.script}/attack.py", "a")


@attack("EROFS", "EACCES", damages="script/renamed.txt is new")
def replaces_removes_and_opens_up_what_lies_beside_it(target: SimpleNamespace) -> object:
    here, done, problems = target.script, [], []
    for what in (
        lambda: os.rename(f"{here}/beside.txt", f"{here}/renamed.txt"),
        lambda: os.mkdir(f"{here}/__pycache__"),
        lambda: os.symlink("/etc", f"{here}/etc"),
        lambda: os.chmod(f"{here}/removable.txt", 0o4777),
        lambda: os.utime(f"{here}/removable.txt", (1, 1)),
        lambda: os.truncate(f"{here}/removable.txt", 0),
        lambda: os.setxattr(f"{here}/removable.txt", "user.spoilt", b"1"),
        lambda: os.unlink(f"{here}/removable.txt"),
    ):
        try:
            what()
            done.append(1)
        except OSError as problem:
            problems.append(problem)
    if not done:
        raise problems[0]
    return done


@attack(keeps_its_loot=True, damages="output/left is new")
def leaves_a_link_for_the_next_run(target: SimpleNamespace) -> object:
    for folder in (target.output, target.cache):
        os.symlink(target.outside, f"{folder}/left")
        os.symlink(f"{target.outside}/writable.txt", f"{folder}/writable.txt")
    return "planted"


@attack(*ABSENT, rounds=2, damages="outside/in-the-next-run.txt is new")
def writes_in_the_next_run_through_a_link_of_this_one(target: SimpleNamespace) -> object:
    if target.round == 0:
        os.symlink(target.outside, f"{target.cache}/planted")
        return "planted"
    return write(f"{target.cache}/planted/in-the-next-run.txt")


@attack(keeps_its_loot=True, damages="output/inner is new")
def replaces_its_own_folder_by_a_link_before_it_ends(target: SimpleNamespace) -> object:
    for folder in (target.output, target.cache):
        os.mkdir(f"{folder}/inner")
        write(f"{folder}/inner/writable.txt")
        os.rename(f"{folder}/inner", f"{folder}/moved")
        os.symlink(target.outside, f"{folder}/inner")
    return "planted"


@attack(keeps_its_loot=True, damages="output/pipe is new")
def leaves_pipes_sockets_hard_links_and_set_uid_programs(target: SimpleNamespace) -> object:
    for folder in (target.output, target.cache):
        os.mkfifo(f"{folder}/pipe")
        for name in ("one", "set-uid"):
            write(f"{folder}/{name}")
        os.link(f"{folder}/one", f"{folder}/two")
        os.mkdir(f"{folder}/sticky")
        for what in (
            lambda: socket.socket(socket.AF_UNIX).bind(f"{folder}/socket"),  # noqa: B023
            lambda: os.chmod(f"{folder}/set-uid", 0o6777),  # noqa: B023
            lambda: os.chmod(f"{folder}/sticky", 0o3777),  # noqa: B023
        ):
            try:
                what()
            except OSError:
                pass
    return "left"


@attack("nothing", rounds=2, extra={"more": "/usr/local/lib"}, control={"more": "/tmp"})
def leaves_something_where_every_later_script_would_find_it(target: SimpleNamespace) -> object:
    places = {"/tmp", "/dev/shm", os.environ.get("HOME", "/tmp"), "/var/tmp", "/run", target.more}
    found = [path for place in places if os.path.exists(path := f"{place}/{target.token}")]
    if target.round > 0:
        for path in found:
            os.unlink(path)
        return found
    for place in places:
        try:
            write(f"{place}/{target.token}")
        except OSError:
            pass
    return "planted"


@attack("EROFS", "EACCES", "ENOENT", extra={"places": OF_THE_SYSTEM.split()}, control={"places": ["/tmp"]})
def writes_where_the_system_and_the_interpreter_are(target: SimpleNamespace) -> object:
    done, problems = [], []
    for path in [f"{place}/{name}" for place in target.places for name in ("planted.pth", "planted")]:
        try:
            write(path)
            os.unlink(path)
            done.append(path)
        except OSError as problem:
            problems.append(problem)
    if not done:
        raise problems[-1]
    return done


@attack("nothing", extra={"places": OF_THE_HOST.split()}, degraded=SEEN)
def probes_which_folders_and_programs_the_host_has(target: SimpleNamespace) -> object:
    return [path for path in [*target.places, target.outside] if os.path.lexists(path)]


@attack("nothing", degraded=SEEN)
def asks_whether_a_file_is_there_by_other_calls(target: SimpleNamespace) -> object:
    path, answers = f"{target.outside}/secret.txt", []
    for ask in (os.stat, os.readlink, os.listxattr, os.statvfs, os.chdir, os.path.realpath):
        try:
            answers.append(str(ask(path)))
        except OSError as problem:
            answers.append(errno.errorcode[problem.errno or 0])
    return [answer for answer in answers if answer not in ("ENOENT", path)]


@attack("nothing")
def goes_through_every_root_and_working_folder_in_proc(target: SimpleNamespace) -> object:
    found = []
    for pid in [*filter(str.isdecimal, os.listdir("/proc")), "self"]:
        for link in ("root", "cwd"):
            for path in (f"{target.outside}/secret.txt", "/../outside/secret.txt"):
                try:
                    found.append(read(f"/proc/{pid}/{link}{path}"))
                except OSError:
                    pass
    return found


@attack(*ABSENT)
def opens_the_file_that_another_process_has_open(target: SimpleNamespace) -> object:
    return read(f"/proc/{target.victim_pid}/fd/{target.victim_descriptor}")


@attack("nothing", extra={"seen": "/outside"}, control={"seen": "/proc"}, degraded="it sees the mounts of the host")
def finds_paths_of_the_host_in_its_table_of_mounts(target: SimpleNamespace) -> object:
    tables = [read(f"/proc/{pid}/{name}") for pid in ("self", "thread-self") for name in ("mountinfo", "mounts")]
    return [line for table in tables for line in table.splitlines() if target.seen in line]


@attack("EPERM", "ENOSYS", may_lack="EOPNOTSUPP")
def opens_a_file_by_its_handle(target: SimpleNamespace) -> object:
    libc, kind = ctypes.CDLL(None, use_errno=True), ctypes.c_int()
    handle = ctypes.create_string_buffer(128)
    handle[0] = 120  # type: ignore[assignment]
    path = f"{target.script}/linked.txt".encode()
    if libc.name_to_handle_at(-100, path, handle, ctypes.byref(kind), 0):
        raise OSError(ctypes.get_errno(), "handle")
    return "a handle"
