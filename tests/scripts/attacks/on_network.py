"""Attacks on the network and the sockets of the host, by a script that was given no network."""

from __future__ import annotations

from tests.scripts.attacks.attack import Attack

_NOWHERE = (
    "ECONNREFUSED",
    "ENETUNREACH",
    "EHOSTUNREACH",
    "EADDRNOTAVAIL",
    "ENETDOWN",
    "EACCES",
    "EPERM",
    "EAFNOSUPPORT",
)

_STREAM = """
    with socket.socket({family}, socket.SOCK_STREAM) as connection:
        connection.settimeout(3)
        connection.connect({address})
        return connection.recv(100).decode()
"""
_NODE_STREAM = """
    return await new Promise((go, fail) => {
      const connection = net.connect(ADDRESS);
      connection.on('data', (data) => go(data.toString()));
      connection.on('error', fail);
      setTimeout(() => fail(new Error('no answer')), 3000);
    });
"""


def _stream(family: str, address: str) -> str:
    return _STREAM.format(family=family, address=address)


def _node(address: str) -> str:
    return _NODE_STREAM.replace("ADDRESS", address)


ATTACKS = [
    Attack(
        "connects to a server on the host's own loop",
        python=_stream("socket.AF_INET", "('127.0.0.1', target['tcp'])"),
        nodejs=_node("{ host: '127.0.0.1', port: target.tcp }"),
        refused=_NOWHERE,
    ),
    Attack(
        "connects to a server by the host's address",
        python=_stream("socket.AF_INET", "(target['host_address'], target['tcp'])"),
        nodejs=_node("{ host: target.host_address, port: target.tcp }"),
        refused=_NOWHERE,
    ),
    Attack(
        "connects by IPv6",
        python=_stream("socket.AF_INET6", "('::1', target['tcp6'])"),
        nodejs=_node("{ host: '::1', port: target.tcp6 }"),
        refused=_NOWHERE,
        may_lack="KeyError",
    ),
    Attack(
        "connects to the world, its name servers and the services of clouds",
        python="""
            problems = []
            for address in target['addresses'] or [['127.0.0.1', target['tcp']]]:
                try:
                    with socket.create_connection(tuple(address), timeout=2) as connection:
                        return connection.getpeername()
                except OSError as problem:
                    problems.append(problem)
            raise problems[0]
        """,
        refused=_NOWHERE,
        target={
            "addresses": [
                ["192.0.2.1", 80],
                ["169.254.169.254", 80],
                ["8.8.8.8", 53],
                ["10.0.0.1", 22],
                ["172.17.0.1", 22],
            ]
        },
        control={"addresses": []},
    ),
    Attack(
        "sends datagrams",
        python="""
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.settimeout(1)
                sender.connect(('127.0.0.1', target['udp']))
                sender.send(b'x')
                return sender.recv(100).decode()
        """,
        nodejs="""
            return await new Promise((go, fail) => {
              const sender = dgram.createSocket('udp4');
              sender.on('message', (data) => go(data.toString()));
              sender.on('error', fail);
              sender.connect(target.udp, '127.0.0.1', () => sender.send('x'));
              setTimeout(() => fail(Object.assign(new Error('no answer'), { code: 'ECONNREFUSED' })), 500);
            });
        """,
        refused=_NOWHERE,
    ),
    Attack(
        "sends datagrams to everybody",
        python="""
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
                sender.sendto(b'x', (target['everybody'], 9))
                return 'sent'
        """,
        nodejs="""
            return await new Promise((go, fail) => {
              const sender = dgram.createSocket('udp4');
              sender.on('error', fail);
              sender.bind(0, () => {
                sender.setBroadcast(true);
                sender.send('x', 9, target.everybody, (problem) => problem ? fail(problem) : go('sent'));
              });
            });
        """,
        refused=_NOWHERE,
        target={"everybody": "255.255.255.255"},
        control={"everybody": "127.0.0.1"},
    ),
    Attack(
        "connects to a Unix socket of the host",
        python=_stream("socket.AF_UNIX", "target['unix']"),
        nodejs=_node("{ path: target.unix }"),
        refused=("ENOENT", "EACCES", "EAFNOSUPPORT"),
    ),
    Attack(
        "connects to an abstract Unix socket of the host",
        python=_stream("socket.AF_UNIX", "target['abstract']"),
        refused=("ECONNREFUSED", "refused", "EPERM", "EAFNOSUPPORT", "not supported"),
    ),
    Attack(
        "sends a datagram to a Unix socket of the host",
        python="""
            pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            pair[0].sendto(b'x', target['datagrams'])
            return 'sent'
        """,
        refused=("ENOENT", "EACCES", "EAFNOSUPPORT"),
    ),
    Attack(
        "opens raw sockets and taps the wire",
        python="""
            problems = []
            for family, kind, protocol in ((2, 3, 1), (2, 3, 255), (10, 3, 58), (17, 3, 0x300), (17, 2, 0x300)):
                try:
                    socket.socket(family, kind, protocol).close()
                    return 'opened'
                except OSError as problem:
                    problems.append(problem)
            raise problems[-1]
        """,
        refused=("EAFNOSUPPORT", "EPERM", "not supported", "not permitted"),
        outside="namespaced",
    ),
    Attack(
        "lists the networks of the host",
        python="return [name for _, name in socket.if_nameindex() if name != target['known']]",
        nodejs="return Object.keys(os.networkInterfaces()).filter((name) => name !== target.known);",
        refused=("nothing", "EPERM", "EACCES", "EAFNOSUPPORT", "ERR_SYSTEM_ERROR", "ENODEV"),
        target={"known": "lo"},
        control={"known": ""},
    ),
    Attack(
        "opens sockets of every odd family",
        python="""
            found = []
            for family in range(64):
                for kind in (1, 2, 3, 5):
                    for make in (socket.socket, socket.socketpair):
                        try:
                            made = make(family, kind)
                            found.append((family, kind))
                        except (OSError, ValueError):
                            pass
            return [each for each in found if each[0] not in (1, 2, 10)]
        """,
        refused=("nothing",),
    ),
    Attack(
        "listens where the host could be reached from outside",
        python="""
            if target['host_address'].startswith('127.'):
                raise RuntimeError('this machine has only its own loop')
            with socket.socket() as server:
                server.bind((target['host_address'], 0))
                return 'listens'
        """,
        nodejs="""
            if (target.host_address.startsWith('127.')) throw new Error('this machine has only its own loop');
            return await new Promise((go, fail) => {
              const server = net.createServer();
              server.on('error', fail);
              server.listen(0, target.host_address, () => server.close(() => go('listens')));
            });
        """,
        refused=("EADDRNOTAVAIL", "EAFNOSUPPORT"),
        may_lack="only its own loop",
    ),
    Attack(
        "configures the network that it has",
        python="""
            import fcntl, struct
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                fcntl.ioctl(sender, 0x8914, struct.pack('16sh', b'lo', 0x49))
            return 'configured'
        """,
        refused=("EPERM", "EAFNOSUPPORT"),
        outside="namespaced",
    ),
]
