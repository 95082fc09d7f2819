"""The files in `deploy/` are read by the parsers of what they are for; the commands in them are the product's own."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from springtide import __version__
from springtide.cli import join, serve
from springtide.control import server
from springtide.control.server import ServerSettings

DEPLOY = Path(__file__).parents[1] / "deploy"
SCHEMA = os.environ.get("SPRINGTIDE_KUBERAY_CRD", "")
CLUSTER = DEPLOY / "kuberay" / "raycluster.yaml"
SBATCH = DEPLOY / "slurm" / "springtide.sbatch"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
#: Options of sbatch that the script may use, and the form of their values, as its manual says.
SBATCH_OPTIONS = {
    "job-name": r"[\w-]+",
    "nodes": r"\d+(-\d+)?",
    "ntasks-per-node": r"\d+",
    "gpus-per-node": r"(\w+:)?\d+",
    "cpus-per-task": r"\d+",
    "time": r"(\d+-)?\d+(:\d\d){0,2}",
    "signal": r"(\[?[RB]{1,2}\]?:)?(USR1|USR2|TERM|\d+)(@\d+)?",
    "requeue": None,
    "open-mode": r"append|truncate",
}


def list_commands() -> list[list[str]]:
    """Every call of `springtide` in the files: verb and options."""
    containers = yaml.safe_load(CLUSTER.read_text())["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    found = [[*one["command"], *one["args"]] for one in containers if "command" in one]
    texts = [SBATCH, *UNITS, DEPLOY / "skypilot" / "springtide.yaml"]
    for text in texts:
        for line in text.read_text().replace("\\\n", " ").splitlines():
            match = re.search(r"(?:^|[=/\s])springtide (serve|join) ([^&]*)", line)
            if match and not line.lstrip().startswith("#"):
                found.append(["springtide", match[1], *shlex.split(match[2])])
    return found


@pytest.mark.skipif(not SCHEMA, reason="set SPRINGTIDE_KUBERAY_CRD to KubeRay's ray.io_rayclusters.yaml")
def test_the_cluster_is_one_that_kuberay_takes() -> None:
    from jsonschema_rs import validator_for

    published = yaml.safe_load(Path(SCHEMA).read_text())
    (version,) = [one for one in published["spec"]["versions"] if one["name"] == "v1"]
    check = validator_for(forbid_unknown(version["schema"]["openAPIV3Schema"]))
    cluster = yaml.safe_load(CLUSTER.read_text())
    assert [f"{error.instance_path}: {error.message}" for error in check.iter_errors(cluster)] == []
    cluster["spec"]["workerGroupSpecs"][0]["replicsa"] = 3
    assert not check.is_valid(cluster)


def forbid_unknown(schema: Any) -> Any:
    """The same schema, refusing what it does not name: an API server would drop that without a word."""
    if isinstance(schema, list):
        return [forbid_unknown(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: forbid_unknown(value) for key, value in schema.items()}
    open_ended = "additionalProperties" in schema or schema.get("x-kubernetes-preserve-unknown-fields")
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object" and not open_ended:
        known = {"apiVersion", "kind", "metadata"} & schema["properties"].keys()
        strict["additionalProperties"] = "metadata" in known and "spec" not in schema["properties"]
    return strict


def test_the_batch_script_is_bash_and_its_options_are_sbatchs() -> None:
    subprocess.run(["bash", "-n", str(SBATCH)], check=True)
    lines = [line.removeprefix("#SBATCH --") for line in SBATCH.read_text().splitlines() if line.startswith("#SBATCH")]
    told = dict(line.partition("=")[::2] for line in lines)
    for option, value in told.items():
        form = SBATCH_OPTIONS[option]
        assert re.fullmatch(form, value) if form is not None else value == "", option
    assert told["signal"] == "B:USR1@180"  # only with B: does the script itself, which drains, hear of it
    assert re.search(r"^trap drain .*\bUSR1\b", SBATCH.read_text(), re.MULTILINE)


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_units_are_ones_that_systemd_takes(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    program = shutil.which("true")
    assert program is not None
    text = unit.read_text().replace("/opt/springtide/bin/springtide", program).replace("User=springtide\n", "")
    (tmp_path / unit.name).write_text(text)
    ended = subprocess.run(["systemd-analyze", "verify", str(tmp_path / unit.name)], capture_output=True, text=True)
    about = [line for line in ended.stderr.splitlines() if unit.name in line or str(tmp_path) in line]
    assert (ended.returncode, about) == (0, []), ended.stderr


def test_each_host_of_an_allocation_has_its_cores() -> None:
    """Since 22.05 srun gives one core to each task unless it is told."""
    calls = [line for line in SBATCH.read_text().replace("\\\n", " ").splitlines() if re.match(r"\s*srun ", line)]
    assert calls and all('--cpus-per-task="$SLURM_CPUS_PER_TASK"' in call for call in calls)


def test_no_password_is_on_a_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every user of the machine reads command lines; the address of the database comes by the environment."""
    assert not [word for command in list_commands() for word in command if "database" in word.lower()]
    served: list[ServerSettings] = []
    monkeypatch.setattr(server, "serve", lambda settings, *told: served.append(settings))
    monkeypatch.setenv("SPRINGTIDE_DATABASE", "postgresql://ann:secret@db/x")
    assert CliRunner().invoke(make_app(serve.run), []).exit_code == 0
    assert [settings.database for settings in served] == ["postgresql://ann:secret@db/x"]


def test_every_command_has_options_that_exist() -> None:
    commands = list_commands()
    assert len(commands) == 7
    runner = CliRunner()
    for command in commands:
        verb = {"serve": serve, "join": join}[command[1]]
        app = make_app(verb.run)
        known = set(re.findall(r"--[a-z-]+", runner.invoke(app, ["--help"], env={"COLUMNS": "200"}).output))
        assert {word for word in command[2:] if word.startswith("--")} <= known, command


def test_rented_machines_install_the_wheel_that_is_sent_to_them() -> None:
    task = yaml.safe_load((DEPLOY / "skypilot" / "springtide.yaml").read_text())
    wheel = f"springtide-{__version__}-py3-none-any.whl"
    (place,) = (there for there, here in task["file_mounts"].items() if here == f"dist/{wheel}")
    assert place.endswith(wheel) and f"pip install '{place}[ray,train,storage]'" in task["setup"]


def test_no_home_lies_in_a_bucket() -> None:
    """A bucket that is mounted as a folder has no locks, no sockets, and no room for a database."""
    task = yaml.safe_load((DEPLOY / "skypilot" / "springtide.yaml").read_text())
    buckets = [there for there, here in task["file_mounts"].items() if isinstance(here, dict)]
    assert buckets and task["envs"].get("SPRINGTIDE_HOME", "~/.springtide") not in buckets
    assert task["envs"]["STORAGE"].startswith(f"s3://{task['file_mounts'][buckets[0]]['name']}/")


def test_whoever_speaks_with_ray_in_the_head_pod_sees_its_sockets() -> None:
    """The server is a container of its own, and a driver of Ray goes through files of the raylet beside it."""
    pod = yaml.safe_load(CLUSTER.read_text())["spec"]["headGroupSpec"]["template"]["spec"]
    shared = {one["name"] for one in pod["volumes"] if "emptyDir" in one}
    for container in pod["containers"]:
        assert any(one["mountPath"] == "/tmp/ray" and one["name"] in shared for one in container["volumeMounts"])


def test_jobs_leave_a_worker_pod_before_it_goes() -> None:
    """Kubernetes asks a hook first, and then ends the raylet's container with all that is in it."""
    (group,) = yaml.safe_load(CLUSTER.read_text())["spec"]["workerGroupSpecs"]
    pod = group["template"]["spec"]
    _, option, module, notice, seconds = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert (option, notice) == ("-m", "--notice-s") and float(seconds) < pod["terminationGracePeriodSeconds"]
    assert importlib.util.find_spec(module) is not None


def make_app(function: Any) -> Any:
    """A command of one function."""
    import typer

    app = typer.Typer()
    app.command()(function)
    return app
