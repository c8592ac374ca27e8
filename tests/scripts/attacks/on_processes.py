"""Attacks on the processes of the host: what they hold, signals, debugging, living on, what is inherited from them."""

from __future__ import annotations

from tests.scripts.attacks.attack import Attack

_NOBODY = ("ESRCH", "EPERM", "ENOENT", "EINVAL")

_LAST_WORDS = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
"""

ATTACKS = [
    Attack(
        "reads its environment for secrets of the host",
        python="return [value for value in os.environ.values() if target['needle'] in value]",
        nodejs="return Object.values(process.env).filter((value) => value.includes(target.needle));",
        refused=("nothing",),
    ),
    Attack(
        "reads the environment and the arguments of every process in /proc",
        python="""
            found = []
            for pid in [*filter(str.isdecimal, os.listdir('/proc')), target['victim_pid'], os.getppid(), 1, 2]:
                for name in ('environ', 'cmdline', 'task/%s/environ' % pid):
                    try:
                        found += [text for text in open(f'/proc/{pid}/{name}').read().split('\\0') if target['needle'] in text]
                    except OSError:
                        pass
            return found
        """,
        refused=("nothing",),
    ),
    Attack(
        "reads the memory of the first process for secrets of the host",
        python="""
            found = []
            for pid in target['pids']:
                try:
                    areas = open(f'/proc/{pid}/maps').read().splitlines()
                    memory = open(f'/proc/{pid}/mem', 'rb')
                except OSError:
                    continue
                for area in areas:
                    first, _, last = area.split()[0].partition('-')
                    if ' rw' not in area or int(last, 16) - int(first, 16) > 1 << 26:
                        continue
                    try:
                        memory.seek(int(first, 16))
                        data = memory.read(int(last, 16) - int(first, 16))
                    except (OSError, ValueError, OverflowError):
                        continue
                    at = data.find(target['needle'].encode() + b'')
                    while at >= 0:
                        word = data[at:at + 38].split(b'\\0')[0]
                        if len(word) == 38:
                            found.append(word.decode(errors='replace'))
                        at = data.find(target['needle'].encode(), at + 1)
            return found
        """,
        refused=("nothing",),
        target={"pids": [1]},
        control={"pids": ["self"]},
    ),
    Attack(
        "takes the time of the host's processes from /proc",
        python="return [pid for pid in os.listdir('/proc') if pid.isdecimal() and int(pid) > 100]",
        nodejs="return fs.readdirSync('/proc').filter((name) => /^[0-9]+$/.test(name) && Number(name) > 100);",
        refused=("nothing",),
        degraded="the pids of the host are not hidden",
    ),
    Attack(
        "ends a process of the host",
        python="""
            os.kill(target['victim_pid'], signal.SIGKILL)
            return 'sent'
        """,
        nodejs="process.kill(target.victim_pid, 'SIGKILL'); return 'sent';",
        refused=_NOBODY,
        damages=True,
    ),
    Attack(
        "stops a process of the host, by its descriptor",
        python="""
            signal.pidfd_send_signal(os.pidfd_open(target['victim_pid']), signal.SIGSTOP)
            return 'sent'
        """,
        nodejs="process.kill(target.victim_pid, 'SIGSTOP'); return 'sent';",
        refused=_NOBODY,
        damages=True,
    ),
    Attack(
        "sends a signal to all processes that there are",
        python="""
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGURG, lambda *_: os._exit(9))
                print('waits', flush=True)
                time.sleep(60)
            time.sleep(0.2)
            os.kill(-1, signal.SIGURG)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        """,
        nodejs="""
            const child = spawn('sh', ['-c', 'trap "exit 9" URG; echo waits; while :; do sleep 0.05; done']);
            await new Promise((go) => child.stdout.once('data', go));
            process.kill(-1, 'SIGURG');
            return await new Promise((go) => child.once('exit', (code) => go(code === 9)));
        """,
        outside="namespaced",
        keeps_its_loot=True,
    ),
    Attack(
        "debugs a process of the host",
        python="""
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.ptrace(0x4206, target['victim_pid'], None, None):
                raise OSError(ctypes.get_errno(), 'ptrace')
            return 'seized'
        """,
        refused=("EPERM", "ENOSYS"),
    ),
    Attack(
        "debugs another process of its own, to be free of its own filter",
        python="""
            libc = ctypes.CDLL(None, use_errno=True)
            child = subprocess.Popen(['sleep', '5'])
            time.sleep(0.05)
            if libc.ptrace(0x4206, child.pid, None, None):
                code = ctypes.get_errno()
                child.kill()
                raise OSError(code, 'ptrace')
            child.kill()
            return 'seized'
        """,
        refused=("EPERM", "ENOSYS"),
    ),
    Attack(
        "reads and writes the memory of a process of the host",
        python="""
            libc = ctypes.CDLL(None, use_errno=True)
            class Piece(ctypes.Structure):
                _fields_ = [('base', ctypes.c_void_p), ('length', ctypes.c_size_t)]
            theirs = Piece(target['victim_address'], 38)
            done = []
            for call in (libc.process_vm_readv, libc.process_vm_writev):
                held = ctypes.create_string_buffer(b'spoilt', 64)
                mine = Piece(ctypes.addressof(held), 38)
                if call(target['victim_pid'], ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0) >= 0:
                    done.append(held.value.decode())
                code = ctypes.get_errno()
            if not done:
                raise OSError(code, 'process_vm')
            return done
        """,
        refused=("EPERM", "ENOSYS"),
        damages=True,
    ),
    Attack(
        "opens the memory of a process of the host in /proc",
        python="""
            memory = open(f"/proc/{target['victim_pid']}/mem", 'rb')
            memory.seek(target['victim_address'])
            return memory.read(38).decode()
        """,
        nodejs="""
            const memory = fs.openSync(`/proc/${target.victim_pid}/mem`, 'r');
            const held = Buffer.alloc(38);
            fs.readSync(memory, held, 0, 38, target.victim_address);
            return held.toString();
        """,
        refused=("ENOENT", "EACCES"),
    ),
    Attack(
        "takes a descriptor from a process of the host",
        python="""
            libc = ctypes.CDLL(None, use_errno=True)
            try:
                process = os.pidfd_open(target['victim_pid'])
            except OSError:
                process = os.pidfd_open(os.getpid())
            taken = libc.syscall(438, process, target['victim_descriptor'], 0)
            if taken < 0:
                raise OSError(ctypes.get_errno(), 'pidfd_getfd')
            return os.pread(taken, 100, 0).decode()
        """,
        refused=("EPERM", "ENOSYS"),
    ),
    Attack(
        "changes the limits and the priority of a process of the host",
        python="""
            import resource
            done, problems = [], []
            for what in (
                lambda: resource.prlimit(target['victim_pid'], resource.RLIMIT_NOFILE, (4, 4096)),
                lambda: os.setpriority(os.PRIO_PROCESS, target['victim_pid'], 19),
                lambda: os.sched_setaffinity(target['victim_pid'], {0}),
            ):
                try:
                    what()
                    done.append(1)
                except OSError as problem:
                    problems.append(problem)
            if not done:
                raise problems[0]
            return done
        """,
        nodejs="os.setPriority(target.victim_pid, 19); return 'changed';",
        refused=(*_NOBODY, "ERR_SYSTEM_ERROR"),
        damages=True,
    ),
    Attack(
        "reads from what it inherits",
        python="""
            found = []
            for number in map(int, os.listdir('/proc/self/fd')):
                if number > 2:
                    try:
                        found.append(os.pread(number, 100, 0).decode())
                    except OSError as problem:
                        if problem.errno != errno.EBADF:
                            found.append(f'{number}: {os.readlink(f"/proc/self/fd/{number}")}')
            return found
        """,
        nodejs="""
            const found = [];
            const said = spawnSync('ls', ['-l', '/proc/self/fd'], { stdio: ['ignore', 'pipe', 'ignore', 'inherit'] });
            for (const link of said.stdout.toString().split('\\n')) {
              const where = link.split(' -> ')[1] ?? '';
              if (where && !/^(\\/dev\\/null|\\/proc|pipe:|anon_inode:|socket:)/.test(where)) found.push(where);
            }
            for (let number = 3; number < 200; number++) {
              const held = Buffer.alloc(100);
              try {
                if (fs.readSync(number, held, 0, 100, 0) && held.includes(target.needle)) found.push(held.toString('utf8', 0, 38));
              } catch {}
            }
            return found;
        """,
        refused=("nothing",),
    ),
    Attack(
        "types into the terminal of the host",
        python="""
            import fcntl, termios
            problems = []
            for path in ('/dev/tty', '/dev/console', '/dev/tty0', '/dev/pts/0', '/proc/1/fd/0', 0, 1, 2):
                try:
                    number = path if isinstance(path, int) else os.open(path, os.O_RDWR | os.O_NONBLOCK)
                    if target['types']:
                        fcntl.ioctl(number, termios.TIOCSTI, b'#')
                    elif not os.isatty(number):
                        continue
                    return 'typed'
                except OSError as problem:
                    problems.append(problem)
            raise problems[-1]
        """,
        refused=("EPERM", "ENOTTY"),
        target={"types": True},
        control={"types": False},
    ),
    Attack(
        "opens the terminal that the host was started from",
        python="return os.ttyname(os.open('/dev/tty', os.O_RDWR))",
        nodejs="return fs.openSync('/dev/tty', 'r+') > 2;",
        refused=("ENXIO", "ENOENT", "EACCES"),
    ),
    Attack(
        "leaves a process behind that has left its session and ignores all signals",
        python=f"""
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    {"; ".join(_LAST_WORDS.strip().splitlines())}
                    for number in range(64):
                        try:
                            os.close(number)
                        except OSError:
                            pass
                    while True:
                        time.sleep(1)
                os._exit(0)
            os.wait()
            return 'left'
        """,
        nodejs="""
            const child = spawn(process.execPath, ['-e', "process.on('SIGTERM', () => {}); setInterval(() => {}, 1000)", target.token],
              { detached: true, stdio: 'ignore' });
            child.unref();
            await sleep(200);
            return 'left';
        """,
        keeps_its_loot=True,
        survives=True,
    ),
    Attack(
        "leaves a process behind that holds its outputs open",
        python="""
            if os.fork() == 0:
                os.setsid()
                while True:
                    time.sleep(1)
            return 'left'
        """,
        nodejs="""
            spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)', target.token],
              { detached: true, stdio: ['ignore', 'inherit', 'inherit'] }).unref();
            await sleep(200);
            return 'left';
        """,
        keeps_its_loot=True,
        survives=True,
    ),
    Attack(
        "ignores every signal and outlives its time, with its children",
        python="""
            for number in range(1, 65):
                try:
                    signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError):
                    pass
            for _ in range(3):
                if os.fork() == 0:
                    os.setsid()
                    while True:
                        time.sleep(0.1)
            print('ended {"loot": "it goes on"}', flush=True)
            while target['goes_on']:
                time.sleep(0.1)
        """,
        nodejs="""
            for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(name, () => {});
            spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)', target.token], { detached: true, stdio: 'ignore' });
            await sleep(200);
            fs.writeSync(1, 'ended {"loot": "it goes on"}\\n');
            while (target.goes_on) await sleep(100);
        """,
        ends=("wall",),
        keeps_its_loot=True,
        wall=1.5,
        target={"goes_on": True},
        control={"goes_on": False},
        survives=True,
    ),
    Attack(
        "closes its outputs and goes on",
        python="""
            print('ended {"loot": "it goes on"}', flush=True)
            for number in range(3):
                os.close(number)
            while target['goes_on']:
                time.sleep(0.1)
            os._exit(0)
        """,
        nodejs="""
            fs.writeSync(1, 'ended {"loot": "it goes on"}\\n');
            for (const number of [1, 2]) fs.closeSync(number);
            while (target.goes_on) await sleep(100);
            process.exit(0);
        """,
        ends=("wall",),
        keeps_its_loot=True,
        wall=1.5,
        target={"goes_on": True},
        control={"goes_on": False},
    ),
    Attack(
        "stops itself, so that nothing of it ends",
        python="""
            print('ended {"loot": "it stops"}', flush=True)
            while target['goes_on']:
                os.kill(0, signal.SIGSTOP)
        """,
        nodejs="""
            fs.writeSync(1, 'ended {"loot": "it stops"}\\n');
            while (target.goes_on) process.kill(0, 'SIGSTOP');
            process.exit(0);
        """,
        ends=("wall",),
        keeps_its_loot=True,
        wall=1.5,
        target={"goes_on": True},
        control={"goes_on": False},
    ),
]
