from pathlib import Path

import pytest

from springtide.control.code_versions import hash_used, name_code
from springtide.core.job_file import check_job

FILES = {
    "train.py": "import model\nfrom data import loaders\nCONFIG = 'conf/base.yaml'\n",
    "model.py": "from layers.attention import Attention\n",
    "layers/__init__.py": "",
    "layers/attention.py": "class Attention: pass\n",
    "data/__init__.py": "",
    "data/loaders.py": "import importlib\nextra = importlib.import_module('plugins.extra')\n",
    "plugins/extra.py": "x = 1\n",
    "conf/base.yaml": "batch: 32\n",
    "args.json": "{}",
    "notes.txt": "buy milk",
    "old/unused.py": "y = 2\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def name(folder: Path, **keys: object) -> str:
    hash_used.cache_clear()
    job = check_job({"run": "python train.py --args=args.json", **keys}, "test")
    return name_code(job, "ann", folder)


@pytest.mark.parametrize("file", ["notes.txt", "old/unused.py", "plot.png", "results/run-1.log"])
def test_a_stray_file_does_not_make_code_unknown(folder: Path, file: str) -> None:
    before = name(folder)
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text("changed")
    assert name(folder) == before


@pytest.mark.parametrize(
    "file",
    [
        "train.py",
        "model.py",
        "layers/attention.py",
        "data/loaders.py",
        "plugins/extra.py",
        "conf/base.yaml",
        "args.json",
    ],
)
def test_what_the_script_imports_or_names_does(folder: Path, file: str) -> None:
    before = name(folder)
    (folder / file).write_text((folder / file).read_text() + "\n# changed\n")
    assert name(folder) != before


def test_a_version_is_believed_whatever_changes_and_is_its_owners_own(folder: Path) -> None:
    before = name(folder, version="1")
    (folder / "train.py").write_text("print(1)\n")
    assert name(folder, version="1") == before != name(folder, version="2")
    job = check_job({"run": "python train.py", "version": "1"}, "test")
    assert name_code(job, "ann", folder) != name_code(job, "bob", folder)


def test_a_command_without_a_script_of_the_folder_depends_on_all_of_it(folder: Path) -> None:
    before = name(folder, run=["bash", "-c", "make"])
    (folder / "notes.txt").write_text("changed")
    assert name(folder, run=["bash", "-c", "make"]) != before


@pytest.mark.parametrize("script", [f"{'e' * 300}.py", f"{'d/' * 3000}x.py", __file__, "/", "a\0b.py"])
def test_a_script_that_is_no_file_of_the_folder_is_a_command_like_others(folder: Path, script: str) -> None:
    hash_used.cache_clear()
    assert hash_used(folder, script, (script,)) == hash_used(folder, "torchrun", ("torchrun",))
