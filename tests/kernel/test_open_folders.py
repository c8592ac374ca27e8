"""Folders that are open, as systems with and without POSIX have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tavern_host.storage.confined_fs import confined_folder, open_file, replace_file, stat_file

OPEN = Path("/proc/self/fd")


@pytest.fixture(params=["by descriptor", "by path"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a file, a folder and links, which is opened in one of the two ways."""
    if request.param == "by path":
        monkeypatch.setattr("tavern_host.common.system.IS_POSIX", False)
    made = tmp_path / "root"
    (made / "folder").mkdir(parents=True)
    (made / "file").write_text("x")
    (made / "out").symlink_to(tmp_path)
    (made / "linked").symlink_to(made / "file")
    return made


@pytest.mark.skipif(not OPEN.is_dir(), reason="only Linux says so what a process has open")
def test_what_fails_leaves_nothing_open(root: Path) -> None:
    before = len([*OPEN.iterdir()])
    for steps in (["absent"], ["folder", "absent"], ["file"], ["out"], ["folder", "x" * 300]):
        with pytest.raises(OSError), confined_folder(root, steps):
            pass
    with confined_folder(root, []) as folder:
        for name in ("folder", "linked", "absent", "out"):
            with pytest.raises(OSError):
                open_file(folder, name)
        with pytest.raises(OSError):
            replace_file(folder, "folder", b"", overwrite=True)
        with pytest.raises(FileExistsError):
            replace_file(folder, "file", b"", overwrite=False)
    assert len([*OPEN.iterdir()]) == before
    assert sorted(one.name for one in root.iterdir()) == ["file", "folder", "linked", "out"]


@pytest.mark.parametrize("name", ["C:", "C:file", "file::$DATA", "file.", "file ", "..", "a/b", "a\\b"])
def test_a_name_is_of_one_file_where_systems_have_several_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("tavern_host.common.system.IS_POSIX", False)
    with confined_folder(tmp_path, []) as folder, pytest.raises(OSError):
        stat_file(folder, name)
    with pytest.raises(OSError), confined_folder(tmp_path, [name], make=True):
        pass
    assert not [*tmp_path.iterdir()]
