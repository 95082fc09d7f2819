"""The guide `elastic-in-a-few-lines.md`, followed literally."""

import json
import re
import runpy
from pathlib import Path

import pytest

from springtide.cli.app import main

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "elastic-in-a-few-lines.md"


def read_scripts() -> list[str]:
    return re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def test_the_first_script_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(read_scripts()[0])
    runpy.run_path(str(script), run_name="__main__")
    assert "epoch 4 loss" in capsys.readouterr().out


def test_the_second_script_is_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(read_scripts()[1])
    words = ["verify", str(script), "--steps", "16", "--sizes", "2,1", "--rescale", "4,3", "--kill", "0", "-o", "json"]
    with pytest.raises(SystemExit) as end:
        main(words)
    assert not end.value.code
    assert json.loads(capsys.readouterr().out)["identical"] is True


def test_six_lines_and_the_logging_change() -> None:
    plain, elastic = ([line.strip() for line in text.splitlines()] for text in read_scripts())
    assert len([line for line in elastic if line and line not in plain]) == 7
