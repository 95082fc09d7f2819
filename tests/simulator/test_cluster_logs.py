"""Workloads in the forms that others publish, from tiny files of those forms made by hand."""

import json
from math import inf
from pathlib import Path

import pytest

from springtide.core.curves import Curve
from springtide.core.devices import parse_cluster
from springtide.errors import TraceError
from springtide.simulator.front import simulate
from springtide.simulator.scenarios import Scenario, load_scenario
from springtide.simulator.traces import Trace, read_trace
from springtide.throughput.overheads import parse_overhead
from springtide.throughput.tables.profiles import Profiles

HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
HELIOS_ROWS = (
    "7,ua,v1,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:30,2020-06-09 18:45:39,249,3",
    "6,ub,v1,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-09 18:51:01,600,0",
)
HELIOS_CPU = "8,ub,v1,0,8,1,COMPLETED,2020-06-09 18:42:01,2020-06-09 18:42:01,2020-06-09 18:43:01,60,0"
CHRONUS = (
    "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,expect_value_list,"
    "best_effort,job_type"
)
SIA = "name,time,application,num_replicas,batch_size"
PHILLY = [
    {
        "status": "Pass",
        "vc": "v1",
        "jobid": "application_1_0002",
        "user": "ua",
        "submitted_time": "2017-10-09 07:02:00",
        "attempts": [
            {"start_time": "2017-10-09 07:03:00", "end_time": "2017-10-09 07:04:00",
             "detail": [{"ip": "m1", "gpus": ["gpu0"]}]},
            {"start_time": "2017-10-09 08:00:00", "end_time": "2017-10-09 08:10:00",
             "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu6", "gpu7"]}]},
        ],
    },
    {
        "status": "Killed",
        "vc": "v1",
        "jobid": "application_1_0001",
        "user": "ub",
        "submitted_time": "2017-10-09 07:01:00",
        "attempts": [{"start_time": "2017-10-09 07:01:10", "end_time": "2017-10-09 07:01:40",
                      "detail": [{"ip": "m3", "gpus": ["gpu1"]}]}],
    },
]  # fmt: skip


def read(path: Path, text: str, skip: bool = False, setting: Scenario | None = None) -> Trace:
    path.write_text(text)
    here = Scenario(parse_cluster("2x8:a100"), Profiles("none", {}))
    return read_trace(path, setting or here, skip)


def test_helios_jobs_are_rigid_and_begin_at_zero(tmp_path: Path) -> None:
    first, second = read(tmp_path / "log.csv", "\n".join((HELIOS, *HELIOS_ROWS))).jobs
    assert [(job.id, job.index, job.submit_s, job.user) for job in (first, second)] == [
        ("6", 0, 0.0, "ub"), ("7", 1, 26.0, "ua"),
    ]  # fmt: skip
    assert (second.requested, second.curve, second.work) == (4, Curve((4,), (1.0,)), 249.0)
    assert first.deadline_s == inf


def test_a_job_without_gpus_is_told_and_can_be_left_out(tmp_path: Path) -> None:
    text = "\n".join((HELIOS, *HELIOS_ROWS, HELIOS_CPU))
    with pytest.raises(TraceError, match=r"line 4: gpu_num '0': the job holds no GPU"):
        read(tmp_path / "log.csv", text)
    trace = read(tmp_path / "log.csv", text, skip=True)
    assert (len(trace.jobs), len(trace.skipped)) == (2, 1)


def test_a_date_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"line 2: submit_time 'yesterday' must be a date"):
        read(tmp_path / "log.csv", "\n".join((HELIOS, HELIOS_ROWS[0].replace("2020-06-09 18:41:27", "yesterday"))))


def test_philly_jobs_hold_the_gpus_of_their_last_attempt_for_the_time_of_all(tmp_path: Path) -> None:
    first, second = read(tmp_path / "cluster_job_log.json", json.dumps(PHILLY)).jobs
    assert (first.id, first.submit_s, first.requested, first.work) == ("application_1_0001", 0.0, 1, 30.0)
    assert (second.id, second.submit_s, second.requested, second.work) == ("application_1_0002", 60.0, 4, 660.0)
    assert second.user == "ua"


@pytest.mark.parametrize("text", ["{}", "[3]", "no JSON"])
def test_a_file_that_is_no_philly_log_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(TraceError, match=r"JSON list of jobs|not an object with jobid"):
        read(tmp_path / "log.json", text)


def test_pai_tasks_are_read_without_a_header(tmp_path: Path) -> None:
    rows = (
        "j1,tensorflow,4,Terminated,1000.0,1600.0,600,29.3,50,MISC",
        "j1,ps,1,Terminated,1000.0,1600.0,600,29.3,,MISC",
        "j2,PyTorchWorker,2,Failed,400.0,430.0,600,29.3,200,V100",
    )
    with pytest.raises(TraceError, match=r"line 2: plan_gpu '' must be a positive number"):
        read(tmp_path / "pai_task_table.csv", "\n".join(rows))
    trace = read(tmp_path / "pai_task_table.csv", "\n".join(rows), skip=True)
    assert [(job.id, job.submit_s, job.requested, job.work) for job in trace.jobs] == [
        ("j2/PyTorchWorker", 0.0, 4, 30.0), ("j1/tensorflow", 600.0, 2, 600.0),
    ]  # fmt: skip


def test_chronus_counts_in_minutes_and_takes_the_first_of_several_deadlines(tmp_path: Path) -> None:
    rows = (
        "0,va,1,10,5049,vgg16,7,14,11,10,0,strict",
        "1,vb,2,20,760,alexnet,6,6,12-18-24,10-8-5,0,soft",
        "2,vb,2,30,760,alexnet,6,6,12,10,1,best",
    )
    strict, soft, best = read(tmp_path / "chronus.csv", "\n".join((CHRONUS, *rows))).jobs
    assert (strict.submit_s, strict.work, strict.deadline_s) == (600.0, 420.0, 600.0 + 660.0)
    assert (soft.requested, soft.deadline_s) == (2, 1200.0 + 720.0)
    assert best.best_effort


def test_sia_jobs_train_their_samples_at_a_batch_that_has_a_profile(tmp_path: Path) -> None:
    setting = load_scenario(parse_cluster("4x4:t4"), None, parse_overhead("none", 16))
    text = "\n".join((SIA, "cifar10-0,107,cifar10,1,128", "bert-1,110,bert,2,12"))
    cifar, bert = read(tmp_path / "workload-1.csv", text, setting=setting).jobs
    assert cifar.work == 5_000_000 / 2048
    assert (bert.work, bert.requested, bert.submit_s) == (177_288 / 384, 2, 110.0)
    with pytest.raises(TraceError, match=r"application 'gpt' is not one of Sia's"):
        read(tmp_path / "workload-1.csv", "\n".join((SIA, "g,0,gpt,1,8")), setting=setting)


def test_a_log_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("\n".join((HELIOS, *HELIOS_ROWS)))
    report = simulate(path, "springtide", "1x4:a100", overhead="none")
    assert (report.finished, report.makespan_s) == (2, 849.0)
