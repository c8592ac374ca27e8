"""Sessions of code: what lives on between calls, what does not, who may use them, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures

from tavern_host import clock
from tavern_host.contracts.accounts import ACCOUNTS, SettledWork, WorkFilter
from tavern_host.contracts.calls import Admission, CallContext, Principal
from tavern_host.contracts.errors import InvalidInput
from tavern_scripts.api.scripts import SandboxLaunch, SandboxMount, ScriptErrorType, ScriptRequest
from tavern_scripts.results.refusal import Refused
from tavern_scripts.workers.session_call import BadReport, CallReportReader
from tavern_scripts.workers.sessions import SessionLimits, Sessions
from tests.scripts.sandboxes import (
    PYTHON,
    Came,
    Launches,
    bubblewrap,
    collected,
    left_by,
    limits,
    processes_with,
    read,
    stdin_of,
)
from tests.scripts.scripthost import scripts_of


class Desk(Launches):
    """Sessions beside a sandbox."""

    def __init__(self, folder: Path, **others: Any) -> None:
        super().__init__(folder)
        self.backend = bubblewrap()
        self.limits = SessionLimits(**{"most": 8, "idle": 60.0, "cpu": 60.0, **others})
        self.sessions = Sessions(self.make, lambda: self.limits)
        self.last = self.launch("")

    async def call(
        self, code: str | SandboxLaunch, stdin: bytes = b"null", *, name: str = "a", owner: str = "me", **others: Any
    ) -> Came:
        """Run code in a session."""
        self.last = what = self.launch(code, **others) if isinstance(code, str) else code
        return await collected(self.sessions.run(self.backend, what, stdin_of(stdin), owner=owner, name=name))

    def left(self) -> dict[str, str]:
        """Return the files that the last call left."""
        return left_by(self.last)


@asynccontextmanager
async def desk_of(folder: Path, **others: Any) -> AsyncIterator[Desk]:
    desk = Desk(folder, **others)
    try:
        yield desk
    finally:
        await desk.sessions.close()


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with desk_of(tmp_path) as made:
        yield made


def interpreters() -> list[int]:
    """Return the interpreters of sessions that come from this process."""
    return processes_with("/tavern/session.py")


# --- what lives on ----------------------------------------------------------------------------------


async def test_variables_functions_and_files_live_on(desk: Desk) -> None:
    await desk.call(
        "import math\nx = 20\n\n\ndef double(y):\n    return 2 * y + z\n\n\nopen('/tmp/kept', 'w').write('k')"
    )
    await desk.call("z = 2")

    assert (await desk.call("double(x), math.pi > 3, open('/tmp/kept').read()")).stdout == b'[42, true, "k"]\n'


async def test_input_arguments_and_environment_are_the_calls(desk: Desk) -> None:
    code = "import json, os, sys\n[json.load(sys.stdin), os.environ.get('ONE'), os.environ.get('TWO'), sys.argv]"
    large = b'"' + b"x" * 300_000 + b'"'

    first = await desk.call(code, b'{"a": 1}', environment={"ONE": "1"})
    second = await desk.call(code, b"[2]", environment={"TWO": "2"})
    third = await desk.call("import subprocess\nsubprocess.run(['wc', '-c'], capture_output=True).stdout", large)
    fourth = await desk.call("len(sys.stdin.read())", large)

    assert first.stdout == b'[{"a": 1}, "1", null, ["/script/main.py"]]\n'
    assert second.stdout == b'[[2], null, "2", ["/script/main.py"]]\n'
    assert b"300002" in third.stdout
    assert fourth.stdout == b"300002\n"


async def test_the_last_expressions_value_is_printed_last(desk: Desk) -> None:
    rows: list[Any] = [
        ("1 + 1", b"2\n"),
        ("'text'", b'"text"\n'),
        ("None", b""),
        ("x = 5", b""),
        ("print('a', end='')\n3", b"a\n3\n"),
        ("{1, 2}", b'"{1, 2}"\n'),
        ("float('nan')", b'"nan"\n'),
        ("", b""),
        ("# nothing", b""),
        ("if True:\n    7", b""),
        ("'ü\\ud800'", b'"\\u00fc\\ud800"\n'),
    ]
    with Failures() as failures:
        for code, shown in rows:
            with failures.row(code):
                came = await desk.call(code)

                assert (came.stdout, came.stderr, came.ended.exit_code) == (shown, b"", 0)


async def test_an_unused_channel_gets_the_value(desk: Desk) -> None:
    value = await desk.call("print('log')\n5", channel=True)
    written = await desk.call("import os\nos.write(3, b'6')", channel=True)
    without = await desk.call("os.write(3, b'6')")

    assert (value.stdout, value.channel) == (b"log\n", b"5")
    assert written.channel == b"6"
    assert without.ended.exit_code == 1
    assert b"Bad file descriptor" in without.stderr


# --- calls that fail --------------------------------------------------------------------------------


async def test_a_failed_call_leaves_the_variables_unchanged(desk: Desk) -> None:
    rows: list[Any] = [
        ("y = 2\n1 / 0", 1, b'File "/script/call-2.py", line 2, in <module>\n    1 / 0\n'),
        ("y = = 2", 1, b"SyntaxError"),
        ("import sys\nsys.exit(3)", 3, b""),
        ("raise SystemExit('why')", 1, b"why\n"),
        ("raise KeyboardInterrupt", 1, b"KeyboardInterrupt"),
        ("class Bad:\n    def __repr__(self):\n        raise ValueError('no')\n\n\nBad()", 1, b"ValueError: no"),
        ("import sys\nsys.stdout.close()\nsys.stderr.close()", 0, b""),
        ("import os\nos.close(0)\nos.close(1)\nos.close(2)", 0, b""),
        ("import sys\nsys.setrecursionlimit(100)\n\n\ndef f():\n    f()\n\n\nf()", 1, b"RecursionError"),
        ("kept = bytearray(1 << 30)", 1, b"MemoryError"),
    ]
    with Failures() as failures:
        for code, status, said in rows:
            with failures.row(code):
                await desk.call("x = 'kept'")

                came = await desk.call(code)
                after = await desk.call("print('and print works')\nx")

                assert came.ended.exit_code == status
                assert said in came.stderr
                assert after.stdout == b'and print works\n"kept"\n'


async def test_the_next_call_tells_of_a_crash(desk: Desk) -> None:
    rows: list[Any] = [
        ("import os\nos._exit(4)", "exit status 4"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "exit status -9"),
        (
            "import os, time\nfor _ in range(4):\n    if os.fork() == 0:\n        kept = bytearray(b'x') * (60 << 20)\n"
            "        time.sleep(60)\ntime.sleep(60)",
            "memory",
        ),
        ("while True:\n    pass", "cpu"),
    ]
    with Failures() as failures:
        for code, why in rows:
            with failures.row(code):
                small = limits(cpu=1, memory=100 << 20)
                await desk.call("x = 1", limits=small)

                crashed = await desk.call(code, limits=small)
                after = await desk.call("x", limits=small)
                later = await desk.call("1", limits=small)

                assert crashed.ended.exit_code != 0
                said = after.stderr.decode()
                assert said.startswith("the session 'a' was restarted, without the variables of earlier calls: ")
                assert why in said.splitlines()[0]
                assert "NameError" in said
                assert (later.stdout, later.stderr) == (b"1\n", b"")


async def test_an_abandoned_call_ends_session_and_processes(desk: Desk) -> None:
    await desk.call("x = 1")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await desk.call("import subprocess\nsubprocess.run(['sleep', '600'])")
    assert not interpreters()

    after = await desk.call("'x' in globals()")

    assert b"a call was ended before it was over" in after.stderr
    assert after.stdout == b"false\n"


async def test_calls_of_one_session_are_one_after_another(desk: Desk) -> None:
    await desk.call("import time\nrunning = 0\nseen = []")
    code = "running += 1\nseen.append(running)\ntime.sleep(0.02)\nrunning -= 1\nlen(seen)"

    came = await asyncio.gather(*(desk.call(code) for _ in range(8)))

    assert sorted(int(each.stdout) for each in came) == list(range(1, 9))
    assert (await desk.call("seen")).stdout == b"[1, 1, 1, 1, 1, 1, 1, 1]\n"


async def test_giving_up_a_turn_ends_nothing(desk: Desk) -> None:
    await desk.call("x = 1\nimport time")
    long, waiting = (asyncio.ensure_future(desk.call(code)) for code in ("time.sleep(1)\nx + 1", "x = 100"))
    await asyncio.sleep(0)  # the first has its turn by then, and the other waits for it
    waiting.cancel()
    await asyncio.wait([waiting])

    assert (await long).stdout == b"2\n"
    assert (await desk.call("x")).stdout == b"1\n"


async def test_calls_waiting_during_a_crash_get_another_session(desk: Desk) -> None:
    await desk.call("import time, os\nx = 1")

    came = await asyncio.gather(desk.call("time.sleep(0.3)\nos._exit(1)"), *(desk.call("1") for _ in range(3)))

    assert [each.stdout for each in came[1:]] == [b"1\n"] * 3
    assert sum(b"was restarted" in each.stderr for each in came) == 1


# --- who, how many, how long ------------------------------------------------------------------------


async def test_an_owners_own_oldest_session_makes_room(tmp_path: Path) -> None:
    async with desk_of(tmp_path, most=4) as desk:
        await desk.call("x = 1", name="first", owner="one")
        await desk.call("x = 2", name="second", owner="one")
        await desk.call("x = 9", name="other", owner="two")
        await desk.call("x", name="first", owner="one")

        await desk.call("x = 3", name="third", owner="one")

        assert desk.sessions.open == 3
        assert (await desk.call("x", name="other", owner="two")).stdout == b"9\n"
        gone = await desk.call("'x' in globals()", name="second", owner="one")
        assert b"another session was begun" in gone.stderr


async def test_without_room_a_session_is_refused(tmp_path: Path) -> None:
    async with desk_of(tmp_path, most=2) as desk:
        await desk.call("1", owner="one")
        await desk.call("1", owner="two")

        with pytest.raises(Refused, match=r"as many sessions as there may be \(2, 1 of one owner\)"):
            await desk.call("1", owner="three")
        desk.limits = SessionLimits(most=0)
        with pytest.raises(InvalidInput, match="keeps no sessions"):
            await desk.call("1", owner="four")


async def test_a_session_that_waits_too_long_ends(tmp_path: Path) -> None:
    async with desk_of(tmp_path, idle=0.3) as desk:
        assert (
            await desk.call("import time\nx = 1\ntime.sleep(0.7)\n'done'")
        ).stdout == b'"done"\n'  # a call may take longer
        async with asyncio.timeout(60):
            while desk.sessions.open:
                await asyncio.sleep(0.02)
        assert not interpreters()

        after = await desk.call("'x' in globals()")

        assert b"there was no call for 0.3 s" in after.stderr


async def test_what_no_session_can_run_is_refused(desk: Desk) -> None:
    small, packages = {"PYTHONPATH": "/x"}, [SandboxMount(target="/deps", source="/usr/share")]
    rows: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({"proxy": "/run/x.sock"}, {}, "no network"),
        *(
            ({"argv": argv}, {}, "Python code only")
            for argv in (["/usr/bin/node", "/script/main.py"], [PYTHON, "-c", "1"], [PYTHON, "/elsewhere/main.py"])
        ),
        *(({}, {"name": name}, "session's name") for name in ("", " ", "x" * 101, "a\nb", "a\0")),
        ({"limits": limits(memory=90 << 20)}, {"name": "used"}, "use another session"),
        ({"environment": small}, {"name": "used"}, "use another session"),
        ({"mounts": [*desk.launch("").mounts, *packages]}, {"name": "used"}, "use another session"),
    ]
    await desk.call("x = 1", name="used")
    with Failures() as failures:
        for change, named, said in rows:
            with failures.row((change, named)):
                with pytest.raises(InvalidInput, match=said):
                    await desk.call(desk.launch("1").model_copy(update=change), **named)
                assert desk.sessions.open == 1

    assert (await desk.call("x", name="used", limits=limits(wall=1))).stdout == b"1\n"


# --- files ------------------------------------------------------------------------------------------


async def test_files_come_back_with_their_call(desk: Desk) -> None:
    await desk.call("import os\nos.makedirs('deep/er')\nopen('a.txt', 'w').write('1')\nopen('deep/er/b', 'w').close()")
    first = desk.left()
    await desk.call("open('a.txt').read()")
    second = desk.left()
    await desk.call("open('a.txt', 'w').write('22')\nopen('large', 'w').write('x' * 3_000_000)")
    third = desk.left()
    await desk.call("open('late', 'w').write('l')\n1 / 0")
    fourth = desk.left()
    await desk.call("1")

    assert (first, second, fourth) == ({"a.txt": "1", "deep/er/b": ""}, {}, {})
    assert third == {"a.txt": "22", "large": "x" * 3_000_000}
    assert desk.left() == {"late": "l"}

    came = await desk.call("for i in range(260):\n    open(f'{i:03}', 'w').write('x')")

    assert len(desk.left()) == 200
    assert came.said == "60 files were not kept: they are too many, or too large"


async def test_files_of_a_call_are_its_own(desk: Desk, tmp_path: Path) -> None:
    source = tmp_path / "given"
    (source / "data").mkdir(parents=True)
    (source / "data" / "x.csv").write_text("1,2")
    see = "import os\nsorted(os.path.join(a, c) for a, b, cs in os.walk('/files') for c in cs)"

    with_it = await desk.call(see, mounts=[read("/files", source)])
    without = await desk.call(see)
    again = await desk.call("open('/files/data/x.csv').read()", mounts=[read("/files", source)])

    assert (with_it.stdout, without.stdout, again.stdout) == (b'["/files/data/x.csv"]\n', b"[]\n", b'"1,2"\n')


# --- a session's code against the host -----------------------------------------------------------------


FORGERIES = {
    "nonsense": "b'nonsense\\n'",
    "a path upwards": "json.dumps({**told, 'files': [['../x', 1]]}).encode() + b'\\nx'",
    "an absolute path": "json.dumps({**told, 'files': [['/tmp/x', 1]]}).encode() + b'\\nx'",
    "a size without end": "json.dumps({**told, 'files': [['x', 10**12]]}).encode() + b'\\nx'",
    "a negative size": "json.dumps({**told, 'files': [['x', -1]]}).encode() + b'\\n'",
    "one name twice": "json.dumps({**told, 'files': [['x', 1], ['x', 1]]}).encode() + b'\\nxx'",
    "a file as folder": "json.dumps({**told, 'files': [['x', 0], ['x/y', 0]]}).encode() + b'\\n'",
    "deep nesting": "b'[' * 100_000 + b'\\n'",
    "a long line": "b'x' * 20_000_000",
}


async def test_a_forged_account_ends_the_session_alone(desk: Desk) -> None:
    code = (
        "import json, os, sys\nframe = sys._getframe()\n"
        "while 'call' not in frame.f_locals:\n    frame = frame.f_back\n"
        "mark = bytes.fromhex(frame.f_locals['call']['mark'])\ntold = {'exit': 0, 'value': None, 'cpu': 0}\n"
        "own = frame.f_locals['self']\n"
        "for n in (own._output, own._errors, own._channel):\n    os.write(n, mark)\n"
        "data = FORGED\n"
        "while data:\n    data = data[os.write(own._channel, data):]\n"
        "import time\ntime.sleep(600)"
    )
    with Failures() as failures:
        for name, forged in FORGERIES.items():
            with failures.row(name):
                with pytest.raises(Refused, match="the session was ended: its report of a call"):
                    async with asyncio.timeout(60):
                        await desk.call(code.replace("FORGED", forged))

                assert not interpreters()
                assert not Path("/tmp/x").exists()
                assert (await desk.call("'new'")).stdout == b'"new"\n'
                assert desk.sessions.open == 1


async def test_output_between_calls_is_read_within_bounds(desk: Desk) -> None:
    await desk.call(
        "import os, threading\nflows = True\ndef flood():\n    while flows:\n        os.write(1, b'x' * 65536)\n\n\n"
        "threading.Thread(target=flood, daemon=True).start()"
    )
    await asyncio.sleep(0.5)

    came = await desk.call("flows = False\n1")

    assert came.stdout.endswith(b"1\n")
    assert len(came.stdout) < 64 << 20  # more is what came between the calls


async def test_a_surviving_child_is_no_second_session(desk: Desk) -> None:
    await desk.call("import os\nx = 1\npid = os.fork()")

    for _ in range(3):
        await desk.call("x += 1")

    assert (await desk.call("x")).stdout == b"4\n"
    assert (await desk.call("os.waitpid(pid, 0)[1]")).stdout == b"0\n"


def test_an_account_is_read_or_makes_no_sense(tmp_path: Path) -> None:
    whole = b'{"exit": 0, "value": "1", "cpu": 0.5, "files": [["a", 3], ["b/c", 0], ["b/d", 2]]}\nabcdeREST'
    for step in (1, 2, 7, 1000):
        folder = tmp_path / str(step)
        folder.mkdir()
        account = CallReportReader(folder, 100, 1000)

        rest = b"".join(account.feed(whole[at : at + step]) for at in range(0, len(whole), step))

        assert account.is_complete
        assert rest == b"REST"
        assert [(folder / name).read_bytes() for name in ("a", "b/c", "b/d")] == [b"abc", b"", b"de"]
    for told in (b"[]", b"{}", b'{"exit": "x"}', b"\xff", b'{"exit": 0, "value": 1, "cpu": 0, "files": []}'):
        with pytest.raises(BadReport):
            CallReportReader(None, 10, 1000).feed(told + b"\n")


async def test_closing_leaves_nothing(tmp_path: Path) -> None:
    descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir())
    async with desk_of(tmp_path) as desk:
        for name in ("a", "b", "c", "d"):
            await desk.call("import subprocess, time\nchild = subprocess.Popen(['sleep', '600'])", name=name)
        assert len(interpreters()) >= 4
        long = asyncio.ensure_future(desk.call("time.sleep(600)", name="d"))
        await asyncio.sleep(0.3)

    came = await asyncio.wait_for(long, 60)
    assert came.ended.exit_code != 0
    assert not interpreters()
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) <= descriptors  # garbage of earlier tests may have had some
    assert not [folder for folder in tmp_path.iterdir() if (folder / "files").exists()]
    with pytest.raises(Refused, match="being stopped"):
        await desk.call("1")


# --- through the service ----------------------------------------------------------------------------


async def test_a_session_ends_with_the_right_to_it(tmp_path: Path) -> None:
    async with scripts_of(tmp_path) as scripts:
        accounts = scripts.host.services.get(ACCOUNTS)

        async def ask(who: str) -> CallContext:
            await accounts.add_user(who, "good evening")
            token = (await accounts.make_token(who, "test")).session.id
            asked = Admission(user=who, session=token, access="create", where="/api/tools/execute", at=clock.now())
            return scripts.host.call(who, asked)

        async def run(code: str, call: CallContext) -> Any:
            request = ScriptRequest(code=code, language="python", session="s")
            return (await scripts.service.run(request, call=call)).output_data

        ann, bob = await ask("ann"), await ask("bob")
        for call in (ann, bob):
            await run("x = 1", call)
        both = len(interpreters())
        assert await accounts.remove_user("ann") == [SettledWork(kind="sessions of code", stopped=1)]
        assert (2 * len(interpreters()), await run("x", bob)) == (both, 1)
        stopped = await accounts.stop_work(WorkFilter(kind="user", name="bob"))
        assert (stopped, interpreters()) == ([SettledWork(kind="sessions of code", stopped=1)], [])


async def test_the_service_keeps_sessions_by_principal(tmp_path: Path) -> None:
    async with scripts_of(tmp_path) as scripts:

        async def run(code: str, who: str, **request: Any) -> Any:
            call = CallContext(principal=Principal(kind="user", id=who), project=scripts.host.project.id)
            wanted = ScriptRequest(**{"code": code, "language": "python", "session": "s", **request})
            return await scripts.service.run(wanted, call=call)

        first = await run("x = {'a': 1}\nprint('to the log')\nx", "ann")
        second = await run("x['b'] = 2\nopen('plot.txt', 'w').write('p')\nx", "ann")
        other = await run("x", "bob")
        late = await run("import time\ntime.sleep(60)", "ann", timeout_ms=300)
        after = await run("'x' in globals()", "ann")

        assert (first.output_data, first.logs) == ({"a": 1}, ["to the log"])
        assert second.output_data == {"a": 1, "b": 2}
        assert [file.path.rpartition("/")[2] for file in second.files] == ["plot.txt"]
        assert other.error.type is ScriptErrorType.SCRIPT
        assert "NameError" in other.error.message
        assert late.error.type is ScriptErrorType.TIMEOUT
        assert after.output_data is False
        assert after.logs == [
            "the session 's' was restarted, without the variables of earlier calls: a call was ended before it was over"
        ]
        scripts.put("x.py", "print(1)")
        with pytest.raises(InvalidInput, match="not of files"):
            await scripts.run(script_path="x.py", session="s")
