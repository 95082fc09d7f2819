from tests.policies.replays import JobSketch, run

from springtide.policies.edf_elastic import edf_elastic


def test_an_urgent_job_takes_only_what_its_deadline_needs() -> None:
    jobs = [JobSketch(30, 0, deadline_s=20), JobSketch(40, 0, deadline_s=45, speeds={1: 1.0, 2: 2.0})]
    replay = run(edf_elastic, jobs)
    # two devices end a at 15; b could do with one, and grows into the other for the same device time
    assert replay.changes["a"][0] == (0.0, 2)
    assert replay.changes["b"] == [(0.0, 2)]
    assert replay.finishes == {"a": 15.0, "b": 20.0}


def test_devices_left_over_go_where_they_cost_least() -> None:
    flat = {1: 1.0, 2: 1.1, 4: 1.2}
    jobs = [JobSketch(100, 0, deadline_s=200, speeds=flat), JobSketch(100, 0, deadline_s=300)]
    replay = run(edf_elastic, jobs, cluster="1x3:cpu")
    # one device each is enough; a second one for a costs 82 device-seconds more, for b none
    assert replay.changes["a"][0] == (0.0, 1)
    assert replay.changes["b"][0] == (0.0, 2)


def test_a_job_that_cannot_be_in_time_gives_way_but_ends() -> None:
    replay = run(edf_elastic, [JobSketch(400, 0, deadline_s=5), JobSketch(40, 0, deadline_s=11)])
    assert replay.finishes == {"b": 10.0, "a": 110.0}


def test_best_effort_jobs_share_what_is_left() -> None:
    replay = run(edf_elastic, [JobSketch(100, 0), JobSketch(20, 0, deadline_s=10.5, speeds={1: 1.0, 2: 2.0})])
    assert replay.changes["a"][0] == (0.0, 2)
    assert replay.finishes["b"] == 10.0
