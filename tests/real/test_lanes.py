"""The two lanes: what a fast test may not do, and what becomes of a test that fails by chance."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from helpers.lanes import MOST_QUARANTINED, read_quarantine

PLUGINS = 'pytest_plugins = ["helpers.lanes", "helpers.reruns", "helpers.summary"]'
EVERY_THIRD_TIME = """
    from pathlib import Path

    def test_by_chance():
        count = Path(__file__).with_name("count")
        times = int(count.read_text()) if count.exists() else 0
        count.write_text(str(times + 1))
        assert times % 3, "the third time"
    """


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return the function that runs pytest on a file of one lane, with the plugins of these tests."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    pytester.makeconftest(PLUGINS)
    return Run(pytester)


class Run:
    def __init__(self, pytester: pytest.Pytester) -> None:
        self._pytester = pytester
        self.ledger = pytester.path / "flaky.jsonl"

    def __call__(self, lane: str, source: str, *options: str) -> pytest.RunResult:
        folder = self._pytester.path / ("real" if lane == "real" else "inner")
        folder.mkdir(exist_ok=True)
        (folder / "test_one.py").write_text(textwrap.dedent(source))
        few = ("-p", "no:randomly", "-p", "no:schemathesis", "-p", "no:tavern_host.testing")
        return self._pytester.runpytest_subprocess(*few, "--ledger", str(self.ledger), *options, str(folder))


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_a_real_test_that_fails_by_chance_is_listed_and_refuses_nothing(run: Run, workers: str) -> None:
    ran = run("real", EVERY_THIRD_TIME, workers)
    assert ran.ret == pytest.ExitCode.OK
    ran.stdout.fnmatch_lines(
        ["*failed by chance*", "real/test_one.py::test_by_chance: passed at try 1 after:*the third time*"]
    )
    (line,) = run.ledger.read_text().splitlines()
    assert json.loads(line)["test"] == "real/test_one.py::test_by_chance"
    assert "the third time" in json.loads(line)["first"]


def test_a_fast_test_that_fails_by_chance_refuses_the_run(run: Run) -> None:
    ran = run("fast", EVERY_THIRD_TIME)
    assert ran.ret == pytest.ExitCode.TESTS_FAILED
    assert not run.ledger.exists()


@pytest.mark.parametrize("lane", ["fast", "real"])
def test_a_test_that_always_fails_refuses_the_run(run: Run, lane: str) -> None:
    ran = run(lane, "def test_always():\n    assert 0")
    assert ran.ret == pytest.ExitCode.TESTS_FAILED
    assert not run.ledger.exists()
    ran.assert_outcomes(failed=1)


def test_a_fast_test_starts_no_process_and_leaves_this_machine_alone(run: Run) -> None:
    ran = run(
        "fast",
        """
        import contextlib, os, socket, subprocess, threading

        def test_a_process():
            subprocess.run(["true"])

        def test_a_process_in_silence():
            with contextlib.suppress(BaseException):
                os.posix_spawn("/bin/true", ["true"], {})

        def test_another_machine():
            thread = threading.Thread(target=lambda: socket.socket().connect_ex(("192.0.2.1", 9)), daemon=True)
            thread.start()
            thread.join(0.1)

        def test_a_socket_of_its_own():
            with socket.create_server(("127.0.0.1", 0)) as server:
                socket.create_connection(server.getsockname()).close()
        """,
    )
    ran.assert_outcomes(failed=1, passed=3, errors=3)
    ran.stdout.fnmatch_lines(
        ["*subprocess.Popen: 'true'", "*os.posix_spawn: '/bin/true'", "*connects to ('192.0.2.1', 9)"]
    )


def test_what_is_not_tested_stands_in_one_table(run: Run) -> None:
    ran = run(
        "real", "import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test_it(n):\n    pytest.skip('no moon')"
    )
    ran.stdout.fnmatch_lines(["*not tested*", "*2  no moon  (real/test_one.py)"])


def test_a_quarantine_is_small_and_has_reasons(tmp_path: Path) -> None:
    file = tmp_path / "quarantine.txt"
    assert read_quarantine(file) == {}
    test = "tests/cli/real/test_x.py::test_y"
    file.write_text(f"# a comment\n{test}: loses a race with the disk\n")
    assert read_quarantine(file) == {test: "loses a race with the disk"}
    for wrong in (test, f"{test}: ", "tests/cli/test_x.py::test_y: it is fast"):
        file.write_text(wrong)
        with pytest.raises(pytest.UsageError, match="needs a reason"):
            read_quarantine(file)
    file.write_text("".join(f"{test}{n}: why\n" for n in range(MOST_QUARANTINED + 1)))
    with pytest.raises(pytest.UsageError, match="at most 10"):
        read_quarantine(file)
