"""Environments of Python packages, really installed by uv in the sandbox from an index on this machine."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from pathlib import Path

import pytest

from tavern_scripts.api.scripts import ScriptErrorType
from tavern_scripts.environments.environments import BuildLimits
from tavern_scripts.results.refusal import Refused
from tests.scripts.packagehouse import Index, Workshop, index, wheel

pytestmark = pytest.mark.skipif(importlib.util.find_spec("uv") is None, reason="needs uv: pip install uv")

BACKEND = """
import os, pathlib, shutil
def build_wheel(folder, *_):
    pathlib.Path("/tmp/it-ran").write_text("yes")
    try:
        list(pathlib.Path("/script").iterdir())
        seen = "script"
    except OSError:
        seen = "nothing"
    import urllib.request
    try:
        urllib.request.urlopen("http://example.org/", timeout=20)
        net = "open"
    except Exception as error:
        net = type(error).__name__ + " " + str(error)
    import zipfile
    name = "built-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as z:
        z.writestr("built.py", f"seen = {seen!r}; net = {net!r}; home = {sorted(os.environ)!r}")
        z.writestr("built-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: built\\nVersion: 1.0\\n")
        z.writestr("built-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        z.writestr("built-1.0.dist-info/RECORD", "built.py,,\\nbuilt-1.0.dist-info/METADATA,,\\n")
    return name
"""
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


async def test_requirements_are_installed_once_as_read_only_copies(house: Index, shop: Workshop) -> None:
    house.add_wheel("alpha", code="import beta\nvalue = 'alpha ' + beta.value", requires="beta>=1")
    house.add_wheel("beta", code="value = 'beta'")
    first = await shop.python()
    asked, launches = len(house.asked), len(shop.launches)
    again = await shop.ready()

    assert await shop.say(first, "-c", "import alpha; print(alpha.value)") == (0, "alpha beta\n", "")
    assert first.built and not again.built and again.path == first.path
    assert len(house.asked) == asked and len(shop.launches) == launches + 1
    assert shop.reports[0] == "installing what requirements.txt asks for" and " + alpha==1.0" in shop.reports
    assert {(each.host, each.port, each.allowed) for each in shop.connections} == {("127.0.0.1", house.port, True)}
    assert not shop.left()
    files = [path for path in first.path.rglob("*") if not path.is_dir()]
    assert any(path.suffix == ".pyc" for path in files)
    assert all(path.stat().st_nlink == 1 and not path.is_symlink() for path in files)
    assert all(path.stat().st_mode & 0o222 == 0 for path in [*files, first.path])


async def test_hashes_projects_and_blocks_are_held_to(house: Index, shop: Workshop) -> None:
    digest = house.add_wheel("alpha", code="value = 'a'")
    house.add_wheel("beta", code="value = 'b'")
    of_hash = await shop.python(f"alpha==1.0 --hash=sha256:{digest}")
    with pytest.raises(Refused, match="requirements.txt asks for could not be installed") as refused:
        await shop.python(f"alpha==1.0 --hash=sha256:{'0' * 64}")
    of_block = await shop.ready(code='# /// script\n# dependencies = ["beta"]\n# ///\n')
    (shop.folder / "requirements.txt").unlink()
    shop.write("pyproject.toml", '[project]\nrequires-python = ">=4"\ndependencies = ["alpha"]\n')
    with pytest.raises(Refused, match=r"pyproject.toml: it requires Python >=4; scripts run by Python 3\."):
        await shop.ready()

    assert "ash" in (refused.value.error.details or "")
    assert (await shop.say(of_hash, "-c", "import alpha; print(alpha.value)"))[1] == "a\n"
    assert (await shop.say(of_block, "-c", "import beta; print(beta.value)"))[1] == "b\n"


async def test_a_lock_decides_the_versions(house: Index, shop: Workshop) -> None:
    old = house.add_wheel("alpha", "1.0", code="value = 'old'")
    house.add_wheel("alpha", "2.0", code="value = 'new'")
    shop.write("pyproject.toml", '[project]\nname = "mine"\nrequires-python = ">=3.9"\ndependencies = ["alpha"]\n')
    own = '[[package]]\nname = "mine"\nsource = { virtual = "." }\ndependencies = [{ name = "alpha" }]\n'
    url = f"{house.simple.removesuffix('simple')}files/alpha-1.0-py3-none-any.whl"
    shop.write(
        "uv.lock",
        f'version = 1\nrequires-python = ">=3.9"\n[[package]]\nname = "alpha"\nversion = "1.0"\n'
        f'source = {{ registry = "{house.simple}" }}\nwheels = [{{ url = "{url}", hash = "sha256:{old}" }}]\n{own}',
    )
    ready = await shop.ready()
    assert (await shop.say(ready, "-c", "import alpha; print(alpha.value)"))[1] == "old\n"


async def test_a_package_is_built_only_with_leave(tmp_path: Path, house: Index, shop: Workshop) -> None:
    house.add_sdist("built", {"pyproject.toml": PROJECT, "backend.py": BACKEND})
    with pytest.raises(Refused, match="need the operator's extensions.tavern-scripts.buildScripts") as refused:
        await shop.python("built")
    allowed = Workshop(tmp_path, house, build_scripts=True)
    ready = await allowed.ready()
    status, out, errors = await allowed.say(ready, "-c", "import built; print(built.seen, '|', built.net)")

    assert refused.value.error.type is ScriptErrorType.DEPENDENCY
    assert status == 0, errors
    assert out.startswith("nothing | HTTPError HTTP Error 403")
    assert ("example.org", False) in {(each.host, each.allowed) for each in allowed.connections}
    assert not shop.left()


async def test_an_index_cannot_send_the_installer_elsewhere(
    tmp_path: Path, house: Index, shop: Workshop, elsewhere: Index
) -> None:
    house.add_wheel("alpha")
    elsewhere.files = house.files
    house.moved_to = f"http://127.0.0.1:{elsewhere.port}"
    with pytest.raises(Refused):
        await shop.python()
    assert elsewhere.asked == []
    address = f"http://127.0.0.1:{elsewhere.port}/files/alpha-1.0-py3-none-any.whl"
    house.add_wheel("gamma", requires=f"alpha @ {address}")
    with pytest.raises(Refused):
        await shop.python("gamma")
    assert elsewhere.asked == []
    shop.write("requirements.txt", "alpha\n")
    told = Workshop(tmp_path, house, more_hosts=[f"127.0.0.1:{elsewhere.port}"])
    assert (await told.ready()).built

    assert any(each.port == elsewhere.port and not each.allowed for each in shop.connections)


async def test_packages_in_local_folders_need_no_network(tmp_path: Path, house: Index) -> None:
    links, root = tmp_path / "links", tmp_path / "pypi"
    for folder in (links, root / "files", root / "simple" / "beta"):
        folder.mkdir(parents=True)
    (links / "alpha-1.0-py3-none-any.whl").write_bytes(wheel("alpha", "1.0", code="value = 'a'", requires="beta"))
    (root / "files" / "beta-1.0-py3-none-any.whl").write_bytes(wheel("beta", "1.0", code="value = 'b'"))
    page = '<a href="../../files/beta-1.0-py3-none-any.whl">beta-1.0-py3-none-any.whl</a>'
    (root / "simple" / "beta" / "index.html").write_text(page)
    (tmp_path / "secret").write_text("x")
    machine = {"HOME": str(tmp_path), "PIP_INDEX_URL": (root / "simple").as_uri(), "PIP_FIND_LINKS": str(links)}
    shop = Workshop(tmp_path, house, machine=machine)
    ready = await shop.python()

    assert (await shop.say(ready, "-c", "import alpha, beta; print(alpha.value, beta.value)"))[1] == "a b\n"
    assert house.asked == [] and shop.connections == []
    assert shop.launches[0].proxy is None
    sources = [mount.source for mount in shop.launches[0].mounts]
    assert str(root / "files") in sources and str(tmp_path) not in sources


async def test_many_who_want_the_same_build_it_once(tmp_path: Path, house: Index) -> None:
    house.add_wheel("alpha")
    shops = [Workshop(tmp_path, house) for _ in range(3)]
    shops[0].write("requirements.txt", "alpha\n")
    task = asyncio.create_task(shops[0].ready())
    async with asyncio.timeout(60):
        while not any("Using CPython" in line for line in shops[0].reports):
            await asyncio.sleep(0.005)
    task.cancel()  # nothing is left of a build that is cancelled
    with pytest.raises(asyncio.CancelledError):
        await task
    assert shops[0].left() == []
    ready = await asyncio.gather(*(shop.ready() for shop in shops for _ in range(2)))

    assert [each.built for each in ready].count(True) == 1
    assert len({each.path for each in ready}) == 1
    assert sum(len(shop.launches) for shop in shops) == 2
    assert any("waiting for another build of it" in shop.reports for shop in shops)


async def test_another_manifest_or_index_is_another_environment(tmp_path: Path, house: Index, shop: Workshop) -> None:
    house.add_wheel("alpha")
    shop.write("requirements.txt", "alpha\n")
    paths = {(await shop.ready()).path}
    shop.write("requirements.txt", "# only a comment more\nalpha\n")
    paths.add((await shop.ready()).path)
    assert len(paths) == 1
    shop.write("requirements.txt", "alpha>=1\n")
    paths.add((await shop.ready()).path)
    paths.add((await Workshop(tmp_path, house, build_scripts=True).ready()).path)
    machine = {"HOME": str(tmp_path), "UV_DEFAULT_INDEX": house.simple + "/"}
    paths.add((await Workshop(tmp_path, house, machine=machine).ready()).path)
    assert len(paths) == 4


async def test_credentials_of_an_index_are_not_shown(tmp_path: Path, house: Index) -> None:
    house.add_wheel("alpha")
    house.credentials = "Basic bWU6aHVudGVyMg=="
    address = f"http://me:hunter2@127.0.0.1:{house.port}/simple"
    shop = Workshop(tmp_path, house, machine={"HOME": str(tmp_path), "UV_DEFAULT_INDEX": address})
    ready = await shop.python()
    with pytest.raises(Refused) as refused:
        await shop.python("unknown-package")

    assert ready.built
    shown = json.dumps([shop.reports, refused.value.error.model_dump(mode="json"), str(shop.connections)])
    assert "hunter2" not in shown
    assert "hunter2" not in (ready.path.parent / "record.json").read_text()


async def test_what_cannot_be_installed_is_a_dependency_error(tmp_path: Path, house: Index, shop: Workshop) -> None:
    house.add_wheel("alpha", code="#" * (2 << 20))
    with pytest.raises(Refused, match="no-such-package") as missing:
        await shop.python("no-such-package")
    shop.write("requirements.txt", "alpha\n")
    with pytest.raises(Refused, match="requirements.txt asks for") as large:
        await Workshop(tmp_path, house, limits=BuildLimits(size=1 << 20)).ready()
    with pytest.raises(Refused, match=r"was not installed within 0.01 s"):
        await Workshop(tmp_path, house, limits=BuildLimits(wall=0.01)).ready()

    assert {missing.value.error.type, large.value.error.type} == {ScriptErrorType.DEPENDENCY}
    assert not shop.left()


async def test_a_later_index_counts_where_the_operator_says(tmp_path: Path) -> None:
    async with index() as first, index() as later:
        first.add_wheel("alpha", "1.0")
        later.add_wheel("alpha", "2.0", code="value = 2")
        machine = {"HOME": str(tmp_path), "UV_INDEX": first.simple, "UV_DEFAULT_INDEX": later.simple}
        shop = Workshop(tmp_path, first, machine=machine)
        shop.write("requirements.txt", "alpha==2.0\n")
        with pytest.raises(Refused, match=r"only with UV_INDEX_STRATEGY=unsafe-best-match") as refused:
            await shop.ready()
        willing = Workshop(tmp_path, first, machine={**machine, "UV_INDEX_STRATEGY": "unsafe-best-match"})

        assert "--index-strategy" not in refused.value.error.message, "nobody can give that option"
        assert await willing.say(await willing.ready(), "-c", "import alpha; print(alpha.value)") == (0, "2\n", "")
