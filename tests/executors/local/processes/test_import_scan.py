"""What a script imports is read, not run."""

from pathlib import Path

from springtide.executors.local.processes.import_scan import find_imports


def test_installed_packages_of_the_script_and_its_neighbours_are_found(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, torch.nn\nimport sklearn.datasets as d\nfrom model import Net\nimport springtide\n"
        "from package.part import x\nif True:\n    import pandas\ndef f():\n    import wandb\n"
    )
    (tmp_path / "model.py").write_text("import numpy as np\nfrom torch import nn\nimport train\nraise SystemExit\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("from . import part\nimport scipy.special\n")
    assert find_imports(tmp_path / "train.py") == ("sklearn.datasets", "numpy", "scipy.special")


def test_names_are_found_with_their_module(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "from transformers import GPT2Config, Trainer as Stock\nfrom numpy import *\nfrom springtide import init\n"
        "from springtide.integrations import hf\nfrom springtide.integrations.hf import ElasticTrainer\n"
        "import springtide.integrations.lightning\n"
    )
    assert find_imports(tmp_path / "train.py") == (
        "transformers:GPT2Config,Trainer",
        "numpy",
        "springtide.integrations:hf",
        "springtide.integrations.hf:ElasticTrainer",
        "springtide.integrations.lightning",
    )


def test_what_cannot_be_read_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import numpy\ndef")
    assert find_imports(tmp_path / "broken.py") == ()
    assert find_imports(tmp_path / "missing.py") == ()
