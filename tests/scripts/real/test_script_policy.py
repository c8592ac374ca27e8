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
from tavern_host.projects import make_project
from tavern_scripts.api.scripts import SCRIPT_EXECUTION, ScriptErrorType, ScriptRequest
from tests.scripts.scripthost import PREFIX, Scripts, scripts_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

ECHO = "import json, sys\nprint(json.dumps({'argv': sys.argv, 'in': json.load(sys.stdin)}))\n"

# --- where scripts lie ----------------------------------------------------------------------------


async def test_the_settings_of_the_operator_count(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.py").write_text("import json, sys\nprint(json.dumps(sys.prefix))")
    settings: dict[str, Any] = {
        "folders": ["scripts", str(other)],
        "languages": ["python", "bun"],
        "interpreters": {"bun": "/nowhere/bun", "python": sys.executable},
        "timeoutSeconds": 2,
        "maxTimeoutSeconds": 3,
    }
    async with scripts_of(tmp_path, **settings) as scripts:
        scripts.put("deep/a.py", "print('\"own\"')")
        assert await scripts.output(script_path="deep/a.py") == "own"
        assert await scripts.output(script_path="b.py") == sys.prefix
        message = await scripts.error(ScriptErrorType.SECURITY, code="1", language="nodejs")
        assert message == "the operator does not allow scripts in nodejs; allowed: python, bun"
        message = await scripts.error(ScriptErrorType.DEPENDENCY, code="1", language="bun")
        assert message == (
            "bun, which runs bun, was not found at /nowhere/bun; install it, or set "
            "extensions.tavern-scripts.interpreters to {'bun': its absolute path}"
        )
        walls = []
        for timeout_ms in (None, 1000, 10**9):
            request = ScriptRequest(code="1", language="python", timeout_ms=timeout_ms)
            walls.append((await scripts.service.review(request)).limits.wall)
        assert walls == [2, 1, 3]


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


async def test_a_missing_script_has_near_names(scripts: Scripts) -> None:
    scripts.put("real/a.py", "import b\nprint(b.n)")
    scripts.put("real/b.py", "n = 7")
    (scripts.host.project.root / "scripts" / "a.py").symlink_to("real/a.py")
    assert await scripts.output(script_path="a.py") == 7
    message = await scripts.error(ScriptErrorType.SCRIPT, script_path="reel/a.py")
    assert message.startswith("there is no script 'reel/a.py' in ")
    assert message.endswith("(did you mean real/a.py?)")
    scripts.put("a.txt", "print(1)")
    with pytest.raises(InvalidInput, match=r"the language of 'a.txt' is not clear"):
        await scripts.run(script_path="a.txt")
    assert await scripts.output(script_path="a.txt", language="python") == 1


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
        *((f"python a.py {sign} x", f"holds {sign[0]!r}") for sign in (";", "&&", "|", ">", "$(id)", "`id`", "\n")),
        ("python 'a.py", "cannot be taken apart"),
        ("sh a.sh", "must begin with one of python, python3, node, nodejs, bun, wasmtime, found 'sh'"),
        ("/usr/bin/python3 a.py", "must begin with one of"),
        ("python -m http.server", "after python comes the script, found '-m'"),
        ("node --eval 1", "after node comes the script"),
        ("bun run", "names no script"),
        ("python", "names no script"),
        ("", "must begin with one of"),
    ]
    scripts.put("a.py", "print(1)")
    with Failures() as failures:
        for command, said in rows:
            with failures.row(command):
                with pytest.raises(InvalidInput) as raised:
                    await scripts.run(command=command)
                assert said in raised.value.message


# --- the policy is the operator's -----------------------------------------------------------------


async def test_a_policy_that_cannot_be_read_lets_nothing_run(tmp_path: Path) -> None:
    rows: list[Any] = [
        ("folders", "scripts", "must be a list of texts, found 'scripts'"),
        ("languages", ["cobol"], "must be one of python, nodejs, bun, wasm, found 'cobol'"),
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


async def test_with_approvals_only_what_was_approved_runs(tmp_path: Path) -> None:
    code = "print('yes')"
    digest = f"sha256:{hashlib.sha256(code.encode()).hexdigest()}"
    async with scripts_of(tmp_path, approvedScripts=[digest]) as scripts:
        scripts.put("a/main.py", "import part\nprint(part.n)")
        scripts.put("a/part.py", "n = 1")
        assert await scripts.output(code=code, language="python") == "yes"
        message = await scripts.error(ScriptErrorType.SECURITY, code=code + " ", language="python")
        assert message.startswith("only scripts that the operator approved are run; look at it, then add '")
        message = await scripts.error(ScriptErrorType.SECURITY, script_path="a/main.py")
    async with scripts_of(tmp_path, approvedScripts=[message.split("'")[1]]) as scripts:
        assert await scripts.output(script_path="a/main.py") == 1
        scripts.put("a/part.py", "n = 2")  # what lies beside it is approved with it
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
        ([], ["look.py"]),
        (["./*"], ["data/a.csv", "data/b.txt", "look.py", "other.py"]),
        (["self", "data/**"], ["data/a.csv", "data/b.txt", "look.py"]),
        (["data/*.csv", "other.py"], ["data/a.csv", "look.py", "other.py"]),
        (["../secret.txt", "/etc/passwd", "~", "link.txt"], ["look.py"]),
    ]
    for path in ("x/data/a.csv", "x/data/b.txt", "x/other.py"):
        scripts.put(path, "")
    scripts.put("x/look.py", LOOK)
    secret = scripts.put("secret.txt", "secret", folder=".")
    with Failures() as failures:
        for patterns, seen in rows:
            with failures.row(patterns):
                if patterns and "link.txt" in patterns:
                    (scripts.host.project.root / "scripts" / "x" / "link.txt").symlink_to(secret)
                context = {} if patterns is None else asking(allowRead=patterns)
                assert await scripts.output(script_path="x/look.py", security_context=context) == seen


async def test_what_is_not_granted_is_told(tmp_path: Path) -> None:
    allowed = ["*.example.com", "api.acme.org:8443", "127.0.0.1:8080", "acme.org"]
    async with scripts_of(tmp_path, allowedHosts=allowed) as scripts:
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

        scripts.put("fails.py", "import sys; sys.exit('no way out')")
        result = await scripts.run(script_path="fails.py", security_context=context)
        assert result.error is not None and result.error.details is not None
        assert "The script asked for more than it was granted:\nread '/etc/passwd'" in result.error.details
        rows: dict[str, tuple[list[str], int]] = {
            "http://127.0.0.1:8080/x": (["127.0.0.1:8080"], 0),
            "https://acme.org": (["acme.org"], 0),
            "https://evil.org": ([], 1),
            "ftp://acme.org": ([], 1),
            "": ([], 0),
            "acme.org": ([], 1),
        }
        for base, expected in rows.items():  # a host may be that of a setting
            asked = {"config": {"base": base}, "security_context": asking(hosts=["{base}"])}
            request = ScriptRequest.model_validate({"code": "1", "language": "python", **asked})
            enforced = await scripts.service.review(request)
            assert (enforced.grants.hosts, len(enforced.denied)) == expected, base


async def test_a_capability_that_is_not_there_keeps_a_script_from_running(scripts: Scripts) -> None:
    rows: list[Any] = [
        (asking(requiredCapabilities=["gpu"]), "requires the capability 'gpu', which this host does not know"),
        (asking(requiredCapabilities=["network"]), "requires more than the operator's policy grants it"),
        (asking(requiredCapabilities=["network"], hosts=["acme.org"]), "requires more than"),
        (asking(requiredCapabilities=["write"], allowWrite=["x/**"]), "requires more than"),
    ]
    scripts.put("a.py", "print(1)")
    for context, said in rows:
        assert said in await scripts.error(ScriptErrorType.SECURITY, script_path="a.py", security_context=context)


# --- what a script may keep -----------------------------------------------------------------------

COUNTS = """
import json, os, sys
cache = os.path.join(os.path.dirname(__file__), ".cache")
for name in json.load(sys.stdin):
    os.remove(os.path.join(cache, name))
count = len([n for _, _, names in os.walk(cache) for n in names])
os.makedirs(os.path.join(cache, "deep"), exist_ok=True)
open(os.path.join(cache, "deep", str(count)), "w").close()
print(json.dumps(sorted(os.path.relpath(os.path.join(f, n), cache) for f, _, names in os.walk(cache) for n in names)))
"""


async def test_a_script_keeps_what_it_may_beside_it(scripts: Scripts) -> None:
    file = scripts.put("keeps/x.py", COUNTS)
    scripts.put("keeps/fails.py", COUNTS + "\nraise SystemExit(1)")
    context = asking(allowWrite=[".cache/**"])
    fails = {"script_path": "keeps/fails.py", "input_data": []}
    await scripts.error(ScriptErrorType.SCRIPT, security_context=context, **fails)  # of which nothing is kept
    seen = []
    for removed in ([], [], ["deep/0"]):
        request = {"script_path": "keeps/x.py", "input_data": removed}
        seen.append(await scripts.output(security_context=context, **request))

    assert seen == [["deep/0"], ["deep/0", "deep/1"], ["deep/1"]]
    assert sorted(path.name for path in file.parent.iterdir()) == ["fails.py", "x.py"]
    assert "Read-only file system" in await scripts.error(ScriptErrorType.SCRIPT, **fails)


async def test_an_empty_manifest_costs_nothing(scripts: Scripts) -> None:
    scripts.put("x/a.py", "print(1)")
    scripts.put("x/requirements.txt", "# nothing\n")
    assert await scripts.output(script_path="x/a.py") == 1
