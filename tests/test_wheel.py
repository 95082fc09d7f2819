"""The first five minutes of a stranger: a built wheel in an empty environment and folder, command by command."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who has installed the wheel, in a folder with nothing of ours around."""

    bin: Path
    folder: Path

    def run(self, *words: str, cwd: str = ".") -> "subprocess.CompletedProcess[str]":
        """A command as the guide has it."""
        environment = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.folder), "LANG": "C.UTF-8"}
        return subprocess.run(words, cwd=self.folder / cwd, env=environment, capture_output=True, text=True)

    def list_processes(self) -> list[psutil.Process]:
        """What runs with the visitor's interpreter."""
        found = [one for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"]]
        return [one for one in found if one.info["cmdline"][0].startswith(str(self.bin))]


@pytest.fixture(scope="module")
def visitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    """An environment with the wheel alone; its dependencies are read from ours, so that nothing is downloaded."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--skip-dependency-check",
        "--outdir",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("springtide-*.whl")
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    install = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "install", "--no-deps"]
    subprocess.run([*install, "--no-index", "--quiet", str(wheel)], check=True)
    # a path file in a folder that is itself added by one is not read: our editable install stays out
    own = next((venv / "lib").glob("python*/site-packages"))
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib") + os.linesep)
    empty = folder / "empty"
    empty.mkdir()
    made = Visitor(venv / "bin", empty)
    yield made
    made.run("springtide", "stop")


@pytest.mark.slow
def test_the_guide_can_be_followed_literally(visitor: Visitor) -> None:
    where = visitor.run("python", "-c", "import springtide; print(springtide.__file__)")
    assert where.stdout.startswith(str(visitor.bin.parent)), where
    doctor = visitor.run("springtide", "doctor")
    assert doctor.returncode == 0, doctor
    assert "failed" not in doctor.stdout
    new = visitor.run("springtide", "new", "hello")
    assert new.returncode == 0, new
    submitted = visitor.run("springtide", "submit", "job.yaml", cwd="hello")
    assert submitted.returncode == 0, submitted
    assert "admitted: promised to finish by" in submitted.stdout
    assert "stop it with: springtide stop" in submitted.stderr
    logs = visitor.run("springtide", "logs", "-f", cwd="hello")
    assert logs.returncode == 0, logs
    assert "loss" in logs.stdout + logs.stderr
    assert "succeeded" in logs.stderr
    assert visitor.run("springtide", "why").stdout.startswith("digits-cnn (succeeded")
    assert "in time" in visitor.run("springtide", "ps", "--all").stdout
    assert visitor.list_processes()
    assert visitor.run("springtide", "stop").returncode == 0
    assert visitor.list_processes() == []
    assert "nothing runs" in visitor.run("springtide", "stop").stdout


@pytest.mark.slow
def test_the_wheel_holds_what_a_user_needs_and_no_more(visitor: Visitor) -> None:
    found = visitor.run("python", "-c", "import springtide; print(springtide.__path__[0])").stdout.strip()
    files = {str(path.relative_to(found)) for path in Path(found).rglob("*") if path.suffix != ".pyc"}
    assert "py.typed" in files and "examples/cnn/train.py" in files
    assert not [name for name in files if "experiment" in name or "train_ddp" in name or "train_plain" in name]
    assert list(Path(found).parent.glob("springtide-*.dist-info/licenses/LICENSE"))
    assert visitor.run("springtide", "--help").returncode == 0
    for words in ([], ["--quick", "--out", "figures"]):
        refused = visitor.run("springtide", "figures", *words)
        assert refused.returncode == 2, refused
        assert "clone it and run there: make figures" in refused.stderr
    drawn = ["simulate", "--synthetic", "jobs=5,gap=600", "--cluster", "1x8:a100"]
    points = visitor.folder / "points.csv"
    points.write_text("model,device_type,nodes,devices,local_batch,step_s\nnet,a100,1,1,32,0.1\n")
    for study in (
        [*drawn, "--optimum"],
        [*drawn, "--colocation", "days=1"],
        ["simulate", "--cloud", "aws"],
        ["throughput", "evaluate", str(points)],
    ):
        refused = visitor.run("springtide", *study)
        assert refused.returncode == 2, refused
        assert "clone it and run there: springtide " in refused.stderr
    assert visitor.run("springtide", *drawn).returncode == 0


@pytest.mark.slow
def test_a_refusal_and_its_offer_as_in_the_guide(visitor: Visitor) -> None:
    visitor.run("springtide", "new", "again")
    declined = visitor.run("springtide", "submit", "job.yaml", "--deadline", "2s", cwd="again")
    assert declined.returncode == 3, declined
    assert "springtide accept digits-cnn" in declined.stdout
    accepted = visitor.run("springtide", "accept", "digits-cnn")
    assert accepted.returncode == 0, accepted
    assert visitor.run("springtide", "stop").returncode == 0
    assert visitor.list_processes() == []
