"""Where packages come from: what this machine says to pip, uv and npm, made into settings for the sandbox."""

from __future__ import annotations

from pathlib import Path

from pip._internal.models.index import PyPI

from tavern_scripts.environments.addresses import Reached, without_credentials, without_secrets
from tavern_scripts.environments.node_registries import node_registries
from tavern_scripts.environments.python_indexes import python_indexes


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_without_settings_packages_come_from_the_public_index(home: Path) -> None:
    indexes = python_indexes({"HOME": str(home)})

    assert indexes.variables()["UV_DEFAULT_INDEX"] == PyPI.simple_url
    assert list(indexes.reached().hosts) == [f"{PyPI.netloc}:443", f"{PyPI.file_storage_domain}:443"]
    assert indexes.variables()["UV_NO_CONFIG"] == "1"


def test_pips_settings_are_mapped_for_uv(home: Path) -> None:
    links = home / "wheels"
    links.mkdir()
    write(
        home / ".config/pip/pip.conf",
        f"[global]\nindex-url = https://one.example/simple\nextra-index-url = https://two.example/simple\n"
        f"    https://three.example:8443/simple\nfind-links = {links}\ncert = /certs.pem\n"
        "[install]\ntrusted-host = two.example\n[list]\nindex-url = https://ignored.example\n",
    )
    variables = python_indexes({"HOME": str(home)}).variables()
    indexes = python_indexes({"HOME": str(home), "PIP_INDEX_URL": "https://env.example/simple"})

    assert variables["UV_DEFAULT_INDEX"] == "https://one.example/simple"
    assert variables["UV_INDEX"] == "https://two.example/simple https://three.example:8443/simple"
    assert variables["UV_FIND_LINKS"] == str(links) and variables["UV_INSECURE_HOST"] == "two.example"
    assert indexes.default == "https://env.example/simple" and indexes.certificates == "/certs.pem"
    assert set(indexes.reached().hosts) == {"env.example:443", "two.example:443", "three.example:8443"}
    assert list(indexes.reached().folders) == [str(links)]


def test_uvs_settings_count_before_pips(home: Path) -> None:
    write(home / ".config/pip/pip.conf", "[global]\nindex-url = https://pip.example/simple\n")
    write(
        home / ".config/uv/uv.toml",
        'index-strategy = "unsafe-best-match"\n[[index]]\nname = "a"\nurl = "https://a.example/simple"\n'
        '[[index]]\nurl = "https://b.example/simple"\ndefault = true\n'
        '[[index]]\nname = "c"\nurl = "https://c.example/simple"\nexplicit = true\n',
    )
    variables = python_indexes({"HOME": str(home), "UV_INDEX": "named=https://d.example/simple"}).variables()

    assert variables["UV_DEFAULT_INDEX"] == "https://b.example/simple"
    assert variables["UV_INDEX"] == "https://a.example/simple named=https://d.example/simple"
    assert variables["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert (
        "d.example:443" in python_indexes({"HOME": str(home), "UV_INDEX": "n=https://d.example/s?a=b"}).reached().hosts
    )


def test_a_broken_file_or_none_says_nothing(home: Path) -> None:
    for broken in ("[global\n", "\xff", "[global]\nno value"):
        write(home / ".config/pip/pip.conf", broken)
        write(home / ".config/uv/uv.toml", broken + "=[")
        assert python_indexes({"HOME": str(home)}).default is None, broken
    indexes = python_indexes({"HOME": str(home), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(home)})

    assert not indexes.reached().hosts and indexes.no_index
    assert "UV_DEFAULT_INDEX" not in indexes.variables()


def test_npms_settings_are_read_and_nothing_else_of_its_files(home: Path) -> None:
    write(
        home / ".npmrc",
        "; a comment\nregistry=https://npm.example/repo/\n@mine:registry = https://mine.example\n"
        "//npm.example/repo/:_authToken=${NPM_TOKEN}\ncafile=/certs.pem\nscript-shell=/bin/evil\nprefix=/x\n"
        "ignore-scripts=false\nnode-options=--require /evil.js\n",
    )
    found = node_registries({"HOME": str(home), "NPM_TOKEN": "hunter2", "npm_config_strict_ssl": "true"})

    assert found.file().splitlines() == [
        "registry=https://npm.example/repo/",
        "@mine:registry=https://mine.example",
        "//npm.example/repo/:_authToken=hunter2",
        "strict-ssl=true",
    ]
    assert set(found.reached().hosts) == {"npm.example:443", "mine.example:443"}
    assert "hunter2" in found.reached().secrets and "hunter2" not in str(found.identity())
    assert found.certificates == "/certs.pem"
    set_there = node_registries({"HOME": str(home), "NPM_CONFIG_REGISTRY": "https://env.example/"})
    assert set_there.registries[0] == "https://env.example/"  # the environment counts before the files


def test_of_an_index_in_a_folder_only_that_and_what_it_links_to_is_shown(tmp_path: Path) -> None:
    root = tmp_path / "home" / "pypi"
    for path in ("home/pypi/packages/ab/a.whl", "home/pypi/beside.whl", "far/files/b.whl", "home/x.whl"):
        write(tmp_path / path, "")
    far = tmp_path / "far" / "files" / "b.whl"
    page = f'<a href="../../packages/ab/a.whl#sha256=x">a</a><a href="{far.as_uri()}">b</a><a href="https://x.example/c">c</a>'
    write(root / "simple" / "a" / "index.html", page + '<a href="../../../../../../../../../etc">d</a>')
    reached = Reached()
    reached.add((root / "simple").as_uri())

    assert set(reached.folders) == {str(root / "simple"), str(root / "packages"), str(tmp_path / "far" / "files")}
    assert not reached.hosts


def test_credentials_are_not_shown() -> None:
    assert without_credentials("https://me:pw@x.example:8/simple?a") == "https://x.example:8/simple?a"
    shown = without_secrets("GET https://me:pw@x.example/ with token-123", ["token-123"])
    assert shown == "GET https://********@x.example/ with ********"
    reached = Reached()
    reached.add("https://me:p%40ss@x.example/simple")
    assert {"p@ss", "p%40ss"} <= set(reached.secrets) and list(reached.hosts) == ["x.example:443"]
