"""What a script gives: its result, its log, its progress and its errors."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures

from tavern_host.contracts.errors import InvalidInput
from tavern_operations.api.metrics import METRICS
from tavern_scripts.api.scripts import ScriptErrorType, ScriptRequest
from tests.scripts.scripthost import Scripts, scripts_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js: apt install nodejs")

# --- input and result -----------------------------------------------------------------------------

TEXT = "任务 😀 \u2028 \"'\\ \t é"
ECHO = "import json, sys\nprint(json.dumps(json.load(sys.stdin), ensure_ascii=False))"
DOUBLES = "import json, sys\nprint(json.dumps([2 * n for n in json.load(sys.stdin)['n']]))\n"


async def test_what_code_prints_is_its_result(scripts: Scripts) -> None:
    rows: list[Any] = [
        (DOUBLES, {"n": [1, 2.5, -3]}, [2, 5.0, -6]),
        (ECHO, {TEXT: TEXT}, {TEXT: TEXT}),
        (ECHO, None, None),
        ("print('Hello,')\nprint('world')", None, "Hello,\nworld"),
        ("print({'a': 1})", None, "{'a': 1}"),
        ("x = 1", None, None),
    ]
    with Failures() as failures:
        for code, data, result in rows:
            with failures.row(code):
                assert await scripts.output(code=code, language="python", input_data=data) == result
    scripts.put("x.py", r"print('{\"\\ud800\": \"a\\udc00b\"}')")  # half characters are mended
    assert await scripts.output(script_path="x.py") == {"\ufffd": "a\ufffdb"}


async def test_the_last_document_is_the_result(scripts: Scripts) -> None:
    code = """
import json
print("first")
print(json.dumps({"result": "an imitation"}))
print("second")
print(json.dumps({"result": [1, {"a": 2}]}, indent=2))
"""
    result = await scripts.python(code)
    assert result.output_data == {"result": [1, {"a": 2}]}
    assert result.logs == ["first", '{"result": "an imitation"}', "second"]


async def test_a_script_that_prints_no_usable_json_has_no_result(scripts: Scripts) -> None:
    rows: list[Any] = [
        ("print('{\"a\": 1}')\nprint('done')", "JSON"),
        ("print('x {}')", "JSON"),
        ("print('[1, 2')", "JSON"),
        ("pass", "printed no result; it must print JSON as the last thing on stdout (null for none)"),
        ("print('NaN')", "NaN is no JSON"),
        ("print('[-Infinity]')", "Infinity is no JSON"),
        ("print('{\"n\": 123456789012345678901234567890}')", "has more than 64 bits"),
        ("print('[1e999]')", "a number is too large"),
        ("print('[' * 200 + ']' * 200)", "nested more than 100 deep"),
        ("print('[' * 100000 + ']' * 100000)", "nested more than 100 deep"),
        ("import sys\nsys.stdout.buffer.write(b'\"\\xff\\xfe\"')", "is no UTF-8 text"),
    ]
    with Failures() as failures:
        for number, (printed, said) in enumerate(rows):
            with failures.row(printed):
                scripts.put(f"{number}.py", printed)
                assert said in await scripts.error(ScriptErrorType.OUTPUT, script_path=f"{number}.py")


async def test_input_result_and_log_are_limited(tmp_path: Path) -> None:
    async with scripts_of(tmp_path, inputKilobytes=1, outputKilobytes=1, logKilobytes=1) as scripts:
        told = await scripts.error(ScriptErrorType.RESOURCE, code="print(1)", language="python", input_data="x" * 1023)
        assert told == "the input has 1,025 bytes; a script is given at most 1,024"
        assert await scripts.output(code="print(1)", language="python", input_data="x" * 1022) == 1
        told = await scripts.error(ScriptErrorType.OUTPUT, code="print('\"' + 'x' * 1024 + '\"')", language="python")
        assert told == "the script gave more than the 1,024 bytes that a result may have"
        result = await scripts.python("import sys\nfor n in range(10_000): print('line', n, file=sys.stderr)\nprint(1)")
    assert (result.logs[0], result.logs[-1]) == ("line 0", "line 9999")
    marks = [line for line in result.logs if line.startswith("…")]
    assert len(marks) == 1 and marks[0].endswith("bytes are left out here …")
    assert sum(len(line) + 1 for line in result.logs) < 1_200


# --- the channel of the result --------------------------------------------------------------------


async def test_with_a_channel_stray_prints_cannot_break_the_result(scripts: Scripts) -> None:
    code = """
import os
print('{"result": "an imitation"}')
with open(int(os.environ["TAVERN_RESULT_FD"]), "w") as channel:
    channel.write('{"result": 1}')
print("goodbye")
"""
    result = await scripts.python(code, protocol="channel")
    assert (result.output_data, result.logs) == ({"result": 1}, ['{"result": "an imitation"}', "goodbye"])
    message = await scripts.error(ScriptErrorType.OUTPUT, code="print(1)", language="python", protocol="channel")
    assert message == "what was written to TAVERN_RESULT_FD is no JSON that can be used: it is empty"


# --- functions ------------------------------------------------------------------------------------


async def test_a_function_is_called_with_the_input(scripts: Scripts) -> None:
    code = 'from helper import half\n\ndef run(given):\n    print("stray {}")\n    return {"half": half(given["n"])}\n'
    scripts.put("tool.py", code + '\nif __name__ == "__main__":\n    raise SystemExit("not called")\n')
    scripts.put("helper.py", "def half(n):\n    return n / 2\n")
    result = await scripts.run(script_path="tool.py", entry_point="run", input_data={"n": 3})
    assert (result.output_data, result.logs) == ({"half": 1.5}, ["stray {}"])
    scripts.put("later.py", "import asyncio\n\nasync def run(given):\n    await asyncio.sleep(0)\n    return given\n")
    assert await scripts.output(script_path="later.py", entry_point="run", input_data=["a"]) == ["a"]


@needs_node
async def test_a_function_of_javascript_is_called(scripts: Scripts) -> None:
    rows: list[Any] = [
        ("a.mjs", "export const run = async (given) => { console.log('stray'); return [given]; };"),
        ("a.cjs", "exports.run = (given) => { console.log('stray'); setInterval(() => {}, 1000); return [given]; };"),
    ]
    with Failures() as failures:
        for name, code in rows:
            with failures.row(name):
                scripts.put(name, code)
                result = await scripts.run(script_path=name, entry_point="run", input_data={"q": 1})
                assert (result.output_data, result.logs) == ([{"q": 1}], ["stray"])


async def test_a_function_that_cannot_be_called_says_why(scripts: Scripts) -> None:
    scripts.put("tool.py", "walk = 1\n\n\ndef run(given):\n    return {1, 2}\n")
    message = await scripts.error(ScriptErrorType.SCRIPT, script_path="tool.py", entry_point="walk")
    assert message == "the script ended with exit code 1: tool.py has no function walk, which is to be called"
    message = await scripts.error(ScriptErrorType.SCRIPT, script_path="tool.py", entry_point="run")
    assert "what run returned is no JSON: Object of type set is not JSON serializable" in message


# --- errors ---------------------------------------------------------------------------------------


async def test_an_exit_status_decides_whatever_was_printed(scripts: Scripts) -> None:
    result = await scripts.python("import sys\nprint('{}')\nsys.exit('it is Sunday')")
    raised = await scripts.python("def f(x):\n    return x['no']\n\nf({})")
    assert result.error.message == "the script ended with exit code 1: it is Sunday"
    assert (result.success, result.output_data) == (False, None)
    assert result.logs == ["it is Sunday", "{}"]
    assert raised.error.message == "the script ended with exit code 1: KeyError: 'no'"
    assert 'File "/script/main.py", line 2, in f' in str(raised.error.details)


async def test_a_script_that_takes_too_long_is_ended(scripts: Scripts) -> None:
    code = "import sys, time\nprint('begun', file=sys.stderr)\ntime.sleep(600)"
    for seconds in (1, 5, 25):  # as many as this machine needs to begin with it
        result = await scripts.python(code, timeout_ms=1000 * seconds)
        assert result.error.type is ScriptErrorType.TIMEOUT
        said = f"the script did not end within {seconds} s, and was ended with all that it had begun"
        assert result.error.message == said
        if result.error.details:
            break
    assert result.error.details == "begun"


async def test_a_script_that_is_ended_is_told_why(tmp_path: Path) -> None:
    flood = "import os\nwhile True: os.write(2, (b'x' * 4095 + b'\\n') * 16)"
    rows = [
        ("x = 'x' * 2**30", ScriptErrorType.RESOURCE, "it used more memory than 64 MB"),
        ("while True: pass", ScriptErrorType.RESOURCE, "the script was ended: it computed for more than 1 s"),
        ("import os\nos.kill(os.getpid(), 9)", ScriptErrorType.SCRIPT, "the script ended with signal SIGKILL"),
        (flood, ScriptErrorType.RESOURCE, "the script was ended: it wrote more than 64 MB that are no result"),
    ]
    async with scripts_of(tmp_path, memoryMegabytes=64, cpuSeconds=1) as scripts:
        said = await asyncio.gather(*(scripts.error(kind, code=code, language="python") for code, kind, _ in rows))

    assert [expected for (_, _, expected), message in zip(rows, said, strict=True) if expected not in message] == []


async def test_a_request_that_means_nothing_is_no_script(scripts: Scripts) -> None:
    rows: list[Any] = [
        ({}, "a script is named by one of code, scriptPath and command, found none"),
        ({"code": "1", "script_path": "a.py"}, "found code and script_path"),
        ({"code": "1"}, "code needs a language: python, nodejs, bun"),
        ({"code": " \n", "language": "python"}, "there is no code to run"),
        ({"code": "x" * 2**21, "language": "python"}, "at most 1,024 KiB"),
        ({"code": "1", "language": "python", "entry_point": "os.system"}, "must be the name of a function"),
        ({"code": "1", "language": "python", "config": {"aB": 1, "a_b": 2}}, "give it another key"),
        ({"code": "1", "language": "python", "config": {"a": "x\0y"}}, "no environment can hold"),
    ]
    with Failures() as failures:
        for request_, said in rows:
            with failures.row(request_):
                with pytest.raises(InvalidInput) as raised:
                    await scripts.run(**request_)
                assert said in raised.value.message


# --- log and progress -----------------------------------------------------------------------------


async def test_a_log_has_lines_without_escape_sequences_and_progress(scripts: Scripts) -> None:
    rows: list[Any] = [
        ("print('a warning', file=sys.stderr)", ["a warning"]),
        ("sys.stderr.write('x' * 20_000)", ["x" * 8000, "x" * 8000, "x" * 4000]),
        (r"print('\x1b[31mred\x1b[0m \x1b]0;title\x07 \x00\x9b2J')", ["red 0;title\ufffd \ufffd\ufffd2J"]),
        ("print('::progress 1 done', file=sys.stderr)\nprint('::progress 1')", ["::progress 1"]),
    ]
    with Failures() as failures:
        for code, logs in rows:
            with failures.row(code):
                result = await scripts.python(f"import sys\n{code}\nprint(1)")
                assert (result.success, result.output_data, result.logs) == (True, 1, logs)


async def test_progress_and_log_come_while_a_script_runs(scripts: Scripts) -> None:
    code = """
import sys, time
def say(line): print(line, file=sys.stderr, flush=True)
say("::progress 0.25 reading")
say("a line")
while sys.stdin.read(1): pass
say("::progress 50%")
say("::progressive")
say("::progress counting up to 3")
say("::progress 7 beyond")
time.sleep(0.2)
print(1)
"""
    events = []
    async for event in scripts.service.stream(ScriptRequest(code=code, language="python")):
        events.append((event.kind, event.text, event.progress))
    assert ("progress", "reading", 0.25) in events
    assert events.index(("progress", "reading", 0.25)) < events.index(("log", "a line", None))
    assert ("log", "::progressive", None) in events
    assert ("progress", "beyond", 1.0) in events
    assert events[-1][0] == "result"


async def test_settings_are_variables_and_secrets_are_hidden(scripts: Scripts) -> None:
    code = """
import json, os, sys
print(json.dumps({k: v for k, v in os.environ.items() if "CONFIG" in k}))
sys.exit("not even " + os.environ["TAVERN_CONFIG_COOKIE"] if "TAVERN_CONFIG_FAIL" in os.environ else 0)
"""
    config: dict[str, Any] = {"maxItems": 3, "on": True, "deep-list": [{"ä": None}], "cookie": "/SESSDATA=abc"}
    shown = await scripts.python(code, config=config, secrets=["cookie"])
    failed = await scripts.python(code, config={**config, "fail": "1"}, secrets=["cookie"])
    assert shown.output_data == {
        "TAVERN_CONFIG_MAX_ITEMS": "3",
        "TAVERN_CONFIG_ON": "true",
        "TAVERN_CONFIG_DEEP_LIST": json.dumps([{"ä": None}], ensure_ascii=False),
        "TAVERN_CONFIG_COOKIE": "/SESSDATA=abc",
    }
    assert failed.error is not None and "SESSDATA" not in failed.model_dump_json()
    assert failed.logs[0] == "not even ********" and '"TAVERN_CONFIG_COOKIE": "********"' in failed.logs[1]


# --- messages beside the result -------------------------------------------------------------------


async def test_scripts_are_counted_for_the_metrics(scripts: Scripts) -> None:
    result = await scripts.python("print(1)")
    figures = await scripts.host.services.get(METRICS).figures()
    found = {(one.name, one.labels.get("sandbox"), one.labels.get("status")): one.value for one in figures}
    assert found["tavern_scripts_total", result.enforced.backend, "done"] > 0
    assert found["tavern_scripts_seconds_total", result.enforced.backend, "done"] > 0


async def test_a_result_says_what_was_enforced_and_used(scripts: Scripts) -> None:
    result = await scripts.python("print('x' * 10)", input_data=[1], timeout_ms=5000)
    assert result.enforced.backend in ("bubblewrap", "bubblewrap-root")
    assert (result.enforced.limits.wall, result.enforced.limits.memory) == (5, 512 * 2**20)
    assert result.enforced.grants.model_dump() == {"read": ["/script/**"], "write": ["/output/**"], "hosts": []}
    assert (result.usage.input, result.usage.output) == (3, 11)
    assert result.usage.wall_ms > 0
