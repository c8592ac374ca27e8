"""Which packages of the host's environment a plugin's process has, and which Python runs it."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from helpers.plugin_files import write

from tavern_host.contracts.errors import Misconfigured, PermissionDenied
from tavern_isolation.environment import environment_of, host_python
from tavern_isolation.installed_packages import required
from tavern_isolation.package_check import check_against
from tavern_scripts.api.environments import PinnedPackage
from tests.isolation.environment_bench import Bench, bench, install, project


@pytest.fixture
async def table(tmp_path: Path) -> AsyncIterator[Bench]:
    """A bench that builds nothing in these tests."""
    async with bench(tmp_path) as made:
        yield made


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages of the host's environment."""
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return tmp_path / "site"


async def test_what_a_folder_requires_comes_with_what_that_requires(table: Bench, site: Path) -> None:
    install(site, "alpha", "1.0", None, "beta[fast]>=1", "never; python_version < '3'", "slow; extra == 'slow'")
    install(site, "beta", "1.0", None, "gamma; extra == 'fast'", "alpha")
    for name in ("gamma", "slow", "never", "omega"):
        install(site, name)
    found = await table.requiring("Alpha>=1", "tavern-host", "tavern-tools")

    assert not found.built and found.folders == ()
    assert (found.interpreter, found.python) == (host_python().program, host_python().version)
    mine = {name: path for name, path in found.packages.items() if path.is_relative_to(site)}
    assert sorted(mine) == [
        *("alpha-1.0.dist-info", "alpha.py", "beta-1.0.dist-info", "beta.py"),
        *("gamma-1.0.dist-info", "gamma.py"),
    ]
    assert mine["alpha.py"] == site / "alpha.py"
    assert {"pydantic", "pydantic_core", "aiohttp", "yaml", "typing_extensions.py"} <= set(found.packages)
    assert not {"tavern_host", "tavern_tools", "pytest", "uv"} & set(found.packages)


async def test_a_folder_that_requires_nothing_has_what_the_host_requires(table: Bench) -> None:
    nothing = await table.of()
    only_the_host = await table.requiring("tavern-host>=0.1")
    assert nothing == only_the_host
    assert "pydantic" in nothing.packages and "pytest" not in nothing.packages


async def test_extras_of_the_host_are_required_too(table: Bench) -> None:
    found = await table.requiring("tavern-host[testing]")
    assert {"pytest", "pytest_asyncio", "pydantic"} <= set(found.packages)
    assert not {"hypothesis", "tavern_host"} & set(found.packages)


async def test_an_installed_plugin_has_its_own_versions_first(table: Bench, site: Path, tmp_path: Path) -> None:
    install(site, "alpha", "1.0")
    own = tmp_path / "own"
    install(own, "alpha", "2.0")
    install(own, "acme", "1.0", {"acme/__init__.py": "", "acme/plugin.yaml": ""}, "alpha", "tavern-host")
    sys.path.append(str(own))
    try:
        found = await environment_of("acme", distribution="acme", builds=table.builds)
    finally:
        sys.path.remove(str(own))
    assert found.packages["alpha.py"] == own / "alpha.py" and found.packages["acme"] == own / "acme"
    with pytest.raises(Misconfigured, match="acme: its distribution acme is not installed any more"):
        await environment_of("acme", distribution="acme", builds=table.builds)


def test_files_of_a_distribution(site: Path) -> None:
    suffix = ".cpython-311-x86_64-linux-gnu.so"
    files = {
        "pack/__init__.py": "",
        "pack/inner/data.json": "",
        "space/alpha/__init__.py": "",
        "space/alpha/deep/__init__.py": "",
        "space/single.py": "",
        "alpha.libs/libx.so": "",
        "one.py": "",
        f"native{suffix}": "",
        "pack-stubs/__init__.pyi": "",
        "alpha.pth": "import evil",
        "README.md": "",
        "../../bin/alpha": "",
    }
    inside = {name: text for name, text in files.items() if not name.startswith("..")}
    info = install(site, "alpha", "1.0", inside)
    write(info / "RECORD", "".join(f"{name},,\n" for name in [*files, f"{info.name}/METADATA"]))
    write(site / "space" / "other" / "__init__.py", "")
    write(site / "__pycache__" / "one.cpython-311.pyc", "")
    pieces = required(["alpha"], sys.path, "it").pieces()

    expected = {"pack", "space/alpha", "space/single.py", "alpha.libs", "one.py", info.name}
    expected |= {"__pycache__/one.cpython-311.pyc"}
    assert {name for name in pieces.packages if not name.endswith(suffix)} == expected
    assert "one.py" in required(["alpha"], sys.path, "it").pieces(metadata=False).packages
    (info / "RECORD").unlink()
    with pytest.raises(Misconfigured, match=r"which files alpha in .* has; reinstall it by `pip install --force"):
        required(["alpha"], sys.path, "it").pieces()


def test_an_editable_installation_is_searched_where_it_is_edited(site: Path, tmp_path: Path) -> None:
    info = install(site, "alpha", "1.0", {"_alpha.pth": f"{tmp_path}\n"})
    write(info / "direct_url.json", json.dumps({"url": tmp_path.as_uri(), "dir_info": {"editable": True}}))
    assert required(["alpha"], sys.path, "it").pieces().folders == (tmp_path,)
    write(site / "_alpha.pth", "import _alpha_finder")
    with pytest.raises(Misconfigured, match="alpha is installed to be edited in a way .*: install it without"):
        required(["alpha"], sys.path, "it").pieces()


def test_what_is_missing_is_named_with_who_requires_it(site: Path) -> None:
    install(site, "alpha", "1.0", None, "beta>=2", "delta")
    install(site, "beta", "1.5")
    (site / "delta-1.0.dist-info").mkdir()  # what a broken installation left
    found = required(["alpha>=1; python_version > '3'", "omega<2"], sys.path, "requirements.txt")
    assert found.missing == (
        "alpha requires beta>=2, and 1.5 is installed",
        "alpha requires delta, and it is not installed",
        "requirements.txt requires omega<2, and it is not installed",
    )
    assert found.constraints == ('alpha>=1; python_version > "3"', "beta>=2")


async def test_the_hash_is_another_one_with_another_dependency(table: Bench, site: Path) -> None:
    install(site, "alpha", "1.0", None, "beta")
    beta = install(site, "beta", "1.0")
    first = await table.requiring("alpha")
    again = await table.requiring("alpha", "tavern-host")
    write(beta / "METADATA", "Metadata-Version: 2.1\nName: beta\nVersion: 1.1\n")
    other = await table.requiring("alpha")
    assert first.hash == again.hash != other.hash
    assert first.hash != (await table.of()).hash


async def test_declarations_that_are_refused_name_the_plugin_and_the_place(table: Bench) -> None:
    refused = [
        (project("alpha @ https://example.org/a.whl"), r"acme-notes: pyproject.toml, line 3 .*: packages come from"),
        ("[project", "acme-notes: pyproject.toml: it is no TOML"),
        (project("alpha >>= 1"), "acme-notes: pyproject.toml, line 3 .* it is no requirement"),
    ]
    for text, message in refused:
        with pytest.raises(Misconfigured, match=message) as error:
            await table.of(text)
        assert error.value.info.plugin == "acme-notes"
    with pytest.raises(Misconfigured, match="acme-notes: requirements.txt, line 1 .*: other files are not read"):
        await table.of(requirements="-r more.txt\n")


async def test_the_hosts_python_is_taken_where_it_fits(table: Bench, site: Path) -> None:
    install(site, "alpha")
    mine = host_python().version
    assert (await table.of(python=mine.rpartition(".")[0])).python == mine
    assert (await table.of(project("alpha", requires_python=">=3.8"), python=f">={mine}")).python == mine
    with pytest.raises(Misconfigured, match="runtime.python in plugin.yaml is 'three', and no version or range"):
        await table.of(python="three")


async def test_packages_with_advisories_are_refused(table: Bench, tmp_path: Path) -> None:
    affected = {"package": {"ecosystem": "PyPI", "name": "Alpha"}}
    ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.2"}]}]
    record = {"id": "OSV-1", "aliases": ["CVE-1"], "affected": [{**affected, "ranges": ranges}]}
    file = tmp_path / "database.json"
    file.write_text(json.dumps(record))
    context, old, new = table.context, PinnedPackage("alpha", "1.1"), PinnedPackage("alpha", "1.2")

    with pytest.raises(Misconfigured, match=r"alpha 1.1 \(OSV-1: require alpha>=1.2\)") as error:
        await check_against(context, "acme-notes", str(file))([new, old])
    assert error.value.info.details["advisories"][0]["place"] == "plugin acme-notes"
    await check_against(context, "acme-notes", str(file))([new])
    await check_against(context, "acme-notes", str(file), ["CVE-1"])([old])
    await check_against(context, "acme-notes", "")([old])
    with pytest.raises(Misconfigured, match="there is no database of advisories"):
        await check_against(context, "acme-notes", str(tmp_path / "nowhere"))([new])


async def test_what_is_declared_must_be_as_it_was_reviewed(table: Bench, site: Path) -> None:
    install(site, "alpha")
    text = project("alpha")
    reviewed = {"pyproject.toml": hashlib.sha256(text.encode()).digest()}
    assert "alpha.py" in (await table.of(text, reviewed=reviewed)).packages
    with pytest.raises(PermissionDenied, match=r"pyproject.toml was changed after acme-notes was reviewed; look at"):
        await table.of(project("alpha", "beta"), reviewed=reviewed)
    with pytest.raises(PermissionDenied, match=r"requirements.txt was changed after"):
        await table.of(text, requirements="alpha", reviewed=reviewed)
    assert (await table.of(reviewed=reviewed)).packages
