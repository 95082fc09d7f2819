"""`springtide plan --cloud` and `springtide catalog` as users and scripts run them."""

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.throughput.made_up_points import make_points

import springtide.examples
from springtide import __version__
from springtide.cli.app import main
from springtide.throughput.probing import Profile, ProfiledScript
from springtide.throughput.tables.points import write_points

BASE = ("--cloud", "aws", "--steps", "200000", "--global-batch", "256")


@pytest.fixture(autouse=True)
def no_refreshed_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def points(tmp_path: Path) -> Path:
    path = tmp_path / "points.csv"
    path.write_text(write_points([*make_points("net", "T4"), *make_points("net", "L4", speed=2.2)]), encoding="utf-8")
    return path


def run(*words: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0)


def plan(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    run("plan", *words, "-o", "json")
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_a_plan_has_times_costs_and_a_probability(points: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = plan(capsys, *BASE, "--points", points, "--deadline", "6h", "--spot")
    assert document["schema"] == 1
    assert document["feasible"]
    best = document["plans"][0]
    assert best["probability"] >= 0.9
    assert best["time_s"]["low"] < best["time_s"]["value"] < best["time_s"]["high"]
    assert best["cost_usd"]["value"] <= document["plans"][1]["cost_usd"]["value"]
    assert document["prices"]["old"]
    assert {part["device_type"] for found in document["plans"] for part in found["parts"]} <= {"T4", "L4"}
    assert document["obvious"]


def test_the_table_shows_reasons_and_the_age_of_prices(points: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan", *BASE, "--points", points, "--deadline", "6h") == 0
    shown = capsys.readouterr()
    assert "cheapest that respects every limit" in shown.out
    assert "not the most GPUs" in shown.out
    assert "days old" in shown.err


def test_nothing_fits_ends_with_code_3(points: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan", *BASE, "--points", points, "--deadline", "15m", "-o", "json") == 3
    document = json.loads(capsys.readouterr().out)
    assert not document["feasible"]
    assert document["binding"] == ["deadline"]
    assert document["nearest"]


def test_a_job_file_gives_what_flags_do_not(points: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(
        "name: mine\nrun: python train.py --lr 0.1\nsteps: 200000\nlogical_workers: 8\ndeadline: 12h\nbudget: 90 USD\n",
        encoding="utf-8",
    )
    document = plan(capsys, job, "--cloud", "aws", "--points", points, "--global-batch", "256")
    assert document["job"]["logical_workers"] == 8
    assert document["job"]["level"] == "D1"
    assert document["limits"]["deadline_s"] == pytest.approx(12 * 3600)
    assert document["limits"]["budget_usd"] == 90
    assert all(found["devices"] <= 8 for found in document["plans"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("deadlin: 1m", "unknown key 'deadlin'; did you mean 'deadline'?"),
        ("devices: banana", "devices: 'banana' is neither a number, a range such as 1..8"),
        ("steps: 1.5", "steps is 1.5"),
        ("budget: much", "budget: 'much' is not an amount"),
        ("steps: 7", "key 'steps' is given twice"),
    ],
)
def test_a_job_file_is_read_as_submit_reads_it(
    line: str, message: str, points: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    extra = "" if line.startswith("steps: 1.5") else "steps: 1000\n"
    job.write_text(f"run: python train.py\n{extra}{line}\n", encoding="utf-8")
    assert run("plan", job, "--cloud", "aws", "--points", points, "--global-batch", "256") == 2
    assert message in capsys.readouterr().err


def test_a_command_given_as_a_list_keeps_its_words(points: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("name: mine\nrun: [python, train.py, --note, two words]\nsteps: 1000\n", encoding="utf-8")
    asked = (job, "--cloud", "aws", "--points", points, "--global-batch", "256")
    assert run("plan", *asked, "--export", "skypilot", "--export-file", "sky.yaml", "--from-index") == 0
    task = yaml.safe_load((tmp_path / "sky.yaml").read_text(encoding="utf-8"))
    assert "train.py --note 'two words'" in task["run"]


def test_the_notes_of_a_profile_give_batch_and_workers(
    points: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = '{"worker_batch": 32, "script_logical_workers": 4, "script_steps": 5000}'
    (tmp_path / "points.json").write_text(notes, encoding="utf-8")
    document = plan(capsys, "--cloud", "aws", "--points", points)
    assert (document["job"]["global_batch"], document["job"]["logical_workers"]) == (128, 4)
    assert (document["job"]["level"], document["job"]["steps"]) == ("D1", 5000)
    assert plan(capsys, "--cloud", "aws", "--points", points, "--steps", "900")["job"]["steps"] == 900
    # Twice the workers take half the steps per epoch: how many in all is then not known.
    assert run("plan", "--cloud", "aws", "--points", points, "--logical-workers", "8") == 2
    assert "steps are not known" in capsys.readouterr().err


def test_a_running_job_is_told_to_stay_or_to_move(
    points: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = (*BASE, "--points", points, "--deadline", "8h", "--spot")
    document = plan(capsys, *asked)
    (tmp_path / "plan.json").write_text(json.dumps(document), encoding="utf-8")
    running = (*asked, "--running", tmp_path / "plan.json", "--done", "1000")
    step_s = document["plans"][0]["step_s"]["value"]
    assert plan(capsys, *running, "--observed", str(step_s)) == {
        "schema": 1,
        "move": False,
        "why": "as predicted",
        "plan": None,
    }
    lost = plan(capsys, *running, "--lost")
    assert (lost["move"], lost["why"]) == (True, "machines were lost")
    assert run("plan", *running, "--observed", str(step_s * 9)) == 0
    assert "slower than" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("{}", [], "plan.json: holds no plan"),
        ('{"plans": [{"parts": [{"instance_type": "abacus", "region": "attic"}]}]}', [], "abacus in attic is not in"),
        ("{}", ["--done", "200000"], "the job has ended"),
    ],
)
def test_a_running_plan_that_cannot_be_read_is_refused(
    text: str, words: list[str], message: str, points: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.json").write_text(text, encoding="utf-8")
    assert run("plan", *BASE, "--points", points, "--running", tmp_path / "plan.json", *words) == 2
    assert message in capsys.readouterr().err


def test_the_chosen_plan_becomes_a_skypilot_task(points: Path, tmp_path: Path) -> None:
    words = (
        "--points",
        points,
        "--deadline",
        "6h",
        "--spot",
        "--export",
        "skypilot",
        "--export-file",
        "sky.yaml",
        "--from-index",
    )
    assert run("plan", *BASE, *words) == 0
    task = yaml.safe_load((tmp_path / "sky.yaml").read_text(encoding="utf-8"))
    assert {"name", "num_nodes", "resources", "setup", "run"} <= set(task)


@pytest.mark.parametrize("export", ["skypilot", "probe"])
def test_a_task_installs_the_wheel_that_is_sent_with_it(
    export: str, points: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = tmp_path / f"springtide-{__version__}-py3-none-any.whl"
    words = ("--points", points, "--deadline", "6h", "--type", "T4", "--export", export, "--export-file", "sky.yaml")
    assert run("plan", *BASE, *words, "--wheel", wheel) == 2
    assert "is not a wheel that is here; make one with: make wheel" in capsys.readouterr().err
    wheel.touch()
    assert run("plan", *BASE, *words, "--wheel", wheel) == 0
    (task,) = yaml.safe_load_all((tmp_path / "sky.yaml").read_text(encoding="utf-8"))
    (place,) = (there for there, here in task["file_mounts"].items() if here == str(wheel))
    assert task["setup"] == f"pip install '{place}[train]'"


def test_without_a_wheel_the_newest_of_the_checkout_is_sent_and_without_any_it_is_refused(
    points: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("springtide.cli.plan_cloud.DIST", tmp_path / "dist")
    words = (
        "--points",
        points,
        "--deadline",
        "6h",
        "--type",
        "T4",
        "--export",
        "skypilot",
        "--export-file",
        "sky.yaml",
    )
    assert run("plan", *BASE, *words) == 2
    assert "make one: make wheel" in capsys.readouterr().err and not (tmp_path / "sky.yaml").exists()
    (tmp_path / "dist").mkdir()
    for at_s, name in ((1, "springtide-0.1.0-py3-none-any.whl"), (2, "springtide-0.0.9-py3-none-any.whl")):
        (tmp_path / "dist" / name).touch()
        os.utime(tmp_path / "dist" / name, (at_s, at_s))
    assert run("plan", *BASE, *words) == 0
    task = yaml.safe_load((tmp_path / "sky.yaml").read_text(encoding="utf-8"))
    assert "springtide-0.0.9" in task["setup"]
    assert run("plan", *BASE, *words, "--from-index") == 0
    assert "file_mounts" not in yaml.safe_load((tmp_path / "sky.yaml").read_text(encoding="utf-8"))
    assert run("plan", *BASE, *words, "--from-index", "--wheel", "x.whl") == 2


def test_a_probe_tells_its_price_first(points: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--points", points, "--type", "T4,L4", "--export", "probe", "--export-file", "probe.yaml", "--from-index")
    assert run("plan", *BASE, *words) == 0
    assert "costs at most $" in capsys.readouterr().err
    tasks = list(yaml.safe_load_all((tmp_path / "probe.yaml").read_text(encoding="utf-8")))
    assert len(tasks) == 2


def test_a_probe_is_a_command_that_this_version_understands(
    points: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("name: mine\nrun: python train.py --lr 0.1 --seed 3\nsteps: 1000\n", encoding="utf-8")
    asked = (job, "--cloud", "aws", "--points", points, "--global-batch", "256", "--type", "T4")
    assert run("plan", *asked, "--export", "probe", "--export-file", "probe.yaml", "--from-index") == 0
    seen: list[ProfiledScript] = []

    def measure(subject: ProfiledScript, *options: object) -> Profile:
        seen.append(subject)
        return Profile((), {"noise": 0.0})

    monkeypatch.setattr("springtide.throughput.probing.profile_script", measure)
    (task,) = yaml.safe_load_all((tmp_path / "probe.yaml").read_text(encoding="utf-8"))
    command, _ = task["run"].split(" && ")
    assert run(*shlex.split(command)[1:]) == 0
    assert seen == [ProfiledScript(Path("train.py"), ("--lr", "0.1", "--seed", "3"), "mine", "T4")]


def test_profiles_of_two_machines_are_planned_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind, speed in (("T4", 1.0), ("L4", 2.2)):
        (tmp_path / f"{kind}.csv").write_text(write_points(make_points("net", kind, speed=speed)), encoding="utf-8")
    document = plan(capsys, *BASE, "--profile", tmp_path / "T4.csv", "--profile", tmp_path / "L4.csv")
    assert {part["device_type"] for found in document["plans"] for part in found["parts"]} == {"T4", "L4"}


def test_one_measured_node_is_planned_alone_and_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    single = [point for point in make_points("net", "T4") if point.layout.nodes == 1]
    (tmp_path / "one.csv").write_text(write_points(single), encoding="utf-8")
    asked = (*BASE, "--points", tmp_path / "one.csv")
    document = plan(capsys, *asked)
    assert {part["nodes"] for found in document["plans"] for part in found["parts"]} == {1}
    assert document["remarks"][0].startswith("several nodes of T4 were not planned, because only one was measured")
    guessed = plan(capsys, *asked, "--guess-network", "--deadline", "200h", "--min-throughput", "0.1")
    assert guessed["remarks"] == []


def test_spot_that_is_never_taken_away_needs_no_checkpoints(points: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = plan(capsys, *BASE, "--points", points, "--spot", "--revocation", "0")
    assert {found["checkpoint_every_s"] for found in document["plans"]} == {None}


def test_the_front_is_drawn(points: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = plan(capsys, *BASE, "--points", points, "--pareto", tmp_path / "front.png", "--no-mixes")
    assert (tmp_path / "front.png").read_bytes().startswith(b"\x89PNG")
    times = [found["time_s"]["value"] for found in document["front"]]
    costs = [found["cost_usd"]["value"] for found in document["front"]]
    assert times == sorted(times)
    assert costs == sorted(costs, reverse=True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--region", "mars-1"], "region 'mars-1' is not in the catalog"),
        (["--type", "T9000"], "type 'T9000' is not in the catalog"),
        (["--type", "H100"], "was measured on T4, L4; the catalog rents H100"),
        (["--model", "other"], "model 'other' is not in"),
        (["--deadline", "soon"], "deadline 'soon'"),
        (["--budget", "much"], "budget 'much' is not an amount"),
        (["--determinism", "D9"], "determinism 'D9' is unknown"),
        (["--logical-workers", "512"], "global batch 256 is below the 512 logical workers"),
        (["--export", "dstack"], "export 'dstack' is unknown"),
    ],
)
def test_bad_input_ends_with_code_2_and_says_why(
    words: list[str], message: str, points: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("plan", *BASE, "--points", points, *words) == 2
    assert message in capsys.readouterr().err


def test_a_job_without_points_is_told_how_to_get_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan", *BASE) == 2
    assert "springtide profile" in capsys.readouterr().err


@pytest.mark.slow
def test_a_job_never_measured_is_counted_on_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    job = Path(springtide.examples.__file__).parent / "cnn" / "job.yaml"
    run("plan", job, "--cloud", "aws", "--deadline", "24h", "-o", "json")
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    # 20 epochs of 11 global batches of 4 x 32 digits
    assert (document["job"]["steps"], document["job"]["global_batch"]) == (220, 128)
    assert {found["basis"] for found in document["plans"]} == {"estimate"}
    assert all(found["probability"] is None for found in document["plans"])
    assert "--export probe" in shown.err


def test_catalog_list_and_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("catalog", "list", "--cloud", "aws", "--type", "T4", "-o", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert {machine["device_type"] for machine in document["machines"]} == {"T4"}
    assert document["prices"]["date"] == "2026-08-22"
    assert run("catalog", "show", "p4d.24xlarge") == 0
    assert "A100" in capsys.readouterr().out
