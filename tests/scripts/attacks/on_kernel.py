"""Attacks on what keeps the sandbox together: namespaces, mounts, rights, limits, and the kernel's less guarded calls."""

from __future__ import annotations

import platform
from typing import Any

from tests.scripts.attacks.attack import Attack

_REFUSED = ("EPERM", "ENOSYS", "not permitted", "denied")
_TOOL = """
    const found = spawnSync(COMMAND[0], COMMAND.slice(1));
    if (found.error) throw found.error;
    if (found.status) throw new Error(found.stderr.toString().trim());
    return 'done';
"""


def _tool(command: str) -> str:
    return _TOOL.replace("COMMAND", command)


def _mount(source: str, to: str, kind: str, flags: int) -> str:
    return f"""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount({source}, {to}, {kind}, ctypes.c_ulong({flags}), None):
        raise OSError(ctypes.get_errno(), 'mount')
    return 'mounted'
"""


_ARM = platform.machine() == "aarch64"
_CALLS: list[tuple[Any, ...]] = [
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

_HARMLESS = (430, 428, 440, 250, 248, 303, 312)
"""Those that answer something else than a refusal to anybody, by their number on x86_64."""


def _calls(table: list[tuple[Any, ...]]) -> list[list[Any]]:
    return [[arm if _ARM else intel, *arguments] for intel, arm, *arguments in table if arm or not _ARM]


_SETTINGS = """
    /proc/sysrq-trigger /proc/sys/kernel/core_pattern /proc/sys/kernel/hostname /proc/sys/kernel/modprobe
    /proc/sys/kernel/randomize_va_space /proc/sys/fs/binfmt_misc/register /proc/sys/vm/overcommit_memory
    /proc/sys/vm/drop_caches /proc/sys/net/ipv4/ip_forward /proc/sys/user/max_user_namespaces
    /proc/irq/0/smp_affinity /proc/mtrr /proc/acpi/wakeup /sys/kernel/uevent_helper
    /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/cgroup.procs
"""
_MEMORY = """
    /proc/kcore /proc/kmsg /dev/mem /dev/kmem /dev/port /dev/kmsg /proc/kpagecount /dev/vda /dev/sda
    /dev/nvme0n1 /etc/shadow /proc/vmallocinfo /proc/keys /proc/key-users /sys/kernel/debug
    /sys/firmware/dmi/tables/DMI /proc/1/stack /proc/self/stack
"""

ATTACKS = [
    Attack(
        "makes a user namespace of its own",
        python="""
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.unshare(0x10000000):
                raise OSError(ctypes.get_errno(), 'unshare')
            return 'made'
        """,
        nodejs=_tool("['unshare', '--user', '--map-root-user', 'true']"),
        refused=_REFUSED,
    ),
    Attack(
        "clones itself into a user namespace",
        python="""
            libc = ctypes.CDLL(None, use_errno=True)
            pid = libc.syscall(target['clone'], 0x10000000 | 17, 0, 0, 0, 0)
            if pid == 0:
                os._exit(0)
            if pid < 0:
                raise OSError(ctypes.get_errno(), 'clone')
            os.waitpid(pid, 0)
            return 'made'
        """,
        refused=_REFUSED,
        target={"clone": 220 if _ARM else 56},
    ),
    Attack(
        "clones itself by the newer call, whose flags no filter can see",
        python="""
            import struct
            libc = ctypes.CDLL(None, use_errno=True)
            arguments = ctypes.create_string_buffer(struct.pack('8Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0))
            pid = libc.syscall(435, arguments, 64)
            if pid == 0:
                os._exit(0)
            if pid < 0:
                raise OSError(ctypes.get_errno(), 'clone3')
            os.waitpid(pid, 0)
            return 'made'
        """,
        refused=("ENOSYS",),
    ),
    Attack(
        "makes any other namespace",
        python="""
            libc = ctypes.CDLL(None, use_errno=True)
            made = []
            for flag in (0x20000, 0x4000000, 0x8000000, 0x2000000, 0x40000000, 0x20000000, 0x80):
                if libc.unshare(flag) == 0:
                    made.append(hex(flag))
                else:
                    code = ctypes.get_errno()
            if not made:
                raise OSError(code, 'unshare')
            return made
        """,
        nodejs="""
            const kinds = ['--mount', '--uts', '--ipc', '--pid', '--net', '--cgroup'];
            const found = kinds.map((kind) => spawnSync('unshare', [kind, 'true']));
            const made = kinds.filter((_, at) => found[at].status === 0);
            if (!made.length) throw new Error(found[0].stderr.toString().trim());
            return made;
        """,
        refused=_REFUSED,
        outside="namespaced",
    ),
    Attack(
        "enters the namespaces of another process",
        python="""
            libc = ctypes.CDLL(None, use_errno=True)
            for pid in (1, 'self'):
                for name in ('user', 'mnt', 'net', 'pid', 'uts'):
                    try:
                        number = os.open(f'/proc/{pid}/ns/{name}', os.O_RDONLY)
                    except OSError:
                        continue
                    if libc.setns(number, 0) == 0:
                        return name
                    code = ctypes.get_errno()
            raise OSError(code, 'setns')
        """,
        nodejs=_tool("['nsenter', '--target', '1', '--net', 'true']"),
        refused=_REFUSED,
        outside="namespaced",
    ),
    Attack(
        "mounts a file system of its own",
        python=_mount("b'none'", "b'/tmp'", "b'tmpfs'", 0),
        nodejs=_tool("['mount', '-t', 'tmpfs', 'none', '/tmp']"),
        refused=(*_REFUSED, "superuser", "failed"),
        outside="namespaced",
    ),
    Attack(
        "makes what is read-only writable by mounting it again",
        python=_mount("None", "target['place'].encode()", "None", 0x20 | 0x1000),
        nodejs=_tool("['mount', '-o', 'remount,bind,rw', target.place]"),
        refused=(*_REFUSED, "superuser", "failed"),
        outside="namespaced",
        target={"place": "/usr"},
        control={"place": "/proc"},
    ),
    Attack(
        "mounts by the newer calls",
        python="""
            libc = ctypes.CDLL(None, use_errno=True)
            opened = libc.syscall(430, b'tmpfs', 0)
            if opened < 0:
                opened = libc.syscall(428, -100, b'/tmp', 1)
            if opened < 0:
                raise OSError(ctypes.get_errno(), 'fsopen')
            return 'opened'
        """,
        refused=_REFUSED,
        outside="namespaced",
    ),
    Attack(
        "takes a mount away to see what lies beneath",
        python="""
            libc = ctypes.CDLL(None, use_errno=True)
            for place in target['places']:
                if libc.umount2(place.encode(), 2) == 0:
                    return place
            raise OSError(ctypes.get_errno(), 'umount')
        """,
        nodejs=_tool("['umount', '-l', ...target.places.slice(0, 1)]"),
        refused=(*_REFUSED, "superuser", "failed"),
        outside="namespaced",
        target={"places": ["/proc", "/dev/shm", "/tmp", "/script", "/etc/passwd", "/"]},
        control={"places": ["/proc"]},
    ),
    Attack(
        "changes its root folder",
        python="""
            os.chroot('/tmp')
            return 'changed'
        """,
        nodejs=_tool("['/usr/sbin/chroot', '/', 'true']"),
        refused=_REFUSED,
        outside="namespaced",
    ),
    Attack(
        "makes a device",
        python="""
            import stat
            path = f"/tmp/device-{target['token']}"
            os.mknod(path, target['kind'] | 0o600, os.makedev(1, 1))
            os.unlink(path)
            return 'made'
        """,
        refused=("EPERM", "not permitted"),
        target={"kind": 0o020000},
        control={"kind": 0o010000},
    ),
    Attack(
        "becomes another user",
        python="""
            for user in (0, 1, 65534):
                for become in (os.setuid, os.setgid, os.seteuid):
                    try:
                        become(user)
                        return user or 'root'
                    except OSError as problem:
                        last = problem
            try:
                os.setgroups([0])
                return 'root group'
            except OSError:
                raise last from None
        """,
        nodejs="process.setuid(0); return 'root';",
        refused=("EPERM", "EINVAL"),
        outside="namespaced",
    ),
    Attack(
        "runs a program that would run as its owner",
        python="""
            found = subprocess.run([target['script'] + '/set-uid-id'], capture_output=True, text=True, check=True).stdout
            return found if ('euid=0' in found or 'uid=0' in found.split()[0]) else None
        """,
        nodejs="""
            const found = spawnSync(target.script + '/set-uid-id').stdout.toString();
            return /uid=0/.test(found) ? found : null;
        """,
        refused=("nothing",),
        may_lack="ENOENT",
    ),
    Attack(
        "has rights of root left",
        python="""
            status = dict(line.split(':\\t') for line in open(target['status']).read().splitlines() if ':\\t' in line)
            left = [f'{name} {status[name]}' for name in ('CapInh', 'CapPrm', 'CapEff', 'CapAmb', 'CapBnd')
                    if int(status[name], 16)]
            if status['NoNewPrivs'].strip() != '1':
                left.append('may get new ones')
            if status['Seccomp'].strip() != '2':
                left.append('no filter')
            if '0' in status['Uid'].split() + status['Gid'].split() + status['Groups'].split():
                left.append('is root')
            return left
        """,
        nodejs="""
            const lines = fs.readFileSync(target.status, 'utf8').split('\\n').map((line) => line.split(':\\t'));
            const status = Object.fromEntries(lines);
            const left = ['CapInh', 'CapPrm', 'CapEff', 'CapAmb', 'CapBnd'].filter((name) => BigInt('0x' + status[name]) !== 0n);
            if (status.NoNewPrivs.trim() !== '1') left.push('may get new ones');
            if (status.Seccomp.trim() !== '2') left.push('no filter');
            if (`${status.Uid} ${status.Gid} ${status.Groups}`.split(/\\s+/).includes('0')) left.push('is root');
            return left;
        """,
        refused=("nothing",),
        target={"status": "/proc/self/status"},
    ),
    Attack(
        "uses the calls that the kernel guards least",
        python="""
            libc = ctypes.CDLL(None, use_errno=True)
            held = ctypes.create_string_buffer(256)
            done = []
            for number, *arguments in target['calls']:
                answer = libc.syscall(number, *[held if each == 'held' else each for each in arguments])
                code = ctypes.get_errno()
                if answer >= 0 or code not in (errno.EPERM, errno.ENOSYS):
                    done.append((number, errno.errorcode.get(code) if answer < 0 else answer))
            return done
        """,
        refused=("nothing",),
        target={"calls": _calls(_CALLS)},
        control={"calls": _calls([call for call in _CALLS if call[0] in _HARMLESS])},
    ),
    Attack(
        "calls the kernel by numbers of another kind of program",
        python="""
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.syscall(ctypes.c_long(target['bit'] | 39)) < 0:
                raise OSError(ctypes.get_errno(), 'call')
            return 'called'
        """,
        refused=("ENOSYS",),
        target={"bit": 0x40000000},
        control={"bit": 0},
    ),
    Attack(
        "calls the kernel as a program of 32 bits, which no filter for 64 bits would see",
        python="""
            import mmap, platform
            if platform.machine() != 'x86_64':
                raise RuntimeError('no such programs')
            code = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=7)
            code.write(b'\\x53\\xb8\\x14\\0\\0\\0\\xcd\\x80\\x5b\\xc3')  # getpid
            call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
            return call() == os.getpid()
        """,
        refused=("ENOSYS",),
        ends=("signal 31",),
        may_lack="no such programs",
    ),
    Attack(
        "writes to the settings of the kernel",
        python="""
            opened = []
            for path in target['paths']:
                for flags in (os.O_WRONLY, os.O_RDWR):
                    try:
                        os.close(os.open(path, flags))
                        opened.append(path)
                    except OSError as problem:
                        last = problem
            if not opened:
                raise last
            return opened
        """,
        refused=("EROFS", "EACCES", "ENOENT", "EPERM"),
        target={"paths": _SETTINGS.split()},
        control={"paths": ["/proc/self/comm"]},
    ),
    Attack(
        "reads the memory of the machine and its log",
        python="""
            found = []
            for path in target['paths']:
                try:
                    with open(path, 'rb') as file:
                        if file.read(4096).strip(b'\\0'):
                            found.append(path)
                except OSError:
                    pass
            return found
        """,
        refused=("nothing",),
        target={"paths": _MEMORY.split()},
        control={"paths": ["/proc/self/stat"]},
    ),
    Attack(
        "reaches the control groups",
        python="""
            found = [place for place in ('/sys/fs/cgroup', '/sys/fs/cgroup/memory', '/sys') if os.path.isdir(place)]
            for line in open('/proc/self/mountinfo'):
                if ' - cgroup' in line:
                    found.append(line)
            return found
        """,
        nodejs="return fs.existsSync('/sys/fs/cgroup') ? fs.readdirSync('/sys/fs/cgroup') : [];",
        refused=("nothing",),
    ),
    Attack(
        "protects itself from the end that comes when memory runs out",
        python="""
            with open('/proc/self/oom_score_adj', 'w') as file:
                file.write(target['score'])
            return 'protected'
        """,
        nodejs="fs.writeFileSync('/proc/self/oom_score_adj', target.score); return 'protected';",
        refused=("EACCES", "EPERM", "EROFS"),
        target={"score": "-1000"},
        control={"score": "1000"},
    ),
    Attack(
        "raises its limits",
        python="""
            import resource
            kinds = (resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU,
                     resource.RLIMIT_CORE, resource.RLIMIT_DATA, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE)
            raised = []
            for kind in kinds:
                soft, hard = resource.getrlimit(kind)
                if hard == resource.RLIM_INFINITY:
                    raised.append(f'{kind} has no limit')
                try:
                    resource.setrlimit(kind, (soft, hard + 1 if target['beyond'] else hard))
                    raised.append(kind)
                except (OSError, ValueError):
                    pass
            return raised
        """,
        nodejs="""
            const command = target.beyond ? 'ulimit -H -u 100000 && ulimit -H -n 1000000' : 'ulimit -n 100';
            const found = spawnSync('bash', ['-c', command]);
            if (found.status) throw new Error(found.stderr.toString().trim());
            return 'raised';
        """,
        refused=("nothing", "not permitted", "cannot modify"),
        target={"beyond": True},
        control={"beyond": False},
    ),
    Attack(
        "sees the name of the host",
        python="""
            names = {socket.gethostname(), os.uname().nodename, open('/proc/sys/kernel/hostname').read().strip()}
            return sorted(names - {'sandbox', 'localhost'}) if target['inside'] else sorted(names)
        """,
        nodejs="return target.inside && os.hostname() === 'sandbox' ? null : os.hostname();",
        refused=("nothing",),
        degraded="it has no name of its own",
        target={"inside": True},
        control={"inside": False},
    ),
]
