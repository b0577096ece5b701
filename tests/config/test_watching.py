"""Noticing that the files of a configuration have changed."""

import os
from pathlib import Path

import pytest

from gateway.config.watching import Watched, look, look_at_all


def write(path: Path, text: str, at: int) -> Path:
    """A file that changed at that second."""
    path.write_text(text)
    os.utime(path, (at, at))
    return path


def config_map(folder: Path, number: int, text: str) -> None:
    """What kubelet does when a ConfigMap changes: a new folder, and the link `..data` replaced in one step."""
    (folder / f"..{number}").mkdir()
    write(folder / f"..{number}" / "gateway.yaml", text, 1)
    (folder / "..new").symlink_to(f"..{number}")
    (folder / "..new").replace(folder / "..data")


def test_a_change_counts_when_the_next_look_finds_no_further_one(tmp_path: Path) -> None:
    file = write(tmp_path / "a", "text", 1)
    watched = Watched(look([file]))
    assert not watched.has_changed(look([file]))
    write(file, "half", 2)
    assert not watched.has_changed(look([file]))
    write(file, "whole", 3)
    assert not watched.has_changed(look([file]))
    assert watched.has_changed(look([file]))
    watched.loaded(look([file]))
    assert not watched.has_changed(look([file]))


@pytest.mark.parametrize("how", ["touched", "longer", "replaced", "gone"])
def test_every_way_of_changing_a_file_is_seen(tmp_path: Path, how: str) -> None:
    file = write(tmp_path / "a", "text", 1)
    watched = Watched(look([file]))
    match how:
        case "touched":
            os.utime(file, (2, 2))
        case "longer":
            write(file, "longer text", 1)
        case "replaced":
            write(tmp_path / "b", "text", 1).replace(file)
        case _:
            file.unlink()
    watched.has_changed(look([file]))
    assert watched.has_changed(look([file]))


def test_a_config_map_that_changes_is_seen_although_its_files_look_alike(tmp_path: Path) -> None:
    config_map(tmp_path, 1, "one")
    file = tmp_path / "gateway.yaml"
    file.symlink_to("..data/gateway.yaml")
    watched = Watched(look([file]))
    config_map(tmp_path, 2, "two")
    watched.has_changed(look([file]))
    assert watched.has_changed(look([file]))


def test_files_that_the_configuration_names_are_watched_whether_they_are_there_or_not(tmp_path: Path) -> None:
    there, missing = write(tmp_path / "there", "s", 1), tmp_path / "missing"
    text = f"a: ${{file:{there}}}\nb: x${{file:{missing}}}y\n# $${{file:/no}} ${{ENV}}\n"
    file = write(tmp_path / "gateway.yaml", text, 1)
    found = look_at_all(file)
    assert set(found) == {file, there, missing}
    assert found[missing] is None
    watched = Watched(found)
    write(missing, "now", 2)
    watched.has_changed(look(watched.files))
    assert watched.has_changed(look(watched.files))


def test_a_configuration_that_is_missing_is_watched(tmp_path: Path) -> None:
    assert look_at_all(tmp_path / "none") == {tmp_path / "none": None}
