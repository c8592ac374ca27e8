"""What the user that programs of root run as may change: the folders that they were given, and nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tavern_scripts.sandbox.layout import BadLaunch
from tavern_scripts.sandbox.writers import let_write, writer_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="programs of an ordinary user run as that user")

USER = writer_of(["/somewhere"])
OWNER = 12345


def changes(path: Path, *, user: int = USER) -> bool:
    """Return whether a user can add to a file, or make one in a folder."""
    asked = path / f"made-{user}" if path.is_dir() else path
    command = ["/bin/sh", "-c", "echo x >> $0 2>/dev/null", str(asked)]
    return subprocess.run(command, check=False, user=user, group=user, extra_groups=[]).returncode == 0


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for folder in (tmp_path, *tmp_path.parents):
        if folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o055)
    top = tmp_path / "given"
    (top / "deep" / "er").mkdir(parents=True)
    for file in (top / "a", top / "deep" / "er" / "b", tmp_path / "secret", tmp_path / "linked"):
        file.write_text("")
        file.chmod(0o600)
    (tmp_path / "elsewhere").mkdir()
    (top / "link").symlink_to(tmp_path / "elsewhere")
    (top / "deep" / "file").symlink_to(tmp_path / "secret")
    os.link(tmp_path / "linked", top / "hard")
    os.chown(top, OWNER, OWNER)
    return top


def test_all_of_a_folder_can_be_changed_and_nothing_that_is_linked(place: Path) -> None:
    inside = (place, place / "a", place / "deep" / "er", place / "deep" / "er" / "b")
    outside = (place.parent, place.parent / "elsewhere", place.parent / "secret", place / "hard")
    before = {path: path.stat() for path in inside}
    assert not any(changes(path) for path in inside)
    let_write(str(place), USER)
    assert [path for path in inside if not changes(path)] == []
    assert [path for path in outside if changes(path)] == []
    assert not changes(place, user=USER + 1)
    for path, was in before.items():
        assert (path.stat().st_uid, path.stat().st_mode & 0o707) == (was.st_uid, was.st_mode & 0o707), path


def test_what_is_made_later_is_for_the_program_and_for_the_owner(place: Path) -> None:
    let_write(str(place), USER)
    (place / "deep" / "new").mkdir()
    (place / "deep" / "new" / "file").write_text("")
    assert changes(place / "deep" / "new" / "file")
    assert changes(place)
    assert changes(place / f"made-{USER}", user=OWNER)


def test_a_second_program_gets_its_own_entry_and_the_first_keeps_its_own(place: Path) -> None:
    for user in (USER, USER + 1, USER):
        let_write(str(place), user)
    assert changes(place / "a") and changes(place / "a", user=USER + 1)
    assert not changes(place / "a", user=USER + 2)
    let_write(str(place / "deep" / "er" / "b"), USER + 2)
    assert changes(place / "deep" / "er" / "b", user=USER + 2)
    assert not changes(place / "deep" / "er", user=USER + 2)


def test_what_others_may_do_is_no_more_than_before(place: Path) -> None:
    let_write(str(place / "a"), USER + 1)
    (place / "a").chmod(0o600)  # which takes from all in the list what they have
    (place / "raised").write_text("")
    (place / "raised").chmod(0o4755)
    assert not changes(place / "a", user=USER + 1)
    let_write(str(place), USER)
    assert changes(place / "a")
    assert not changes(place / "a", user=USER + 1)
    assert not changes(place / "raised")


def test_folders_that_are_too_deep_are_refused(place: Path) -> None:
    (place / "deep" / "/".join("d" * 250)).mkdir(parents=True)
    with pytest.raises(BadLaunch, match="more than 200 folders inside of each other"):
        let_write(str(place), USER)
    assert not changes(place)
