"""Files that appear as a whole or not at all."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

import pytest

from hedgerow.files import replacing, write_text


def test_a_file_appears_when_all_of_it_is_written(tmp_path):
    path = tmp_path / "new"
    with replacing(path) as file:
        file.write(b"half")
        file.flush()
        assert not path.exists()
        file.write(b", and the rest")
    assert path.read_bytes() == b"half, and the rest"
    assert [entry.name for entry in tmp_path.iterdir()] == ["new"]


def test_what_was_there_stays_if_writing_fails(tmp_path):
    path = tmp_path / "old"
    path.write_text("old")
    with pytest.raises(RuntimeError), replacing(path) as file:  # noqa: PT012 - the first line must not raise
        file.write(b"new")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["old"]


def test_a_replaced_file_keeps_its_mode_and_a_link_its_place(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    write_text(link, "new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_device_is_written_to_and_never_replaced():
    with pytest.raises(OSError, match="/dev/full") as raised:
        write_text("/dev/full", "text")
    assert raised.value.errno == errno.ENOSPC
    assert Path("/dev/full").is_char_device()


def test_errors_name_the_file_that_they_are_about(tmp_path):
    with pytest.raises(IsADirectoryError) as raised:
        write_text(tmp_path, "text")
    assert raised.value.filename == str(tmp_path)
    with pytest.raises(FileNotFoundError) as raised:
        write_text(tmp_path / "no folder" / "file", "text")
    assert raised.value.filename == str(tmp_path / "no folder")
    with pytest.raises(FileNotFoundError) as raised, replacing(tmp_path / "out"):
        (tmp_path / "in").read_text()
    assert raised.value.filename == str(tmp_path / "in")
    broken = OSError(errno.EIO, "the other file's disk is broken")
    with pytest.raises(OSError, match="broken") as raised, replacing(tmp_path / "out"):
        raise broken
    assert raised.value is broken
    assert not list(tmp_path.iterdir())
