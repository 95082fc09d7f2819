"""The hash of a script's code: what lies beside it, by whatever link it was imported, and nothing else."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from springtide.training.state.checkpointing import fingerprint_code, resolve


def put(monkeypatch: pytest.MonkeyPatch, name: str, file: Path) -> None:
    """Have a module of this file imported."""
    module = ModuleType(name)
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A running script with a module beside it, both also reached by links from elsewhere."""
    folder, other = tmp_path / "project", tmp_path / "other"
    for place in (folder / "parts", other):
        place.mkdir(parents=True)
    for file in (folder / "train.py", folder / "parts" / "model.py", other / "library.py"):
        file.write_text(f"# {file.name}\n")
    (tmp_path / "linked").symlink_to(folder)
    (other / "linked.py").symlink_to(folder / "parts" / "model.py")
    put(monkeypatch, "__main__", folder / "train.py")
    return folder


def test_a_path_is_resolved_as_pathlib_does(project: Path) -> None:
    folders: dict[str, str] = {}
    for file in (
        "project/train.py",
        "linked/parts/model.py",
        "other/linked.py",
        "other/../linked/train.py",
        "gone/a.py",
    ):
        path = project.parent / file
        assert resolve(str(path), folders) == resolve(str(path), folders) == str(path.resolve()), file


def test_what_lies_beside_the_script_counts_however_it_was_reached(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = fingerprint_code()
    put(monkeypatch, "library", project.parent / "other" / "library.py")
    assert fingerprint_code() == alone, "a library elsewhere"
    hashes = set()
    for number, file in enumerate(("project/parts/model.py", "linked/parts/model.py", "other/linked.py")):
        put(monkeypatch, "model", project.parent / file)
        hashes.add(fingerprint_code())
        assert len(hashes) == 1 and alone not in hashes, number
    (project / "parts" / "model.py").write_text("# changed\n")
    assert fingerprint_code() not in hashes
