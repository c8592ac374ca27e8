"""What a program writes to a place that it may write to reaches the folder of the host: regular files, after a clean
end, and nowhere else."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.scripts.sandboxes import MB, Came, bubblewrap, limits, read, run, staged


async def write(folder: Path, code: str, *, filled: bool = False, **others: object) -> Came:
    """Run code in which `/out` is a place that stands for a folder."""
    mounts = [staged("/out", folder, filled=filled)]
    return await run(bubblewrap(), f"import os\nos.chdir('/out')\n{code}", mounts=mounts, **others)


async def test_files_and_folders_are_copied_out(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = "os.makedirs('a/b')\nopen('a/b/c', 'w').write('deep')\nopen('top', 'w').write('x')"
    odd = "\nfor name in (b'a\\nb', b'\\xff\\xfe', '✓ x'.encode(), b'-rf'): open(name, 'w')"

    came = await write(out, code + odd)
    await write(tmp_path / "empty", "pass")

    assert came.said == ""
    names = {os.fsencode(path.relative_to(out)) for path in out.rglob("*")}
    assert names == {b"a", b"a/b", b"a/b/c", b"top", b"a\nb", b"\xff\xfe", "✓ x".encode(), b"-rf"}
    assert (out / "a" / "b" / "c").read_text() == "deep"
    assert (out / "top").stat().st_mode & 0o7777 == 0o644
    assert (out / "top").stat().st_uid == tmp_path.stat().st_uid
    assert [path.name for path in tmp_path.iterdir()] == ["out"]  # a folder is made only for what is in it


async def test_nothing_is_copied_out_after_an_end_that_was_not_clean(tmp_path: Path) -> None:
    for end in ("raise SystemExit(1)", "os.kill(os.getpid(), 9)"):
        came = await write(tmp_path, f"open('x', 'w').write('x')\nprint('wrote', flush=True)\n{end}")

        assert came.stdout == b"wrote\n"
        assert list(tmp_path.iterdir()) == []


async def test_only_regular_files_of_one_name_are_copied_out(tmp_path: Path) -> None:
    code = """
import socket
for name in ('good', 'closed', 'one'):
    open(name, 'w').write('x')
os.chmod('closed', 0)
os.link('one', 'two')
os.symlink('/etc/passwd', 'link')
os.symlink('..', 'folder')
os.mkfifo('pipe')
socket.socket(socket.AF_UNIX).bind('socket')
"""
    came = await write(tmp_path, code)

    assert {path.name for path in tmp_path.iterdir()} - {"closed"} == {"good"}  # an ordinary user cannot read that one
    for name in ("link", "folder", "pipe", "socket"):
        assert re.search(f"'{name}'.*neither a file nor a folder", came.said), came.said
    assert "the file has several names" in came.said


async def test_a_link_that_is_there_is_replaced_and_not_followed(tmp_path: Path) -> None:
    folder, victim = tmp_path / "folder", tmp_path / "victim"
    folder.mkdir()
    victim.write_text("mine")
    (folder / "link").symlink_to(victim)
    (folder / "hard").hardlink_to(victim)
    (tmp_path / "inside").mkdir()
    (folder / "sub").symlink_to(tmp_path / "inside")
    code = "for name in ('link', 'hard', 'sub/x'): open(name, 'w').write('x')"

    came = await write(folder, f"os.mkdir('sub')\n{code}")

    assert victim.read_text() == "mine"
    assert (folder / "link").read_text() == (folder / "hard").read_text() == "x"
    assert not (folder / "link").is_symlink()
    assert [*(tmp_path / "inside").iterdir()] == [] and "'sub'" in came.said


async def test_a_folder_of_the_host_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "victim")

    came = await write(tmp_path / "link", "open('x', 'w').write('x')\nprint('wrote')")

    assert came.ended.reason == "broken"
    assert f"files cannot be copied to {tmp_path / 'link'}" in came.said
    assert list((tmp_path / "victim").iterdir()) == []


async def test_what_is_too_much_is_left_out_and_said(tmp_path: Path) -> None:
    many, deep, holes = (tmp_path / name for name in ("many", "deep", "holes"))
    many.mkdir()
    (many / "z").write_text("there before")

    more = "for number in range(10100): open(str(number), 'w')"
    came = await write(many, more, filled=True, limits=limits(scratch=64 * MB))
    assert "more than 10000 files and folders" in came.said
    assert len(list(many.iterdir())) == 10_001  # what was not come to is not taken for gone
    came = await write(deep, "for _ in range(100): os.mkdir('d'); os.chdir('d')")
    assert "folders deep" in came.said
    assert len(list(deep.rglob("*"))) == 64
    came = await write(holes, "for name in 'abcdef': open(name, 'w').truncate(2 * 2**20)")
    assert "there is more than fits" in came.said
    assert sum(path.stat().st_size for path in holes.iterdir()) <= 4 * MB


async def test_a_place_can_be_filled_and_what_did_not_change_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("old")
    (tmp_path / "changed").write_text("old")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "deep").write_text("old")
    before = (tmp_path / "kept").stat().st_ino

    code = """
import os
print(sorted(os.listdir('/out')), open('/out/sub/deep').read())
open('/out/changed', 'w').write('new')
"""

    came = await run(bubblewrap(), code, mounts=[staged("/out", tmp_path, filled=True)])

    assert came.stdout.decode() == "['changed', 'kept', 'sub'] old\n"
    assert (tmp_path / "changed").read_text() == "new"
    assert (tmp_path / "kept").stat().st_ino == before


async def test_a_place_that_holds_too_much_to_be_filled_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(5 * MB))

    came = await run(bubblewrap(), "print(1)", mounts=[staged("/out", tmp_path, filled=True)])

    assert came.ended.reason == "broken"
    assert "holds more than the" in came.said
    assert came.stdout == b""


async def test_a_place_can_be_in_a_folder_that_is_read_only(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("x")
    tmp_path.chmod(0o755)
    code = """
open('/desk/.cache/x', 'w').write('x')
try:
    open('/desk/y', 'w')
except OSError as error:
    print(error.errno)
"""
    mounts = [read("/desk", tmp_path), staged("/desk/.cache", tmp_path / ".cache")]

    came = await run(bubblewrap(), code, mounts=mounts)

    assert came.stdout == b"30\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".cache", "script.py"]
    assert (tmp_path / ".cache" / "x").read_text() == "x"


async def test_a_link_in_a_folder_that_is_read_leads_no_place_out_of_the_sandbox(tmp_path: Path) -> None:
    (tmp_path / "read").mkdir()
    (tmp_path / "victim").mkdir()
    (tmp_path / "read" / "link").symlink_to(tmp_path)
    (tmp_path / "read").chmod(0o755)
    mounts = [read("/desk", tmp_path / "read"), staged("/desk/link/victim", tmp_path / "out")]

    came = await run(bubblewrap(), "open('/desk/link/victim/x', 'w').write('x')", mounts=mounts)

    assert came.ended.exit_code != 0 or came.ended.reason == "broken"
    assert list((tmp_path / "victim").iterdir()) == []


async def test_what_only_root_may_read_is_not_given_to_a_script_of_root(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("the program is this user itself")
    tmp_path.chmod(0o700)

    came = await run(bubblewrap(), "print(1)", mounts=[read("/desk", tmp_path)])

    assert came.said == f"{tmp_path} is closed to the user that scripts of root run as: open it with chmod o+rX"
