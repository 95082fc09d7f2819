from pathlib import Path

import pytest

from springtide.control.scheduling.context import ServerOptions
from springtide.control.server import read_config
from springtide.control.storage.state_dir import StateDir
from springtide.errors import InputError


def write(folder: Path, text: str) -> StateDir:
    home = StateDir(folder)
    home.config.write_text(text)
    return home


def test_the_file_sets_what_the_command_line_leaves_open(tmp_path: Path) -> None:
    home = write(tmp_path, "policy: elasticflow\nburst: 7\n")
    assert read_config(home, ServerOptions()) == ServerOptions(policy="elasticflow", burst=7)


def test_the_command_line_goes_first(tmp_path: Path) -> None:
    home = write(tmp_path, "policy: elasticflow\nclouds: aws\n")
    assert read_config(home, ServerOptions(policy="edf")) == ServerOptions(policy="edf", clouds="aws")


def test_an_unknown_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="bursts is not known"):
        read_config(write(tmp_path, "bursts: 7\n"), ServerOptions())
