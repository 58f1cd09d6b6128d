"""A file that was replaced, rewritten or linked elsewhere has changed; one that was left alone has not."""

from __future__ import annotations

import os

import pytest

from modelmeter_server.drivers.file_watch import FileWatch

OLD = 1_000_000_000


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file"
    path.write_text("one")
    os.utime(path, (OLD, OLD))
    return path


def test_an_old_file_changes_once(path):
    watch = FileWatch([path])
    assert watch.changed()
    assert not watch.changed()


def test_a_young_file_may_change_within_its_time_stamp(path):
    watch = FileWatch([path])
    watch.changed()
    path.write_text("two")
    assert watch.changed()
    assert watch.changed()
    os.utime(path, (OLD + 1, OLD + 1))
    assert watch.changed()
    assert not watch.changed()


@pytest.mark.parametrize("how", ["grown", "replaced", "touched", "gone", "back"])
def test_every_way_to_change_a_file_is_seen(path, tmp_path, how):
    watch = FileWatch([path, tmp_path / "missing"])
    watch.changed()
    if how == "grown":
        path.write_text("longer")
        os.utime(path, (OLD, OLD))
    elif how == "replaced":
        (tmp_path / "next").write_text("two")
        os.utime(tmp_path / "next", (OLD, OLD))
        (tmp_path / "next").replace(path)
    elif how == "touched":
        os.utime(path, (OLD + 1, OLD))
        os.utime(path, (OLD, OLD + 1))
    elif how == "gone":
        path.unlink()
    else:
        (tmp_path / "missing").write_text("x")
        os.utime(tmp_path / "missing", (OLD, OLD))
    assert watch.changed()
    assert not watch.changed()


def test_what_could_not_be_used_is_read_again(path):
    watch = FileWatch([path])
    watch.changed()
    watch.forget()
    assert watch.changed()
