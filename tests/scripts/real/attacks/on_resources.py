"""Attacks on what the machine has: processes, memory in every form, disk, the time of the CPU, the host's own memory.

Each of them ends by itself at a bound that the machine bears, so that a hole does no harm.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace
from typing import Any, NoReturn

from tests.scripts.real.attacks.attack import ATTACKS, MEGABYTE, Function, attack, say
from tests.scripts.real.attacks.on_kernel import libc

HEAP = ("memory", "signal 9", "signal 6", "signal 5", "exit 134", "exit 133")
NO_MORE = (
    "EAGAIN",
    "ENOMEM",
    "can't start new thread",
    "MemoryError",
    "Resource temporarily",
    "Cannot allocate",
    "allocation failed",
    "ERR_MEMORY",
    "EMFILE",
)
NO_SPACE = ("ENOSPC", "EFBIG", "EDQUOT", "ENOMEM")
SAYS = {"keeps_its_loot": True}
FOR_EVER = {**SAYS, "goes_on": 1}
ON_DISK = {"degraded": "the disk that is written to is not limited"}
PLACES = ["/tmp", "/dev/shm", "/output", "/script/.cache"]


def bomb(
    *refused: str,
    ends: tuple[str, ...] = ("memory", "signal 9"),
    memory: int = 0,
    limits: Mapping[str, float] = MappingProxyType({}),
    options: Mapping[str, Any] = MappingProxyType({}),
    **sizes: tuple[Any, Any],
) -> Callable[[Function], Function]:
    """Put a function on the list that has a sandbox of its own; each of `sizes` is that in the sandbox, and that without."""
    inside, control = ({name: size[at] for name, size in sizes.items()} for at in range(2))
    limits = {**limits, **({"memory": memory * MEGABYTE} if memory else {})}
    return attack(*refused, alone=True, ends=ends, limits=limits, extra=inside, control=control, **options)


def filled(megabytes: int) -> list[bytes]:
    return [bytes([number % 255 + 1]) * MEGABYTE for number in range(megabytes)]


def in_children(count: int, work: Callable[[], int], rest: float = 0) -> int:
    """Return the sum of what so many processes took, which all hold it together for a while."""
    children, taken = [], 0
    try:
        for _ in range(count):
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    os.write(writer, str(work()).encode())
                    time.sleep(60)
                finally:
                    os._exit(1)
            os.close(writer)
            children.append(child)
            taken += int(os.read(reader, 100) or 0)
        time.sleep(rest)
        return taken
    finally:
        end(children)


def end(children: Iterable[int]) -> None:
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def enough(taken: int, wanted: int) -> str:
    if taken < wanted:
        raise MemoryError
    return f"{taken} MB"


@bomb(*NO_MORE, ends=("processes",), count=(200, 5))
def forks_until_there_is_no_room_for_a_process(target: SimpleNamespace) -> object:
    return enough(in_children(target.count, lambda: 1), target.count)


@bomb(ends=("wall", "processes"), limits={"processes": 20}, options=FOR_EVER, depth=(7, 2), rest=(60, 0.2))
def forks_in_every_process_that_it_has_forked(target: SimpleNamespace) -> object:
    say("it forks")
    depth = number = 0
    while number < 2 and depth < target.depth:
        number += 1
        try:
            if os.fork() == 0:
                depth, number = depth + 1, 0
        except OSError:
            time.sleep(0.01)
    time.sleep(target.rest)
    try:
        while os.wait():
            pass
    except ChildProcessError:
        os._exit(0)


@bomb(*NO_MORE, ends=("processes",), count=(200, 5), rest=(0.5, 0))
def starts_threads_until_there_is_no_room_for_one(target: SimpleNamespace) -> object:
    threading.stack_size(65536)
    over = threading.Event()
    try:
        for _ in range(target.count):
            threading.Thread(target=over.wait, daemon=True).start()
        time.sleep(target.rest)
    finally:
        over.set()
    return target.count


@bomb(*NO_MORE, memory=160, megabytes=(768, 32))
def takes_memory_in_one_process(target: SimpleNamespace) -> object:
    return len(filled(target.megabytes))


@bomb(*NO_MORE, memory=256, limits={"processes": 128}, processes=(6, 2), megabytes=(96, 4))
def takes_memory_in_many_processes_together(target: SimpleNamespace) -> object:
    held: list[object] = []
    taken = in_children(target.processes, lambda: held.append(filled(target.megabytes)) or target.megabytes)
    return enough(taken, target.processes * target.megabytes)


@bomb("ENOSYS", memory=160, megabytes=(512, 16))
def takes_memory_in_files_that_have_no_name(target: SimpleNamespace) -> object:
    for _ in range(target.megabytes // 8):
        number = os.memfd_create("held")
        os.truncate(number, 8 * MEGABYTE)
        os.pwrite(number, b"x" * (8 * MEGABYTE), 0)
    return target.megabytes


@bomb(*NO_MORE, "EPERM", memory=160, megabytes=(320, 32), rest=(0.1, 0))
def takes_shared_memory_and_unmaps_it_in_each_process(target: SimpleNamespace) -> object:
    held, piece = mmap.mmap(-1, target.megabytes * MEGABYTE, flags=mmap.MAP_SHARED | 0x4000), 32 * MEGABYTE
    for at in range(0, target.megabytes * MEGABYTE, piece):
        pid = os.fork()
        if pid == 0:
            held[at : at + piece] = b"x" * piece
            os._exit(0)
        enough(-os.waitpid(pid, 0)[1], 0)
        time.sleep(target.rest)
    return target.megabytes


@bomb(*NO_MORE, memory=64, processes=(8, 2), pairs=(20_000, 1000), rest=(3, 0))
def takes_memory_of_the_kernel_in_thousands_of_mappings(target: SimpleNamespace) -> object:
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

    def split() -> int:
        pages = libc.mmap(None, 8192 * target.pairs, 0, 0x22, -1, 0)
        for number in range(target.pairs):
            libc.mprotect(pages + 8192 * number, 4096, 1)
        return 1

    return enough(in_children(target.processes, split, target.rest), target.processes)


@bomb(
    *NO_MORE,
    memory=160,
    limits={"files": 256},
    options={"degraded": "what the kernel holds in the buffers of sockets is not counted"},
    processes=(30, 1),
    megabytes=(20, 2),
    rest=(0.5, 0),
)
def takes_memory_of_the_kernel_in_the_buffers_of_sockets(target: SimpleNamespace) -> object:
    held, size = [], 0

    def fill() -> int:
        nonlocal size
        while size < target.megabytes * MEGABYTE:
            held.append(socket.socketpair())
            for each in held[-1]:
                each.setblocking(False)
                try:
                    while True:
                        size += each.send(b"x" * 65536)
                except BlockingIOError:
                    pass
        return size // MEGABYTE

    return enough(in_children(target.processes, fill, target.rest), target.processes * target.megabytes)


@bomb(*NO_SPACE, ends=("files",), options=ON_DISK, places=(PLACES, ["/tmp"]), megabytes=(64, 8))
def fills_every_place_that_it_may_write_to(target: SimpleNamespace) -> object:
    problems, endless, left = [], [], []
    for place in target.places:
        try:
            for number in range(target.megabytes // 8):
                left.append(f"{place}/{target.token}-{number}")
                with open(left[-1], "wb") as file:
                    file.write(b"x" * (8 * MEGABYTE))
            endless.append(place)
        except OSError as problem:
            problems.append(problem)
    for path in left:
        os.unlink(path)
    if not endless:
        raise problems[0]
    return endless


@bomb(*NO_SPACE, ends=("files",), limits={"file_size": 8 * MEGABYTE}, megabytes=(200, 4))
def writes_one_file_that_is_too_large(target: SimpleNamespace) -> object:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open(f"{target.output}/large", "wb") as file:
        os.truncate(file.fileno(), target.megabytes * MEGABYTE)
    os.unlink(f"{target.output}/large")
    return "written"


@bomb(*NO_SPACE, memory=64, options=ON_DISK, count=(100_000, 100), where=("/tmp", "/tmp"))
def makes_empty_files_until_the_kernels_memory_runs_out(target: SimpleNamespace) -> object:
    paths = [f"{target.where}/{number}-{target.token}" for number in range(target.count)]
    for path in paths:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    for path in paths:
        os.unlink(path)
    return len(paths)


@bomb(ends=("cpu", "signal 24", "signal 9"), limits={"cpu": 0.3}, processes=(3, 1), seconds=(15, 0.1))
def burns_the_time_of_all_cpus(target: SimpleNamespace) -> object:
    child = 1
    children = [child := os.fork() for _ in range(target.processes) if child]
    until = time.process_time() + target.seconds
    while time.process_time() < until:
        pass
    if child == 0:
        os._exit(0)
    for each in children:
        os.waitpid(each, 0)
    return "burnt"


def flood(number: int, megabytes: int) -> object:
    say("it writes")
    for _ in range(megabytes):
        os.write(number, b"x" * MEGABYTE)
    os._exit(0)


@bomb(ends=("output",), options=SAYS, number=(1, 1), megabytes=(400, 0))
def writes_without_end_to_stdout(target: SimpleNamespace) -> object:
    return flood(target.number, target.megabytes)


@bomb(ends=("output",), options=SAYS, number=(2, 2), megabytes=(400, 0))
def writes_without_end_to_stderr(target: SimpleNamespace) -> object:
    return flood(target.number, target.megabytes)


@bomb(ends=("signal 6", "exit 134"), options=SAYS, crashes=(True, False))
def leaves_the_memory_of_a_crash_behind(target: SimpleNamespace) -> object:
    os.chdir(target.output)
    say("it crashes")
    if target.crashes:
        os.abort()
    os._exit(0)


def in_javascript_alone(target: SimpleNamespace) -> NoReturn:
    """Its heap is its own, and its address space is not limited."""
    raise NotImplementedError


for _bomb, _name in (
    (bomb(*NO_MORE, memory=160, gigabytes=(300, 4)), "takes_memory_of_the_kernel_in_the_tables_of_pages"),
    (bomb(*NO_MORE, ends=HEAP, memory=112, megabytes=(768, 16)), "takes_memory_in_its_heap_of_objects"),
):
    _bomb(in_javascript_alone)
    ATTACKS[_name] = replace(ATTACKS.pop("in_javascript_alone"), name=_name, python=None)
