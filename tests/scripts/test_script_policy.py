"""Which scripts run, and what they get of what they ask for."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures

from tavern_host import Host
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_host.contracts.scripts import SCRIPT_EXECUTION, ScriptErrorType, ScriptRequest
from tavern_host.projects import make_project
from tests.scripts.scripthost import PREFIX, Scripts, scripts_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

ECHO = "import json, sys\nprint(json.dumps({'argv': sys.argv, 'in': json.load(sys.stdin)}))\n"

# --- where scripts lie ----------------------------------------------------------------------------


async def test_scripts_lie_in_the_folders_of_the_operator(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.py").write_text("print('\"other\"')")
    async with scripts_of(tmp_path, folders=["scripts", str(other)]) as scripts:
        scripts.put("deep/a.py", "print('\"own\"')")
        assert await scripts.output(script_path="deep/a.py") == "own"
        assert await scripts.output(script_path="b.py") == "other"


async def test_no_path_and_no_link_leads_out_of_them(scripts: Scripts) -> None:
    rows = ["../secret.py", "a/../../secret.py", "/etc/passwd", "~/x.py"]
    rows += ["link.py", "folder/secret.py", "a\\b.py", "a\nb.py"]
    place = str(scripts.host.project.root.parent)
    secret = scripts.put("secret.py", "print('out')", folder=".")
    scripts.put("a/x.py", "print(1)")
    (scripts.host.project.root / "scripts" / "link.py").symlink_to(secret)
    (scripts.host.project.root / "scripts" / "folder").symlink_to(secret.parent)
    with Failures() as failures:
        for path in rows:
            with failures.row(path):
                message = await scripts.error(ScriptErrorType.SECURITY, script_path=path, language="python")
                assert "may not be run" in message
                assert place not in message or path == "link.py" or path.startswith("folder")


async def test_a_link_within_a_folder_is_followed(scripts: Scripts) -> None:
    scripts.put("real/a.py", "import b\nprint(b.n)")
    scripts.put("real/b.py", "n = 7")
    (scripts.host.project.root / "scripts" / "a.py").symlink_to("real/a.py")
    assert await scripts.output(script_path="a.py") == 7


async def test_a_script_that_is_not_there_has_near_names(scripts: Scripts) -> None:
    scripts.put("reports/weekly.py", "print(1)")
    message = await scripts.error(ScriptErrorType.SCRIPT, script_path="reports/weakly.py")
    assert message.startswith("there is no script 'reports/weakly.py' in ")
    assert message.endswith("(did you mean reports/weekly.py?)")


async def test_a_plugin_runs_its_own_scripts_and_no_others(tmp_path: Path) -> None:
    plugin = tmp_path / "project" / "plugins" / "acme"
    (plugin / "scripts").mkdir(parents=True)
    (plugin / "plugin.yaml").write_text("name: acme\ndisplayName: Acme\nversion: 1.0.0\n")
    (plugin / "scripts" / "a.mjs").write_text("console.log(1)")
    make_project(tmp_path / "project")
    async with scripts_of(tmp_path, trust=["acme"]) as scripts:
        if shutil.which("node"):
            assert await scripts.output(plugin="acme", command="node scripts/a.mjs") == 1
        assert "leads upwards" in await scripts.error(
            ScriptErrorType.SECURITY, plugin="acme", command="node ../../x.mjs"
        )
        with pytest.raises(NotFound, match="there is no plugin 'acne'"):
            await scripts.run(plugin="acne", command="node scripts/a.mjs")


# --- commands -------------------------------------------------------------------------------------


async def test_a_command_is_taken_apart_without_a_shell(scripts: Scripts) -> None:
    scripts.put("my file.py", ECHO)
    result = await scripts.output(command="python 'my file.py' --name 'a b' * ~ {x} \"it's\"", input_data=1)
    assert result == {"argv": ["/script/my file.py", "--name", "a b", "*", "~", "{x}", "it's"], "in": 1}


async def test_a_command_that_is_more_than_a_script_is_refused(scripts: Scripts) -> None:
    rows: list[Any] = [
        ("python a.py \ud800", "no argument of a program can hold"),
        ("python a.py \0", "no argument of a program can hold"),
        ("python a.py; rm -rf /", "holds ';'"),
        ("python a.py && true", "holds '&'"),
        ("python a.py | cat", "holds '|'"),
        ("python a.py > out", "holds '>'"),
        ("python $(id).py", "holds '$'"),
        ("python `id`.py", "holds '`'"),
        ("python a.py\nid", "holds '\\n'"),
        ("python 'a.py", "cannot be taken apart"),
        ("sh a.sh", "must begin with one of python, python3, node, nodejs, bun, found 'sh'"),
        ("/usr/bin/python3 a.py", "must begin with one of"),
        ("env python a.py", "must begin with one of"),
        ("python -c 1", "after python comes the script, found '-c'"),
        ("python -m http.server", "after python comes the script"),
        ("node --eval 1", "after node comes the script"),
        ("bun run", "names no script"),
        ("python", "names no script"),
        ("", "must begin with one of"),
    ]
    with Failures() as failures:
        for command, said in rows:
            with failures.row(command):
                scripts.put("a.py", "print(1)")
                with pytest.raises(InvalidInput) as raised:
                    await scripts.run(command=command)
                assert said in raised.value.message


# --- languages ------------------------------------------------------------------------------------


async def test_the_language_comes_from_the_suffix_or_is_asked_for(scripts: Scripts) -> None:
    scripts.put("a.txt", "print(1)")
    with pytest.raises(InvalidInput, match=r"the language of 'a.txt' is not clear"):
        await scripts.run(script_path="a.txt")
    assert await scripts.output(script_path="a.txt", language="python") == 1


async def test_a_language_that_is_not_allowed_is_refused(tmp_path: Path) -> None:
    async with scripts_of(tmp_path, languages=["nodejs"]) as scripts:
        message = await scripts.error(ScriptErrorType.SECURITY, code="print(1)", language="python")
        assert message == "the operator does not allow scripts in python; allowed: nodejs"


async def test_an_interpreter_that_is_missing_says_what_to_do(tmp_path: Path) -> None:
    async with scripts_of(tmp_path, interpreters={"bun": "/nowhere/bun"}) as scripts:
        message = await scripts.error(ScriptErrorType.DEPENDENCY, code="1", language="bun")
        assert message == (
            "bun, which runs bun, was not found at /nowhere/bun; install it, or set "
            "extensions.tavern-scripts.interpreters to {'bun': its absolute path}"
        )


async def test_the_operator_names_an_interpreter(tmp_path: Path) -> None:
    async with scripts_of(tmp_path, interpreters={"python": sys.executable}) as scripts:
        found = await scripts.output(code="import sys, json\nprint(json.dumps(sys.prefix))", language="python")
        assert found == sys.prefix


# --- the policy is the operator's -----------------------------------------------------------------


async def test_a_project_cannot_widen_its_own_rights(tmp_path: Path) -> None:
    root = tmp_path / "project"
    make_project(root)
    lines = [f'  "{PREFIX}{key}": {value}' for key, value in (("allowedHosts", '["*"]'), ("memoryMegabytes", "9999"))]
    (root / "tavern.yaml").write_text("settings:\n" + "\n".join(lines) + "\n")
    async with Host(root) as host:
        request = ScriptRequest.model_validate(
            {"code": "1", "language": "python", "security_context": {"networkAccess": {"allowHosts": ["example.com"]}}}
        )
        enforced = await host.services.get(SCRIPT_EXECUTION).review(request)
        assert enforced.grants.hosts == []
        assert enforced.limits.memory == 512 * 2**20


async def test_a_policy_that_cannot_be_read_lets_nothing_run(tmp_path: Path) -> None:
    rows: list[Any] = [
        ("folders", "scripts", "must be a list of texts, found 'scripts'"),
        ("languages", ["cobol"], "must be one of python, nodejs, bun, found 'cobol'"),
        ("interpreters", {"python": "python3"}, "must be an object with absolute paths of programs by language"),
        ("approvedScripts", {}, "must be a list of texts"),
        ("allowedHosts", ["https://api.example.com"], "'https://api.example.com' is no host that can be"),
        ("writablePaths", ["/etc"], "must be a list of paths in a script's own folder, such as .cache/**, found"),
        ("memoryMegabytes", "much", "setting extensions.tavern-scripts.memoryMegabytes cannot be used"),
    ]
    make_project(tmp_path / "project")
    with Failures() as failures:
        for key, value, said in rows:
            with failures.row(key):
                async with Host(tmp_path / "project", settings={f"{PREFIX}{key}": value}) as host:
                    result = await host.services.get(SCRIPT_EXECUTION).execute(code="print(1)", language="python")
                assert result.error is not None and result.error.type is ScriptErrorType.SECURITY
                assert said in result.error.message


async def test_a_time_limit_is_capped(tmp_path: Path) -> None:
    async with scripts_of(tmp_path, timeoutSeconds=2, maxTimeoutSeconds=3) as scripts:
        walls = []
        for timeout_ms in (None, 1000, 10**9):
            request = ScriptRequest(code="1", language="python", timeout_ms=timeout_ms)
            walls.append((await scripts.service.review(request)).limits.wall)
        assert walls == [2, 1, 3]


async def test_with_approvals_only_approved_code_runs(tmp_path: Path) -> None:
    code = "print('yes')"
    digest = hashlib.sha256(code.encode()).hexdigest()
    async with scripts_of(tmp_path, approvedScripts=[f"sha256:{digest}"]) as scripts:
        assert await scripts.output(code=code, language="python") == "yes"
        message = await scripts.error(ScriptErrorType.SECURITY, code=code + " ", language="python")
        assert message.startswith("only scripts that the operator approved are run; look at it, then add '")


async def test_an_approved_script_is_approved_with_all_that_lies_beside_it(tmp_path: Path) -> None:
    async with scripts_of(tmp_path, approvedScripts=[]) as scripts:
        scripts.put("a/main.py", "import part\nprint(part.n)")
        scripts.put("a/part.py", "n = 1")
        message = await scripts.error(ScriptErrorType.SECURITY, script_path="a/main.py")
        digest = message.split("'")[1]
    async with scripts_of(tmp_path, approvedScripts=[digest]) as scripts:
        assert await scripts.output(script_path="a/main.py") == 1
        scripts.put("a/part.py", "n = 2")
        assert "approved" in await scripts.error(ScriptErrorType.SECURITY, script_path="a/main.py")


# --- what a script asks for -----------------------------------------------------------------------


def asking(**asked: Any) -> dict[str, Any]:
    """Return a security context."""
    hosts = {"networkAccess": {"allowHosts": asked.pop("hosts")}} if "hosts" in asked else {}
    files = {"fileAccess": {key: asked.pop(key) for key in ("allowRead", "allowWrite") if key in asked}}
    return {**hosts, **files, **asked}


LOOK = """
import json, os
seen = sorted(os.path.relpath(os.path.join(f, n), '/script') for f, _, names in os.walk('/script') for n in names)
print(json.dumps(seen))
"""


async def test_a_script_sees_of_its_folder_what_it_asks_for(scripts: Scripts) -> None:
    rows: list[Any] = [
        (None, ["data/a.csv", "data/b.txt", "look.py", "other.py"]),
        (["self"], ["look.py"]),
        ([], ["look.py"]),
        (["./*"], ["data/a.csv", "data/b.txt", "look.py", "other.py"]),
        (["self", "data/**"], ["data/a.csv", "data/b.txt", "look.py"]),
        (["data/*.csv", "other.py"], ["data/a.csv", "look.py", "other.py"]),
        (["../secret.txt", "/etc/passwd", "~", "link.txt"], ["look.py"]),
    ]
    with Failures() as failures:
        for patterns, seen in rows:
            with failures.row(patterns):
                for path in ("x/data/a.csv", "x/data/b.txt", "x/other.py"):
                    scripts.put(path, "")
                scripts.put("x/look.py", LOOK)
                secret = scripts.put("secret.txt", "secret", folder=".")
                if patterns and "link.txt" in patterns:
                    (scripts.host.project.root / "scripts" / "x" / "link.txt").symlink_to(secret)
                context = {} if patterns is None else asking(allowRead=patterns)
                assert await scripts.output(script_path="x/look.py", security_context=context) == seen


async def test_what_is_not_granted_is_told(tmp_path: Path) -> None:
    async with scripts_of(tmp_path, allowedHosts=["*.example.com", "api.acme.org:8443"]) as scripts:
        scripts.put("a.py", "print(1)")
        context = asking(
            hosts=["cdn.example.com", "*.acme.org:8443", "evil.org", "not a host"],
            allowRead=["self", "/etc/passwd"],
            allowWrite=[".cache/**", "./*", "data/**", "../up/**"],
        )
        enforced = await scripts.service.review(
            ScriptRequest.model_validate({"script_path": "a.py", "security_context": context})
        )
        assert enforced.grants.hosts == ["cdn.example.com", "api.acme.org:8443"]
        assert enforced.grants.write == ["/output/**", "/script/.cache/**"]
        assert [text.partition(":")[0] for text in enforced.denied] == [
            "read '/etc/passwd'",
            "write './*'",
            "write 'data/**'",
            "write '../up/**'",
            "host 'evil.org'",
            "host 'not a host'",
        ]


async def test_what_was_denied_stands_with_the_error_of_a_script(scripts: Scripts) -> None:
    result = await scripts.python("import sys; sys.exit('no way out')", security_context=asking(hosts=["acme.org"]))
    assert result.error is not None and result.error.details is not None
    assert "The script asked for more than it was granted:\nhost 'acme.org'" in result.error.details


async def test_a_capability_that_is_not_there_keeps_a_script_from_running(scripts: Scripts) -> None:
    rows: list[Any] = [
        (asking(requiredCapabilities=["gpu"]), "requires the capability 'gpu', which this host does not know"),
        (asking(requiredCapabilities=["network"]), "requires more than the operator's policy grants it"),
        (asking(requiredCapabilities=["network"], hosts=["acme.org"]), "requires more than"),
        (asking(requiredCapabilities=["write"], allowWrite=["x/**"]), "requires more than"),
    ]
    with Failures() as failures:
        for context, said in rows:
            with failures.row(context):
                scripts.put("a.py", "print(1)")
                assert said in await scripts.error(
                    ScriptErrorType.SECURITY, script_path="a.py", security_context=context
                )


async def test_a_host_may_be_that_of_a_setting(tmp_path: Path) -> None:
    rows: dict[str, tuple[list[str], int]] = {
        "http://127.0.0.1:8080/x": (["127.0.0.1:8080"], 0),
        "https://acme.org": (["acme.org"], 0),
        "https://evil.org": ([], 1),
        "ftp://acme.org": ([], 1),
        "": ([], 0),
        "acme.org": ([], 1),
    }
    async with scripts_of(tmp_path, allowedHosts=["127.0.0.1:8080", "acme.org"]) as scripts:
        for base, expected in rows.items():
            asked = {"config": {"base": base}, "security_context": asking(hosts=["{base}"])}
            enforced = await scripts.service.review(
                ScriptRequest.model_validate({"code": "1", "language": "python", **asked})
            )
            assert (enforced.grants.hosts, len(enforced.denied)) == expected, base


# --- what a script may keep -----------------------------------------------------------------------

COUNT = """
import json, pathlib
file = pathlib.Path(__file__).parent / ".cache" / "count"
n = int(file.read_text()) + 1 if file.exists() else 1
file.write_text(str(n))
print(json.dumps([n, pathlib.Path(__file__).with_name("near.txt").read_text()]))
"""


async def test_a_script_finds_again_what_it_may_keep_and_its_folder_stays_as_it_is(scripts: Scripts) -> None:
    file = scripts.put("again/count.py", COUNT)
    scripts.put("again/near.txt", "near")
    context = asking(allowWrite=[".cache/**"])
    for n in (1, 2, 3):
        assert await scripts.output(script_path="again/count.py", security_context=context) == [n, "near"]
    assert sorted(path.name for path in file.parent.iterdir()) == ["count.py", "near.txt"]


async def test_what_a_script_removes_is_gone_the_next_time(scripts: Scripts) -> None:
    code = """
import json, os, sys
os.chdir("/script/.cache")
for name in json.load(sys.stdin): os.remove(name)
os.makedirs("deep", exist_ok=True)
for name in ("a", "deep/b"):
    if not os.path.exists(name) and not os.path.exists("c"): open(name, "w").close()
open("c", "w").close()
print(json.dumps(sorted(os.path.join(f, n) for f, _, names in os.walk(".") for n in names)))
"""
    scripts.put("removes/x.py", code)
    context = asking(allowWrite=[".cache/**"])
    for removed, left in (([], ["./a", "./c", "./deep/b"]), (["deep/b"], ["./a", "./c"]), ([], ["./a", "./c"])):
        request = {"script_path": "removes/x.py", "input_data": removed, "security_context": context}
        assert await scripts.output(**request) == left


async def test_nothing_is_kept_of_a_script_that_failed(scripts: Scripts) -> None:
    scripts.put("failed/near.txt", "near")
    scripts.put("failed/count.py", COUNT)
    scripts.put("failed/fail.py", COUNT + "\nraise SystemExit(1)")
    context = asking(allowWrite=[".cache/**"])
    await scripts.error(ScriptErrorType.SCRIPT, script_path="failed/fail.py", security_context=context)
    assert await scripts.output(script_path="failed/count.py", security_context=context) == [1, "near"]


async def test_without_asking_nothing_can_be_written_beside_a_script(scripts: Scripts) -> None:
    scripts.put("near.txt", "near")
    scripts.put("count.py", COUNT)
    message = await scripts.error(ScriptErrorType.SCRIPT, script_path="count.py")
    assert "FileNotFoundError" in message
    file = scripts.put("write.py", "open(__file__, 'a')")
    file.chmod(0o666)
    assert "Read-only file system" in await scripts.error(ScriptErrorType.SCRIPT, script_path="write.py")


# --- dependencies ---------------------------------------------------------------------------------


async def test_a_manifest_that_asks_for_another_index_keeps_a_script_from_running(scripts: Scripts) -> None:
    scripts.put("x/a.py", "print(1)")
    scripts.put("x/requirements.txt", "--index-url https://evil.example/simple\nsix\n")
    message = await scripts.error(ScriptErrorType.DEPENDENCY, script_path="x/a.py")
    assert message.startswith("requirements.txt, line 1")


async def test_an_empty_manifest_costs_nothing(scripts: Scripts) -> None:
    scripts.put("x/a.py", "print(1)")
    scripts.put("x/requirements.txt", "# nothing\n")
    assert await scripts.output(script_path="x/a.py") == 1
