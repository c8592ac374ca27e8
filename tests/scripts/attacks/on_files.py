"""Attacks on the files of the host: reading, writing, links, what the next run finds, what exists at all."""

from __future__ import annotations

from tests.scripts.attacks.attack import Attack

_ABSENT = ("ENOENT", "EACCES")
_NOT_WRITABLE = ("EROFS", "EACCES", "ENOENT", "EPERM")
_SEEN = "whether a file exists can be found out"

_OF_THE_SYSTEM = """
    / /usr /usr/bin /usr/lib /usr/local/lib /etc /etc/ssl /dev /dev/pts /run /run/tavern /var /proc /sys /home
    /script /tavern /lib /bin
"""
_OF_THE_HOST = """
    /home /root/.ssh /root/.bashrc /var /var/run/docker.sock /run/docker.sock /run/dbus /boot /sys /opt /srv
    /mnt /media /etc/shadow /etc/hostname /etc/machine-id /etc/ssh /etc/sudoers /dev/sda /dev/vda /dev/kvm
    /dev/mem /dev/fuse /dev/net /.dockerenv /lost+found /proc/1/root/home /proc/self/root/home
"""

ATTACKS = [
    Attack(
        "reads a file of the host by its absolute path",
        python="return open(target['outside'] + '/secret.txt').read()",
        nodejs="return fs.readFileSync(target.outside + '/secret.txt', 'utf8');",
        refused=_ABSENT,
    ),
    Attack(
        "climbs out of its folder with ..",
        python="return open(target['script'] + '/' + target['climb'] + '/secret.txt').read()",
        nodejs="return fs.readFileSync(target.script + '/' + target.climb + '/secret.txt', 'utf8');",
        refused=_ABSENT,
    ),
    Attack(
        "reads through a symbolic link that lies beside it",
        python="return open(target['script'] + '/link-to-secret.txt').read()",
        nodejs="return fs.readFileSync(target.script + '/link-to-secret.txt', 'utf8');",
        refused=_ABSENT,
    ),
    Attack(
        "reads through a symbolic link that it makes itself",
        python="""
            os.symlink(target['outside'], target['output'] + '/made')
            return open(target['output'] + '/made/secret.txt').read()
        """,
        nodejs="""
            fs.symlinkSync(target.outside, target.output + '/made');
            return fs.readFileSync(target.output + '/made/secret.txt', 'utf8');
        """,
        refused=_ABSENT,
    ),
    Attack(
        "makes hard links to files of the host, reads one and writes through the other",
        python="""
            for name in ('secret.txt', 'writable.txt'):
                os.link(f"{target['outside']}/{name}", f"{target['output']}/{name}")
            open(target['output'] + '/writable.txt', 'w').write('spoilt')
            return open(target['output'] + '/secret.txt').read()
        """,
        nodejs="""
            for (const name of ['secret.txt', 'writable.txt']) fs.linkSync(`${target.outside}/${name}`, `${target.output}/${name}`);
            fs.writeFileSync(target.output + '/writable.txt', 'spoilt');
            return fs.readFileSync(target.output + '/secret.txt', 'utf8');
        """,
        refused=("ENOENT", "EXDEV", "EPERM", "EACCES"),
        damages=True,
    ),
    Attack(
        "makes a hard link to its own script and writes through it",
        python="""
            os.link(target['script'] + '/' + target['name'], target['output'] + '/hard')
            open(target['output'] + '/hard', 'a').write('#')
            return 'written'
        """,
        nodejs="""
            fs.linkSync(target.script + '/' + target.name, target.output + '/hard');
            fs.appendFileSync(target.output + '/hard', '//');
            return 'written';
        """,
        refused=("EXDEV", "EROFS", "EPERM", "EACCES"),
        damages=True,
    ),
    Attack(
        "lists a folder of the host",
        python="return os.listdir(target['outside'])",
        nodejs="return fs.readdirSync(target.outside);",
        refused=_ABSENT,
    ),
    Attack(
        "writes to a file of the host by its absolute path",
        python="""
            open(target['outside'] + '/writable.txt', 'w').write('spoilt')
            return 'written'
        """,
        nodejs="""
            fs.writeFileSync(target.outside + '/writable.txt', 'spoilt');
            return 'written';
        """,
        refused=_NOT_WRITABLE,
        damages=True,
    ),
    Attack(
        "writes out of its folders with ..",
        python="""
            open(target['output'] + '/../outside/planted.txt', 'w').write('spoilt')
            return 'written'
        """,
        nodejs="""
            fs.writeFileSync(target.output + '/../outside/planted.txt', 'spoilt');
            return 'written';
        """,
        refused=_NOT_WRITABLE,
        damages=True,
    ),
    Attack(
        "writes through a symbolic link that lies beside it",
        python="""
            open(target['script'] + '/link-to-folder/planted.txt', 'w').write('spoilt')
            return 'written'
        """,
        nodejs="""
            fs.writeFileSync(target.script + '/link-to-folder/planted.txt', 'spoilt');
            return 'written';
        """,
        refused=_NOT_WRITABLE,
        damages=True,
    ),
    Attack(
        "overwrites its own script",
        python="""
            open(target['script'] + '/' + target['name'], 'a').write('# spoilt')
            return 'written'
        """,
        nodejs="""
            fs.appendFileSync(target.script + '/' + target.name, '// spoilt');
            return 'written';
        """,
        refused=("EROFS", "EACCES"),
        damages=True,
    ),
    Attack(
        "replaces, removes, renames or opens up what lies beside it",
        python="""
            here, done, problems = target['script'], [], []
            for what in (
                lambda: os.rename(here + '/beside.txt', here + '/renamed.txt'),
                lambda: os.unlink(here + '/link-to-secret.txt'),
                lambda: os.mkdir(here + '/__pycache__'),
                lambda: os.symlink('/etc', here + '/etc'),
                lambda: os.chmod(here + '/' + target['name'], 0o4777),
                lambda: os.utime(here + '/' + target['name'], (1, 1)),
                lambda: os.truncate(here + '/' + target['name'], 0),
                lambda: os.setxattr(here + '/' + target['name'], 'user.spoilt', b'1'),
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
        refused=("EROFS", "EACCES"),
        damages=True,
    ),
    Attack(
        "leaves a symbolic link for the next run",
        python="""
            for folder in (target['output'], target['cache']):
                os.symlink(target['outside'], folder + '/planted')
                os.symlink(target['outside'] + '/writable.txt', folder + '/writable.txt')
            return 'planted'
        """,
        nodejs="""
            for (const folder of [target.output, target.cache]) {
              fs.symlinkSync(target.outside, folder + '/planted');
              fs.symlinkSync(target.outside + '/writable.txt', folder + '/writable.txt');
            }
            return 'planted';
        """,
        keeps_its_loot=True,
        damages=True,
    ),
    Attack(
        "writes in the next run through a link that it left in this one",
        python="""
            link = target['cache'] + '/planted'
            if target['round'] == 0:
                os.symlink(target['outside'], link)
                return 'planted'
            open(link + '/planted.txt', 'w').write('spoilt')
            return 'written'
        """,
        nodejs="""
            const link = target.cache + '/planted';
            if (target.round === 0) { fs.symlinkSync(target.outside, link); return 'planted'; }
            fs.writeFileSync(link + '/planted.txt', 'spoilt');
            return 'written';
        """,
        refused=_ABSENT,
        rounds=2,
        damages=True,
    ),
    Attack(
        "makes its own folder to write to a link before it ends",
        python="""
            for folder in (target['output'], target['cache']):
                inner = folder + '/inner'
                os.mkdir(inner)
                open(inner + '/writable.txt', 'w').write('spoilt')
                os.rename(inner, folder + '/moved')
                os.symlink(target['outside'], inner)
            return 'planted'
        """,
        keeps_its_loot=True,
        damages=True,
    ),
    Attack(
        "leaves pipes, sockets, hard links and set-uid programs",
        python="""
            for folder in (target['output'], target['cache']):
                os.mkfifo(folder + '/pipe')
                try:
                    socket.socket(socket.AF_UNIX).bind(folder + '/socket')
                except OSError:
                    pass
                open(folder + '/one', 'w').close()
                os.link(folder + '/one', folder + '/two')
                open(folder + '/set-uid', 'w').close()
                os.mkdir(folder + '/sticky')
                for path, mode in (('/set-uid', 0o6777), ('/sticky', 0o3777)):
                    try:
                        os.chmod(folder + path, mode)
                    except OSError:
                        pass
            return 'left'
        """,
        keeps_its_loot=True,
        damages=True,
    ),
    Attack(
        "leaves something where every later script would find it",
        python="""
            places = {'/tmp', '/dev/shm', os.environ.get('HOME', '/tmp'), '/var/tmp', '/run', target['more']}
            if target['round'] == 0:
                for place in places:
                    try:
                        open(f"{place}/{target['token']}", 'w').close()
                    except OSError:
                        pass
                return 'planted'
            found = [f"{place}/{target['token']}" for place in places if os.path.exists(f"{place}/{target['token']}")]
            for path in found:
                os.unlink(path)
            return found
        """,
        refused=("nothing",),
        rounds=2,
        target={"more": "/usr/local/lib"},
        control={"more": "/tmp"},
    ),
    Attack(
        "writes where the system and the interpreter are",
        python="""
            done = []
            for place in target['places']:
                for name in ('planted.pth', 'planted'):
                    try:
                        open(f'{place}/{name}', 'w').close()
                        os.unlink(f'{place}/{name}')
                        done.append(place)
                    except OSError as problem:
                        last = problem
            if not done:
                raise last
            return done
        """,
        refused=("EROFS", "EACCES", "ENOENT"),
        target={"places": _OF_THE_SYSTEM.split()},
        control={"places": ["/tmp"]},
    ),
    Attack(
        "probes which folders and programs the host has",
        python="return [path for path in target['places'] + [target['outside']] if os.path.lexists(path)]",
        nodejs="""
            return [...target.places, target.outside].filter((path) => {
              try { fs.lstatSync(path); return true; } catch { return false; }
            });
        """,
        refused=("nothing",),
        target={"places": _OF_THE_HOST.split()},
        degraded=_SEEN,
    ),
    Attack(
        "asks whether a file of the host is there, by other calls than to open it",
        python="""
            path = target['outside'] + '/secret.txt'
            answers = []
            for ask in (os.stat, os.readlink, os.listxattr, os.statvfs, os.chdir, os.path.realpath):
                try:
                    answers.append(str(ask(path)))
                except OSError as problem:
                    answers.append(errno.errorcode[problem.errno])
            there = [answer for answer in answers if answer not in ('ENOENT', path)]
            return there
        """,
        refused=("nothing",),
        degraded=_SEEN,
    ),
    Attack(
        "goes through every root and working folder in /proc",
        python="""
            found = []
            for pid in [*filter(str.isdecimal, os.listdir('/proc')), 'self']:
                for link in ('root', 'cwd'):
                    for path in (f"{target['outside']}/secret.txt", '/../outside/secret.txt'):
                        try:
                            found.append(open(f'/proc/{pid}/{link}{path}').read())
                        except OSError:
                            pass
            return found
        """,
        refused=("nothing",),
    ),
    Attack(
        "opens the file that another process has open",
        python="return open(f\"/proc/{target['victim_pid']}/fd/{target['victim_descriptor']}\").read()",
        nodejs="return fs.readFileSync(`/proc/${target.victim_pid}/fd/${target.victim_descriptor}`, 'utf8');",
        refused=("ENOENT", "EACCES"),
    ),
    Attack(
        "finds paths of the host in its table of mounts",
        python="""
            tables = [open(f'/proc/{pid}/{name}').read() for pid in ('self', 'thread-self')
                      for name in ('mountinfo', 'mounts')]
            shown = [line for table in tables for line in table.splitlines() if target['seen'] in line]
            return shown
        """,
        nodejs="""
            const lines = fs.readFileSync('/proc/self/mountinfo', 'utf8').split('\\n');
            return lines.filter((line) => line.includes(target.seen));
        """,
        refused=("nothing",),
        target={"seen": "/outside"},
        control={"seen": "/proc"},
        degraded="it sees the mounts of the host",
    ),
    Attack(
        "opens a file of the host by its handle",
        python="""
            libc = ctypes.CDLL(None, use_errno=True)
            handle = ctypes.create_string_buffer(128)
            handle[0] = 120
            kind = ctypes.c_int()
            if libc.name_to_handle_at(-100, (target['script'] + '/beside.txt').encode(), handle, ctypes.byref(kind), 0):
                raise OSError(ctypes.get_errno(), 'handle')
            return 'a handle'
        """,
        refused=("EPERM", "ENOSYS"),
        may_lack="EOPNOTSUPP",
    ),
]
