"""Attacks on what the machine has: processes, memory in every form, disk, the time of the CPU, the host's own memory.

Each of them ends by itself at a bound that the machine bears, so that a hole does no harm.
"""

from __future__ import annotations

from tests.scripts.attacks.attack import MEGABYTE, Attack

_NO_MORE = ("EAGAIN", "ENOMEM", "can't start new thread", "MemoryError", "Resource temporarily")
_KILLED = ("memory", "signal 9")

_FILL = """
    path, piece, written = target['places'], b'x' * (1 << 20), 0
    for place in target['places']:
        number = 0
        while number * 8 < target['megabytes']:
            try:
                with open(f"{place}/{target['token']}-{number}", 'wb') as file:
                    for _ in range(8):
                        file.write(piece)
                        file.flush()
                        written += 1
            except OSError as problem:
                last = problem
                break
            number += 1
    for place in target['places']:
        for name in os.listdir(place):
            if name.startswith(target['token']):
                os.unlink(f'{place}/{name}')
    if written < target['megabytes']:
        raise last
    return f'{written} MB'
"""

ATTACKS = [
    Attack(
        "forks until there is no room for a process",
        python="""
            made = []
            try:
                for _ in range(target['count']):
                    pid = os.fork()
                    if pid == 0:
                        time.sleep(60)
                        os._exit(0)
                    made.append(pid)
                return len(made)
            finally:
                for pid in made:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
        """,
        refused=_NO_MORE,
        ends=("processes",),
        target={"count": 200},
        control={"count": 5},
    ),
    Attack(
        "forks in every process that it has forked",
        python="""
            print('ended {"loot": "it forks"}', flush=True)
            depth = number = 0
            while number < 2 and depth < target['depth']:
                number += 1
                try:
                    if os.fork() == 0:
                        depth, number = depth + 1, 0
                except OSError:
                    time.sleep(0.01)
            time.sleep(target['rest'])
            try:
                while os.wait():
                    pass
            except ChildProcessError:
                os._exit(0)
        """,
        ends=("wall", "processes"),
        keeps_its_loot=True,
        wall=1.5,
        target={"depth": 7, "rest": 60},
        control={"depth": 2, "rest": 0.2},
        limits={"processes": 20},
    ),
    Attack(
        "starts threads until there is no room for one",
        python="""
            import threading
            threading.stack_size(65536)
            end = threading.Event()
            started = 0
            try:
                while started < target['count']:
                    threading.Thread(target=end.wait, daemon=True).start()
                    started += 1
                time.sleep(target['rest'])
            finally:
                end.set()
            return started
        """,
        refused=_NO_MORE,
        ends=("processes",),
        target={"count": 200, "rest": 0.5},
        control={"count": 5, "rest": 0},
    ),
    Attack(
        "takes memory in one process",
        python="""
            held = []
            for _ in range(target['megabytes'] // 8):
                held.append(bytearray(os.urandom(64) * (8 * 16384)))
            return f'{len(held) * 8} MB'
        """,
        nodejs="""
            const held = [];
            for (let size = 0; size < target.megabytes; size += 8) held.push(Buffer.alloc(8 << 20, size + 1));
            return `${held.length * 8} MB`;
        """,
        refused=("MemoryError", "ENOMEM", "allocation failed", "ERR_MEMORY_ALLOCATION_FAILED"),
        ends=_KILLED,
        target={"megabytes": 768},
        control={"megabytes": 32},
        limits={"memory": 160 * MEGABYTE},
    ),
    Attack(
        "takes memory in its heap of objects",
        nodejs="""
            const held = [];
            for (let size = 0; size < target.megabytes; size++) held.push(Array.from({ length: 1 << 17 }, (_, at) => at + 0.5));
            return `${held.length} MB`;
        """,
        ends=(*_KILLED, "signal 6", "signal 5", "exit 134", "exit 133"),
        target={"megabytes": 768},
        control={"megabytes": 16},
        limits={"memory": 160 * MEGABYTE},
    ),
    Attack(
        "takes memory in many processes together",
        python="""
            children, taken = [], 0
            for _ in range(target['processes']):
                reader, writer = os.pipe()
                child = os.fork()
                if child == 0:
                    try:
                        held = [bytes([number]) * (1 << 20) for number in range(1, target['megabytes'] + 1)]
                        os.write(writer, b'x')
                        time.sleep(60)
                    finally:
                        os._exit(1)
                os.close(writer)
                children.append(child)
                taken += len(os.read(reader, 1)) * target['megabytes']
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            if taken < target['processes'] * target['megabytes']:
                raise MemoryError
            return f'{taken} MB'
        """,
        refused=_NO_MORE,
        ends=_KILLED,
        target={"processes": 6, "megabytes": 96},
        control={"processes": 2, "megabytes": 4},
        limits={"memory": 256 * MEGABYTE, "processes": 128},
        wall=15,
    ),
    Attack(
        "takes memory in files that have no name",
        python="""
            import mmap
            held = []
            for _ in range(target['megabytes'] // 8):
                number = os.memfd_create('held')
                os.truncate(number, 8 << 20)
                os.pwrite(number, b'x' * (8 << 20), 0)
                held.append(number)
            return f'{len(held) * 8} MB'
        """,
        refused=("ENOSYS",),
        ends=_KILLED,
        target={"megabytes": 512},
        control={"megabytes": 16},
        limits={"memory": 160 * MEGABYTE},
    ),
    Attack(
        "takes memory that is shared, and unmaps it in each process that has taken it",
        python="""
            import mmap
            held = mmap.mmap(-1, target['megabytes'] << 20, flags=mmap.MAP_SHARED | 0x4000)
            for at in range(0, target['megabytes'] << 20, 32 << 20):
                pid = os.fork()
                if pid == 0:
                    held[at:at + (32 << 20)] = b'x' * (32 << 20)
                    os._exit(0)
                if os.waitpid(pid, 0)[1]:
                    raise MemoryError
                time.sleep(target['rest'])
            return f"{target['megabytes']} MB"
        """,
        refused=("MemoryError", "ENOMEM", "EPERM"),
        ends=_KILLED,
        target={"megabytes": 320, "rest": 0.1},
        control={"megabytes": 32, "rest": 0},
        limits={"memory": 160 * MEGABYTE},
    ),
    Attack(
        "takes memory of the kernel in the tables of pages",
        nodejs="""
            const code = `
            import mmap, sys
            size = int(sys.argv[1]) << 30
            held = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | 0x4000, prot=mmap.PROT_READ)
            for at in range(0, size, 2 << 20):
                held[at]
            `.replaceAll(/^ {12}/gm, '');
            const found = spawnSync('python3', ['-c', code, String(target.gigabytes), target.token]);
            if (found.error) throw found.error;
            if (found.status) throw new Error(found.stderr.toString());
            await sleep(target.rest);
            return `${target.gigabytes * 2} MB`;
        """,
        refused=("MemoryError", "Cannot allocate"),
        ends=_KILLED,
        target={"gigabytes": 300, "rest": 100},
        control={"gigabytes": 4, "rest": 0},
        limits={"memory": 160 * MEGABYTE},
    ),
    Attack(
        "takes memory of the kernel in thousands of mappings",
        python="""
            libc = ctypes.CDLL(None, use_errno=True)
            libc.mmap.restype = ctypes.c_void_p
            libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
            libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
            made = []
            try:
                for _ in range(target['processes']):
                    pid = os.fork()
                    if pid == 0:
                        pages = libc.mmap(None, 8192 * target['pairs'], 0, 0x22, -1, 0)
                        for number in range(target['pairs']):
                            libc.mprotect(pages + 8192 * number, 4096, 1)
                        time.sleep(target['seconds'])
                        os._exit(0)
                    made.append(pid)
                while made:
                    os.waitpid(made[-1], 0)
                    made.pop()
                return target['processes']
            finally:
                for pid in made:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
        """,
        refused=_NO_MORE,
        ends=_KILLED,
        target={"processes": 12, "pairs": 32_000, "seconds": 3},
        control={"processes": 2, "pairs": 1000, "seconds": 0},
        limits={"memory": 128 * MEGABYTE},
    ),
    Attack(
        "takes memory of the kernel in the buffers of sockets and pipes",
        python="""
            held, size, piece = [], 0, b'x' * 65536
            def fill():
                nonlocal size
                while size < target['megabytes'] << 20:
                    pair = socket.socketpair()
                    held.append(pair)
                    for each in pair:
                        each.setblocking(False)
                        try:
                            while True:
                                size += each.send(piece)
                        except BlockingIOError:
                            pass
            children, taken = [], 0
            for _ in range(target['processes']):
                reader, writer = os.pipe()
                child = os.fork()
                if child == 0:
                    try:
                        try:
                            fill()
                        except OSError:
                            pass
                        os.write(writer, str(size).encode())
                        time.sleep(60)
                    finally:
                        os._exit(1)
                os.close(writer)
                children.append(child)
                taken += int(os.read(reader, 100) or 0)
            time.sleep(target['rest'])
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            if taken < target['processes'] * target['megabytes'] << 20:
                raise MemoryError(f'{taken >> 20} MB')
            return f'{taken >> 20} MB'
        """,
        refused=("MemoryError", "EMFILE"),
        ends=_KILLED,
        target={"processes": 30, "megabytes": 20, "rest": 0.5},
        control={"processes": 1, "megabytes": 2, "rest": 0},
        limits={"memory": 160 * MEGABYTE, "files": 256},
        degraded="what the kernel holds in the buffers of sockets is not counted",
    ),
    Attack(
        "fills every place that it may write to",
        python=_FILL,
        refused=("ENOSPC", "EFBIG", "EDQUOT"),
        ends=("files",),
        target={"places": ["/tmp", "/dev/shm", "/output", "/script/.cache"], "megabytes": 256},
        control={"places": ["/tmp"], "megabytes": 8},
        limits={"scratch": 16 * MEGABYTE, "memory": 512 * MEGABYTE},
        degraded="the disk that is written to is not limited",
    ),
    Attack(
        "writes one file that is too large",
        python="""
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            with open(target['output'] + '/large', 'wb') as file:
                os.truncate(file.fileno(), target['megabytes'] << 20)
            os.unlink(target['output'] + '/large')
            return 'written'
        """,
        nodejs="""
            fs.writeFileSync(target.output + '/large', '');
            fs.truncateSync(target.output + '/large', target.megabytes << 20);
            fs.rmSync(target.output + '/large');
            return 'written';
        """,
        refused=("EFBIG", "ENOSPC"),
        ends=("files",),
        target={"megabytes": 200},
        control={"megabytes": 4},
        limits={"file_size": 8 * MEGABYTE},
    ),
    Attack(
        "makes so many empty files that the kernel's memory runs out",
        python="""
            for number in range(target['count']):
                os.close(os.open(f"{target['where']}/{number}-{target['token']}", os.O_CREAT | os.O_WRONLY))
            for number in range(target['count']):
                os.unlink(f"{target['where']}/{number}-{target['token']}")
            return number + 1
        """,
        nodejs="""
            for (let number = 0; number < target.count; number++) fs.writeFileSync(`${target.where}/${number}-${target.token}`, '');
            for (let number = 0; number < target.count; number++) fs.rmSync(`${target.where}/${number}-${target.token}`);
            return target.count;
        """,
        refused=("ENOSPC", "ENOMEM", "EDQUOT"),
        ends=_KILLED,
        target={"count": 150_000, "where": "/tmp"},
        control={"count": 100, "where": "/tmp"},
        limits={"memory": 96 * MEGABYTE},
        degraded="the disk that is written to is not limited",
    ),
    Attack(
        "leaves more files than anybody would copy",
        python="""
            os.mkdir(target['output'] + '/many')
            for number in range(target['count']):
                os.close(os.open(f"{target['output']}/many/{number}", os.O_CREAT | os.O_WRONLY))
            deep = target['output']
            for _ in range(100):
                deep += '/d'
                os.mkdir(deep)
            return number + 1
        """,
        keeps_its_loot=True,
        target={"count": 11_000},
        control={"count": 10},
    ),
    Attack(
        "burns the time of all CPUs",
        python="""
            children = []
            for _ in range(target['processes']):
                children.append(os.fork())
                if children[-1] == 0:
                    break
            until = time.process_time() + target['seconds']
            while time.process_time() < until:
                pass
            if children[-1] == 0:
                os._exit(0)
            for child in children:
                os.waitpid(child, 0)
            return 'burnt'
        """,
        ends=("cpu", "signal 24", "signal 9"),
        target={"processes": 3, "seconds": 15},
        control={"processes": 1, "seconds": 0.1},
        limits={"cpu": 1},
        wall=20,
    ),
    *(
        Attack(
            f"writes without end to {name}",
            python="""
                print('ended {"loot": "it writes"}', flush=True)
                for _ in range(target['megabytes']):
                    os.write(target['number'], b'x' * (1 << 20))
            """,
            nodejs="""
                fs.writeSync(1, 'ended {"loot": "it writes"}\\n');
                const piece = Buffer.alloc(1 << 20, 120);
                for (let count = 0; count < target.megabytes; count++) {
                  for (let at = 0; at < piece.length;) {
                    try { at += fs.writeSync(target.number, piece, at); } catch (problem) { if (problem.code !== 'EAGAIN') throw problem; await sleep(1); }
                  }
                }
            """,
            ends=("output",),
            keeps_its_loot=True,
            target={"number": number, "megabytes": 400},
            control={"number": number, "megabytes": 0},
        )
        for number, name in ((1, "stdout"), (2, "stderr"))
    ),
    Attack(
        "leaves the memory of a crash behind",
        python="""
            import resource
            os.chdir(target['output'])
            print('ended {"loot": "it crashes"}', flush=True)
            if target['crashes']:
                os.kill(os.getpid(), signal.SIGABRT)
        """,
        nodejs="""
            process.chdir(target.output);
            fs.writeSync(1, 'ended {"loot": "it crashes"}\\n');
            if (target.crashes) process.abort();
            process.exit(0);
        """,
        ends=("signal 6", "exit 134"),
        keeps_its_loot=True,
        target={"crashes": True},
        control={"crashes": False},
    ),
]
