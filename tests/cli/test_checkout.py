"""What needs a checkout finds the one that the user stands in, also where the package was copied by `pip install .`."""

from pathlib import Path

import pytest

from springtide.cli.checkout import CHECKOUT, IS_CHECKOUT, find_checkout

ROOT = Path(__file__).parents[2]


def make_checkout(folder: Path, pyproject: str = '[project]\nname = "springtide"\n') -> Path:
    (folder / "experiments" / "deep").mkdir(parents=True)
    (folder / "experiments" / "__init__.py").touch()
    (folder / "pyproject.toml").write_text(pyproject, encoding="utf-8")
    return folder


def test_the_package_of_a_checkout_finds_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (CHECKOUT, IS_CHECKOUT) == (ROOT, True)
    monkeypatch.chdir(make_checkout(tmp_path))
    assert find_checkout(ROOT) == ROOT


def test_an_installed_copy_finds_the_checkout_it_is_called_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout, installed = make_checkout(tmp_path / "checkout"), tmp_path / "venv" / "lib"
    for here in (checkout, checkout / "experiments" / "deep"):
        monkeypatch.chdir(here)
        assert find_checkout(installed) == checkout
    monkeypatch.chdir(tmp_path)
    assert find_checkout(installed) is None


@pytest.mark.parametrize("pyproject", ['[project]\nname = "other"\n', "[tool.ruff]\n", 'project = "springtide"', "[["])
def test_experiments_of_another_project_are_none_of_ours(
    pyproject: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(make_checkout(tmp_path, pyproject))
    assert find_checkout(tmp_path / "venv" / "lib") is None
