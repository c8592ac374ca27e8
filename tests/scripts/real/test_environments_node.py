"""Environments of JavaScript packages, really installed by npm in the sandbox from a registry on this machine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tavern_scripts.environments.environments import Environment
from tavern_scripts.results.refusal import Refused
from tests.scripts.packagehouse import Index, Workshop

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm: apt install npm")

HOOK = {"postinstall": "node -e \"require('fs').writeFileSync('ran.txt', process.cwd())\""}


async def printed(shop: Workshop, environment: Environment, code: str) -> str:
    shop.write("script.mjs", code)
    status, out, errors = await shop.say(environment, "/script/script.mjs", language="nodejs")
    assert status == 0, errors
    return out.strip()


def dependencies(**wanted: str) -> str:
    return json.dumps({"type": "module", "dependencies": wanted})


async def test_packages_are_found_by_import_and_require(house: Index, shop: Workshop) -> None:
    house.add_npm("beta", code="module.exports = 'beta'")
    house.add_npm("alpha", code="module.exports = 'alpha ' + require('beta')", dependencies={"beta": "^1"})
    shop.write("package.json", dependencies(alpha="^1.0.0"))
    first, again = await shop.ready("nodejs"), await shop.ready("nodejs")

    assert await printed(shop, first, "import alpha from 'alpha'; console.log(alpha)") == "alpha beta"
    required = "import {createRequire as c} from 'module'; console.log(c(import.meta.url)('alpha'))"
    assert await printed(shop, first, required) == "alpha beta"
    assert first.built and not again.built
    assert not [path for path in first.path.rglob("*") if path.is_symlink() or path.name in (".npmrc", "npmrc")]
    assert {(each.host, each.allowed) for each in shop.connections} == {("127.0.0.1", True)}
    assert not shop.left()


async def test_a_lock_decides_the_versions_and_what_is_in_them(house: Index, shop: Workshop, elsewhere: Index) -> None:
    old = house.add_npm("alpha", "1.0.0", code="module.exports = 'old'")
    house.add_npm("alpha", "1.1.0", code="module.exports = 'new'")
    unlocked = await shop.node(alpha="^1.0.0")
    shop.write("package-lock.json", lock_of(house, old))
    locked = await shop.ready("nodejs")
    shop.write("package-lock.json", lock_of(house, "sha512-" + "A" * 86 + "=="))
    with pytest.raises(Refused, match="EINTEGRITY|integrity"):
        await shop.ready("nodejs")
    shop.write("package-lock.json", lock_of(elsewhere, old))
    with pytest.raises(Refused, match=r"package-lock.json, line \d+ .*configured registry only"):
        await shop.ready("nodejs")
    assert elsewhere.asked == []

    assert await printed(shop, unlocked, "import alpha from 'alpha'; console.log(alpha)") == "new"
    assert await printed(shop, locked, "import alpha from 'alpha'; console.log(alpha)") == "old"


async def test_a_registry_cannot_send_the_installer_elsewhere(house: Index, shop: Workshop, elsewhere: Index) -> None:
    house.add_npm("alpha")
    elsewhere.files = house.files
    house.moved_to = f"http://127.0.0.1:{elsewhere.port}"
    with pytest.raises(Refused, match=r"package.json asks for could not be installed"):
        await shop.node(alpha="1")
    assert elsewhere.asked == []
    assert any(each.port == elsewhere.port and not each.allowed for each in shop.connections)


async def test_a_dependency_by_place_gets_nothing(house: Index, shop: Workshop, elsewhere: Index) -> None:
    elsewhere.add_npm("beta")
    house.add_npm("alpha", dependencies={"beta": f"http://127.0.0.1:{elsewhere.port}/files/beta-1.0.0.tgz"})
    house.add_npm("gamma", dependencies={"beta": "file:/etc"})
    for name in ("alpha", "gamma"):
        shop.write("package.json", dependencies(**{name: "1"}))
        try:
            ready = await shop.ready("nodejs")
        except Refused:
            continue
        assert not (ready.path / "node_modules" / "beta" / "passwd").exists()
    assert elsewhere.asked == []


async def test_a_package_runs_its_scripts_only_with_leave(tmp_path: Path, house: Index) -> None:
    house.add_npm("alpha", code="module.exports = 1", scripts=HOOK, hasInstallScript=True)
    house.add_npm("other", os=["win32"])
    wanted = {"dependencies": {"alpha": "1"}, "optionalDependencies": {"other": "1"}}
    for allowed in (False, True):
        shop = Workshop(tmp_path, house, build_scripts=allowed)
        shop.write("package.json", json.dumps(wanted))
        modules = (await shop.ready("nodejs")).path / "node_modules"
        ran = modules / "alpha" / "ran.txt"

        assert ran.exists() is allowed
        assert not allowed or ran.read_text() == "/tmp/environment/node_modules/alpha"
        assert not (modules / "other").exists(), "it is for other machines"


@pytest.mark.skipif(shutil.which("bun") is None, reason="needs Bun: npm install bun")
async def test_bun_finds_what_was_installed(house: Index, shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    house.add_npm("alpha", code="module.exports = 'alpha'", scripts=HOOK)
    shop.write("package.json", dependencies(alpha="1"))
    shop.write("script.ts", "import alpha from 'alpha'; const text: string = alpha; console.log(text)")
    assert await shop.say(await shop.ready("bun"), "/script/script.ts", language="bun") == (0, "alpha\n", "")
    bun = shutil.which("bun") or ""
    node = shutil.which("node") or ""
    monkeypatch.setenv("PATH", str(Path(bun).parent))  # bun installs where there is no npm
    shop.write("package.json", dependencies(alpha="^1"))
    ready = await shop.ready("bun")

    assert await shop.say(ready, "/script/script.ts", language="bun") == (0, "alpha\n", "")
    assert Path(node).parent == Path(bun).parent or any("bun install" in line for line in shop.reports)
    assert [path.name for path in ready.path.iterdir()] == ["node_modules"]
    assert not list(ready.path.rglob("ran.txt"))


def lock_of(house: Index, integrity: str) -> str:
    entry: dict[str, Any] = {
        "version": "1.0.0",
        "resolved": f"http://127.0.0.1:{house.port}/files/alpha-1.0.0.tgz",
        "integrity": integrity,
    }
    packages = {"": {"dependencies": {"alpha": "^1.0.0"}}, "node_modules/alpha": entry}
    return json.dumps({"name": "x", "lockfileVersion": 3, "requires": True, "packages": packages}, indent=1)
