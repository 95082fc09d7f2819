"""The example scripts as text and as plain training: few changed lines, honest references, and they run."""

import ast
import difflib
import runpy
import sys
from pathlib import Path

import pytest
import yaml

from springtide.examples import NAMES, folder

FEW_STEPS = {
    "cnn": ["--epochs", "1", "--batch-size", "360"],
    "gpt": ["--epochs", "1", "--windows", "16"],
    "recommender": ["--epochs", "1", "--batch-size", "10000"],
    "resnet": ["--epochs", "1", "--images", "32"],
}


SCRIPTS = Path(__file__).with_name("scripts")


def read_lines(script: Path) -> list[str]:
    return script.read_text().splitlines()


def count_changed(before: list[str], after: list[str]) -> int:
    """Lines added or replaced (or removed, if those are more), blank lines apart."""
    changes = 0
    for tag, low, high, new_low, new_high in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            changes += max(sum(map(bool, before[low:high])), sum(map(bool, after[new_low:new_high])))
    return changes


def strip(lines: list[str]) -> list[str]:
    return [line.strip() for line in lines]


def inner_loop(lines: list[str]) -> list[str]:
    """What a loop's body does, whoever walks it."""
    start = next(number for number, line in enumerate(lines) if line.startswith("    for "))
    body = strip([line for line in lines[start:] if line.startswith("        ")])
    return [line for line in body if not line.startswith(("for ", "run.log("))]


def leave_out_logging(lines: list[str]) -> list[str]:
    """What trains: neither what is said of it, nor where a process finds its device."""
    return [line for line in strip(lines) if not line.startswith(("run.log(", "print(", "device = "))]


@pytest.mark.parametrize("name", NAMES)
def test_the_elastic_script_changes_six_lines_its_logging_and_its_device(name: str) -> None:
    plain, elastic = read_lines(SCRIPTS / name / "train_plain.py"), read_lines(folder(name) / "train.py")
    assert count_changed(leave_out_logging(plain), leave_out_logging(elastic)) <= 6
    assert "device = run.device  # the GPU that this process holds, or the CPU" in elastic


@pytest.mark.parametrize("name", NAMES)
def test_the_body_of_the_loop_is_unchanged(name: str) -> None:
    assert inner_loop(read_lines(folder(name) / "train.py")) == inner_loop(
        read_lines(SCRIPTS / name / "train_plain.py")
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_uses_nothing_of_ours_but_seeding(name: str) -> None:
    text = (SCRIPTS / name / "train_ddp.py").read_text()
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not [node for node in imports if isinstance(node, ast.ImportFrom) and "springtide" in str(node.module)]
    uses = {
        node.attr
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "springtide"
    }
    assert uses <= {"seeded"}


@pytest.mark.parametrize("name", NAMES)
def test_job_files_say_what_the_scripts_do(name: str) -> None:
    job = yaml.safe_load((folder(name) / "job.yaml").read_text())
    assert f"logical_workers={job['logical_workers']}" in (folder(name) / "train.py").read_text()
    assert job["run"].split()[:2] == ["python", "train.py"]


@pytest.mark.parametrize("name", NAMES)
def test_the_plain_script_trains(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_here(SCRIPTS / name / "train_plain.py", folder(name), FEW_STEPS[name], monkeypatch)
    assert "epoch 0  loss " in capsys.readouterr().out


def run_here(script: Path, imports: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a script in this process, which has imported torch already."""
    monkeypatch.setattr(sys, "argv", [str(script), *arguments])
    monkeypatch.syspath_prepend(str(imports))
    monkeypatch.delitem(sys.modules, "model", raising=False)
    runpy.run_path(str(script), run_name="__main__")
    sys.modules.pop("model", None)


def test_the_resnet_needs_several_gradient_buckets() -> None:
    network = runpy.run_path(str(folder("resnet") / "model.py"))["ResNet"]()
    assert sum(parameter.numel() * 4 for parameter in network.parameters()) > 25 << 20
