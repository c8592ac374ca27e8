"""What a manifest may ask for: names and versions of packages, and nothing that says where from or runs something."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures
from hypothesis import given
from hypothesis import strategies as st

from tavern_scripts.api.scripts import ScriptErrorType, ScriptLanguage
from tavern_scripts.environments.manifests import Manifests, NodeManifest, PythonManifest
from tavern_scripts.environments.packages import read_lock, read_package
from tavern_scripts.environments.requirements import read_block, read_pyproject, read_requirements
from tavern_scripts.results.refusal import Refused

SHA = "sha256:" + "a" * 64


def refuses(rows: list[Any], read: Callable[[Any], object]) -> None:
    """Fail unless each row's first value is refused when it is read, with a message that matches its second."""
    with Failures() as failures:
        for wrong, problem in rows:
            with failures.row(wrong), pytest.raises(Refused, match=problem):
                read(wrong)


def test_requirements_are_names_versions_markers_and_hashes() -> None:
    found = read_requirements(
        "\ufeff# a comment\n\nrequests>=2.31,<3  # why\nuvicorn[standard] ; python_version >= '3.11'\n"
        f"six==1.17.0 \\\n    --hash={SHA} \\\n    --hash={SHA}\n",
        "requirements.txt",
    )

    assert found.lines == (
        "requests<3,>=2.31",
        'uvicorn[standard]; python_version >= "3.11"',
        f"six==1.17.0 --hash={SHA} --hash={SHA}",
    )
    assert found.hashed


POISONED = {
    "not from an address": """
        six @ https://evil.example/six.whl
        six @ file:///etc/passwd
        six@git+https://evil.example/six""",
    "not given by a path or an address": """
        git+https://evil.example/six
        file:///tmp/six.whl
        ./six
        /opt/six.whl
        six.whl
        .
        ${HOME}/six""",
    "nothing is installed from a folder": """
        -e .
        --editable=git+https://evil.example/six""",
    "other files are not read": """
        -r other.txt
        -c other.txt""",
    "the operator's to say": """
        --index-url https://evil.example/simple
        -i https://evil.example/simple
        --extra-index-url=https://evil.example/simple
        --find-links /tmp
        -f /tmp
        --trusted-host evil.example
        --no-binary :all:
        --pre""",
    "the only option of a requirement": """
        six --global-option=x
        six --hash=md5:abc
        six --index-url https://evil.example""",
    "===|no requirement|path": """
        six===1.0/../../x
        six\x00
        six ; $(touch x)
        six`touch x`""",
    "too long": f"""
        {"x" * 2000}""",
}


def test_a_poisoned_requirement_is_refused_with_its_line() -> None:
    rows = [(line.strip(), problem) for problem, text in POISONED.items() for line in text.split("\n")[1:]]
    with Failures() as failures:
        for line, problem in rows:
            with failures.row(line):
                with pytest.raises(Refused, match=problem) as refused:
                    read_requirements(f"rich\n\n{line}\n", "requirements.txt")

                error = refused.value.error
                assert error.type is ScriptErrorType.DEPENDENCY
                assert error.message.startswith("requirements.txt, line 3 (")
                assert len(error.message) < 400 and "\x00" not in error.message


def test_a_continued_line_hides_no_other() -> None:
    with pytest.raises(Refused, match="line 1 .*only option of a requirement"):
        read_requirements("six \\\n --index-url https://evil.example\n", "requirements.txt")
    with pytest.raises(Refused, match="line 2"):
        read_requirements("# a comment \\\n-e .\n", "requirements.txt")


def test_a_poisoned_pyproject_is_refused_with_its_line() -> None:
    rows: list[Any] = [
        ('[project]\ndependencies = ["six @ git+https://evil.example/x"]', "line 2 .*not from an address"),
        ('[project]\n[tool.uv.sources]\nsix = {git = "https://x"}', r"line 2: \[tool.uv\] sources"),
        ('[project]\ndependencies = []\n[[tool.uv.index]]\nurl = "https://x"', r"line 3: \[tool.uv\] index"),
        ('[tool.uv]\nextra-index-url = ["https://x"]', r"line 2: \[tool.uv\] extra-index-url"),
        ('[tool.uv.pip]\nindex-url = "https://x"', r"\[tool.uv\] pip"),
        ('[project]\ndynamic = ["dependencies"]', "line 2: the dependencies must stand here"),
        ('[tool.poetry.dependencies]\nsix = {path = "../six"}', "line 1: dependencies must stand under"),
        ('[project]\ndependencies = "six"', "must be a list of texts"),
        ("[project]\ndependencies = [1]", "must be a list of texts"),
        ('[project]\nrequires-python = "banana"', "line 2 .*no range"),
        ("[project", "it is no TOML"),
        ("project = 1", "must be a table"),
        ("a = " + "[" * 5000, "it is no TOML"),
    ]
    refuses(rows, lambda text: read_pyproject(text, "pyproject.toml"))


def test_a_block_in_a_script_says_what_it_depends_on() -> None:
    code = '# /// script\n# requires-python = ">=3.11"\n# dependencies = [\n#   "six",\n# ]\n# ///\nprint(1)\n'
    found = read_block(code.replace("\n", "\r\n"), "x.py")

    assert found is not None and found.lines == ("six",) and found.python == ">=3.11"
    assert read_block("print('hello')", "x.py") is None


def test_a_poisoned_block_is_refused() -> None:
    rows: list[Any] = [
        ('# /// script\n# dependencies = ["six @ https://x"]\n# ///\n', "x.py, line 2 .*not from an address"),
        ('# /// script\n# dependencies = ["six"]\n# [tool.uv.sources]\n# six = {path = "/tmp"}\n# ///\n', "sources"),
        ('# /// script\n# dependencies = ["six"]\n', "not closed"),
        ("# /// script\n# a = 1\n# ///\n\n# /// script\n# a = 1\n# ///\n", "more than one block"),
        ("# /// script\n# = 1\n# ///\n", "no TOML"),
    ]
    refuses(rows, lambda block: read_block(block, "x.py"))


def package(**fields: Any) -> str:
    return json.dumps({"name": "x", **fields}, indent=1)


ELSEWHERE = """
    git+https://evil.example/x.git git://evil.example/x git@evil.example:x https://evil.example/x.tgz user/repo
    http://evil.example/x.tgz file:../x ./x ../x /x ~/x link:../x workspace:* portal:../x github:user/repo gist:1234
    user/repo#semver:1 npm:../x@1 npm:@x/../y@1 npm:x@file:../y catalog: patch:x@1#y $x exec:./x
"""


def test_a_package_not_from_the_registry_is_refused() -> None:
    with Failures() as failures:
        for group in ("dependencies", "optionalDependencies", "overrides", "resolutions"):
            for wanted in [*ELSEWHERE.split(), "1\n2", "x" * 300]:
                if wanted == "$x" and group in ("overrides", "resolutions"):
                    continue  # there it means what stands under dependencies
                refused = pytest.raises(Refused, match=r"^package.json, line 4 \(")
                with failures.row((group, wanted)), refused:
                    read_package(package(**{group: {"x": wanted}}), "package.json")


def test_a_poisoned_package_json_is_refused() -> None:
    rows: list[Any] = [
        ({"scripts": {"preinstall": "curl evil"}}, "take this script out"),
        ({"scripts": {"postinstall": "curl evil"}}, "take this script out"),
        ({"scripts": {"prepare": "curl evil"}}, "nothing runs while"),
        ({"workspaces": ["a"]}, "workspaces are not installed"),
        ({"bundleDependencies": ["a"]}, "bundled packages"),
        ({"trustedDependencies": ["a"]}, "nothing runs while"),
        ({"patchedDependencies": {"a@1": "a.patch"}}, "without patches"),
        ({"gypfile": True}, "nothing is compiled"),
        ({"overrides": {"a": {"b": {"c": "file:../x"}}}}, "from the registry only"),
        ({"dependencies": {"../x": "1"}}, "no name of a package"),
        ({"dependencies": {"node_modules": "1"}}, "no name of a package"),
        ({"dependencies": {"a": 1}}, "must be a text"),
        ({"dependencies": ["a"]}, "must be an object"),
        ({"dependencies": {f"a{n}": "1" for n in range(600)}}, "at most 500"),
    ]
    refuses(rows, lambda fields: read_package(package(**fields), "package.json"))


def test_ranges_aliases_and_harmless_fields_are_taken() -> None:
    dependencies = {"a": "^1.2.3 || >=2 <3", "@scope/b": "latest", "c": "npm:@scope/d@~1", "e": "*", "f": ""}
    found = read_package(
        package(
            dependencies=dependencies, scripts={"test": "x", "start": "y"}, overrides={"a": {".": "1", "b@^2": "$a"}}
        ),
        "package.json",
    )

    assert json.loads(found.package)["dependencies"] == dependencies
    assert "scripts" not in found.package and not found.is_empty


def test_what_is_no_package_json_is_refused() -> None:
    rows = ["", "[]", "{", '{"a": ' * 5000, '{"a": 1' + "0" * 5000 + "}", "null"]
    refuses([(text, r"package.json") for text in rows], lambda text: read_package(text, "package.json"))


LOCKED = {"version": "1.0.0", "integrity": "sha512-" + "A" * 86 + "=="}


def lock(place: str = "node_modules/a", **entry: Any) -> str:
    return json.dumps(
        {"lockfileVersion": 3, "packages": {"": {"dependencies": {}}, place: {**LOCKED, **entry}}}, indent=1
    )


def test_a_poisoned_lock_is_refused() -> None:
    rows: list[Any] = [
        (lock(resolved="git+ssh://git@evil.example/x.git#1"), "configured registry only"),
        (lock(resolved="file:../x.tgz"), "configured registry only"),
        (lock(resolved="https://evil.example/a.tgz"), "line 7 .*configured registry only"),
        (lock(resolved="https://packages.example@evil.example/a.tgz"), "configured registry only"),
        (lock(resolved=["https://packages.example/a.tgz"]), "configured registry only"),
        (lock(link=True, resolved="../x"), "links and bundled"),
        (lock(inBundle=True), "links and bundled"),
        (lock(integrity=None), "no integrity"),
        (lock(integrity="sha512-x y"), "no integrity"),
        (lock("../../x"), "below node_modules only"),
        (lock("node_modules/../../x"), "below node_modules only"),
        (lock("packages/x"), "below node_modules only"),
        (lock("node_modules/a/node_modules/../b"), "below node_modules only"),
        (lock(version="file:../x"), "no version"),
        (lock(name="../x"), "no name"),
        ('{"lockfileVersion": 1, "dependencies": {}}', "version 2 or 3"),
        ('{"lockfileVersion": 3, "packages": {"node_modules/a": 1}}', "must be an object"),
    ]
    refuses(rows, lambda text: read_lock(text, "package-lock.json", {"packages.example"}))


def test_a_lock_is_rewritten_without_unchecked_fields() -> None:
    text = lock(resolved="https://packages.example/a.tgz", hasInstallScript=True, bin={"a": "../../x"}, unknown=1)
    written = json.loads(read_lock(text, "package-lock.json", {"packages.example"}))["packages"]["node_modules/a"]

    assert written == {**LOCKED, "resolved": "https://packages.example/a.tgz"}


def uv_lock(source: str) -> str:
    return f'version = 1\n[[package]]\nname = "six"\nversion = "1"\nsource = {source}\n'


def test_a_poisoned_or_incomplete_uv_lock_is_refused(tmp_path: Path) -> None:
    rows: list[Any] = [
        ('{ git = "https://evil.example/x" }', "line 3: six comes from git"),
        ('{ url = "https://evil.example/x.whl" }', "six comes from url"),
        ('{ path = "../x.whl" }', "six comes from path"),
        ('{ directory = "../x" }', "six comes from directory"),
        ('{ editable = "../x" }', "six comes from editable"),
        ('{ registry = "https://x", url = "y" }', "six comes from registry"),
        ("1", "six comes from nowhere"),
    ]
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["six"]\n')
    with Failures() as failures:
        for source, problem in rows:
            (tmp_path / "uv.lock").write_text(uv_lock(source))
            with failures.row(source), pytest.raises(Refused, match=f"uv.lock.*{problem}"):
                Manifests().find("python", tmp_path, None)
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["six", "Rich"]\n')
    (tmp_path / "uv.lock").write_text(uv_lock('{ registry = "https://x" }'))
    with pytest.raises(Refused, match="uv.lock: it does not have Rich: regenerate it with `uv lock`"):
        Manifests().find("python", tmp_path, None)


def test_a_scripts_block_counts_before_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("rich\n")
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["attrs"]\n')
    manifests = Manifests()
    code = '# /// script\n# dependencies = ["six"]\n# ///\n'

    of_block = manifests.find("python", tmp_path, code, "x.py")
    of_file = manifests.find("python", tmp_path, "print(1)", "x.py")
    (tmp_path / "requirements.txt").write_text("rich>1\n")
    changed = manifests.find("python", tmp_path, "print(1)", "x.py")
    (tmp_path / "requirements.txt").unlink()
    of_project = manifests.find("python", tmp_path, "print(1)", "x.py")

    found = [each for each in (of_block, of_file, changed, of_project) if isinstance(each, PythonManifest)]
    assert [each.requirements.lines for each in found] == [("six",), ("rich",), ("rich>1",), ("attrs",)]


def test_a_package_json_without_dependencies_needs_no_environment(tmp_path: Path) -> None:
    languages: tuple[ScriptLanguage, ...] = ("nodejs", "bun")
    found = []
    for text in (None, '{"type": "module"}', '{"dependencies": {"a": "1"}}'):
        if text is not None:
            (tmp_path / "package.json").write_text(text)
        found += [Manifests().find(language, tmp_path, "1") for language in languages]

    assert [isinstance(each, NodeManifest) for each in found] == [False] * 4 + [True] * 2
    assert found[:4] == [None] * 4 and Manifests().find("bun", None, "1") is None


def test_a_lock_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"dependencies": {"a": "1"}}')
    for name in ("bun.lock", "bun.lockb", "yarn.lock", "pnpm-lock.yaml"):
        (tmp_path / name).write_text("")
        with pytest.raises(Refused, match=f"{name}: it is not read; write package-lock.json by"):
            Manifests().find("nodejs", tmp_path, "1")
        (tmp_path / name).unlink()

    (tmp_path / "yarn.lock").write_text("")
    (tmp_path / "package-lock.json").write_text("{}")
    assert isinstance(Manifests().find("nodejs", tmp_path, "1"), NodeManifest)


def test_what_is_no_plain_manifest_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("-token=hunter2")
    place = tmp_path / "x"
    place.mkdir()
    file = place / "requirements.txt"

    file.symlink_to(secret)
    with pytest.raises(Refused, match="must be a plain file") as refused:
        Manifests().find("python", place, None)
    assert "hunter2" not in refused.value.error.message
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(Refused, match="must be a plain file"):
        Manifests().find("python", place, None)
    file.unlink()
    for content, problem in ((b"#" * (600 << 10), "larger than 512 KiB"), (b"\xff\xfe", "must be UTF-8")):
        file.write_bytes(content)
        with pytest.raises(Refused, match=problem):
            Manifests().find("python", place, None)


@given(text=st.text(max_size=200))
def test_accepted_requirements_name_no_place(text: str) -> None:
    try:
        found = read_requirements(text, "requirements.txt")
    except Refused:
        return
    for line in found.lines:
        assert not line.startswith("-") and "://" not in line and "@" not in line and "\n" not in line


@given(name=st.text(max_size=20), wanted=st.text(max_size=40))
def test_any_dependency_is_a_range_or_refused(name: str, wanted: str) -> None:
    try:
        found = read_package(json.dumps({"dependencies": {name: wanted}}), "package.json")
    except Refused:
        return
    kept = json.loads(found.package)["dependencies"]
    assert kept == {name: wanted}
    assert "/" not in wanted.removeprefix("npm:@").partition("/")[2]
    assert ".." not in name.split("/")
