"""`springtide verify --engine ray`: two examples on two raylets, resized across hosts, and with a host killed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.ray_clusters import Raylets, needs_ray

import springtide

pytestmark = [needs_ray, pytest.mark.slow]
EXAMPLES = Path(springtide.__file__).parent / "examples"
SPRINGTIDE = Path(sys.executable).with_name("springtide")


@pytest.fixture(scope="module")
def raylets() -> Iterator[Raylets]:
    with Raylets((1, 1)) as made:
        yield made


@pytest.mark.parametrize("example", ["cnn", "recommender"])
def test_an_example_has_the_bits_of_stock_ddp_across_hosts(raylets: Raylets, tmp_path: Path, example: str) -> None:
    words = ["verify", str(EXAMPLES / example / "train.py"), "--engine", "ray", "--address", raylets.address]
    words += ["--steps", "8", "--sizes", "2", "--rescale", "2,1,2", "--kill", "1"]
    environment = {**os.environ, "SPRINGTIDE_HOME": str(tmp_path / "home")}
    done = subprocess.run([str(SPRINGTIDE), *words], env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0 and "3 of 3 cases identical" in done.stdout, done.stdout + done.stderr
    assert list((tmp_path / "home").glob("verify-*")) == [], "something was left behind"
