from pathlib import Path

import pytest

from springtide.control.homes import Home
from springtide.control.platforms import Options
from springtide.control.server import read_config
from springtide.errors import InputError


def write(folder: Path, text: str) -> Home:
    home = Home(folder)
    home.config.write_text(text)
    return home


def test_the_file_sets_what_the_command_line_leaves_open(tmp_path: Path) -> None:
    home = write(tmp_path, "policy: elasticflow\nburst: 7\n")
    assert read_config(home, Options()) == Options(policy="elasticflow", burst=7)


def test_the_command_line_goes_first(tmp_path: Path) -> None:
    home = write(tmp_path, "policy: elasticflow\nclouds: aws\n")
    assert read_config(home, Options(policy="edf")) == Options(policy="edf", clouds="aws")


def test_an_unknown_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="bursts is not known"):
        read_config(write(tmp_path, "bursts: 7\n"), Options())
