"""The commands `tavern scripts doctor` and `tavern scripts run`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.command_line import tavern
from helpers.repetition import Failures

from tavern_host.projects import make_project

NO_TIMES = ("-1", "0.0001", "nan")


@pytest.fixture
def project(tmp_path: Path) -> str:
    make_project(tmp_path / "project")
    return str(tmp_path / "project")


def test_the_doctor_says_what_is_in_force(project: str) -> None:
    done = tavern("--project", project, "scripts", "doctor", "--json")
    reports = json.loads(done.out)["reports"]  # two have one name where the machine has a bubblewrap too
    assert done.code == (0 if any(report.get("chosen") for report in reports) else 1)
    assert {"landlock", "unsandboxed"} <= {report["name"] for report in reports}


def test_an_author_runs_a_script_that_lies_anywhere(project: str, tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        "import json, sys\nprint('::progress 0.5 half', file=sys.stderr)\nprint('noted', file=sys.stderr)\n"
        "print(json.dumps({'n': json.load(sys.stdin)['n'] + 1}))"
    )
    words = ("--project", project, "scripts", "run", str(script), "--json-input", '{"n": 1}', "--host", "acme.org")
    done = tavern(*words)
    assert (done.code, json.loads(done.out)) == (0, {"n": 2})
    for said in ("50% half", "noted", "not granted: host 'acme.org'"):
        assert said in done.err
    done = tavern(*words, "--json")
    assert (json.loads(done.out)["outputData"], done.err) == ({"n": 2}, "")


def test_what_fails_has_an_exit_code_and_a_reason(project: str, tmp_path: Path) -> None:
    no_times = [(["fail.py", "--timeout", s], 2, "--timeout must be a number of seconds above 0") for s in NO_TIMES]
    rows: list[tuple[list[str], int, str]] = [
        (["fail.py"], 1, "ScriptError: the script ended with exit code 1: oh no"),
        (["endless.py", "--timeout", "0.3"], 1, "TimeoutError: the script did not end within 0.3 s"),
        (["nowhere.py"], 2, "there is no file"),
        (["fail.py", "--json-input", "{"], 2, "--json-input is not JSON: line 1, column 2"),
        (["fail.py", "--json-input", "@/nowhere"], 2, "/nowhere cannot be read"),
        (["fail.py", "--language", "cobol"], 2, "no script can be run so: $.language"),
        (["fail.txt"], 2, "the language of 'fail.txt' is not clear"),
        *no_times,
    ]
    for name, text in (("fail.py", "raise SystemExit('oh no')"), ("endless.py", "while True: pass"), ("fail.txt", "")):
        (tmp_path / name).write_text(text)
    with Failures() as failures:
        for (file, *rest), code, said in rows:
            with failures.row((file, *rest)):
                done = tavern("--project", project, "scripts", "run", str(tmp_path / file), *rest)
                assert done.code == code and said in done.err


def test_without_an_input_a_script_prints_what_it_prints(project: str, tmp_path: Path) -> None:
    with Failures() as failures:
        for text, out in (
            ("print('hi')\nprint('there', 5)\n", "hi\nthere 5\n"),
            ("print('{\"n\":  1}')\n", '{"n":  1}\n'),
            ("print('hi')\nprint([1, 2])\n", "hi\n[1, 2]\n"),
            ("pass", ""),
        ):
            with failures.row(text):
                (tmp_path / "hi.py").write_text(text)
                done = tavern("--project", project, "scripts", "run", str(tmp_path / "hi.py"))
                assert (done.code, done.out) == (0, out)
    (tmp_path / "hi.py").write_text("print('hi')\n")
    done = tavern("--project", project, "scripts", "run", str(tmp_path / "hi.py"), "--json-input", "{}")
    assert (done.code, done.out) == (1, "")
    assert "the last thing on stdout must be JSON" in done.error
