"""Simulate and Cloud: what the forms answer, what they refuse, and what can be saved."""

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from tests.dashboard.scenes import Shown, play, show

from springtide import __version__
from springtide.cloud.plan_reports import tell_ratio
from springtide.control.api.job_data import user_turns
from springtide.control.storage.records import UserRecord
from springtide.dashboard.studies import study_runner
from springtide.dashboard.studies.cloud_view import LogScale, build_rental, list_spans
from springtide.dashboard.studies.rental_study import RentalBody, run_rental, write_packaged
from springtide.dashboard.studies.simulate_view import build_simulation
from springtide.dashboard.studies.simulation_runs import run_simulation
from springtide.dashboard.studies.simulation_study import SimulationBody
from springtide.dashboard.studies.study_runner import StudyRunner
from springtide.errors import InputError, LimitError, StateError

SIMULATION = {"synthetic": "jobs=20,gap=600,seed=0", "cluster": "1x8:a100", "policies": ["springtide", "edf"]}
RENTAL = {"model": "resnet50", "steps": "90000", "global_batch": "256", "clouds": "aws", "deadline": "24h"}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    with show(play(tmp_path_factory.mktemp("scene"))) as shown:
        yield shown


@pytest.fixture(scope="module")
def browser(shown: Shown) -> Iterator[httpx.Client]:
    headers = {"accept": "text/html", "origin": shown.url}
    with httpx.Client(base_url=shown.url, headers=headers, timeout=60) as client:
        client.post("/signin", data={"token": shown.token, "next": "/"})
        yield client


def test_a_simulation_is_that_of_the_command(browser: httpx.Client) -> None:
    page = browser.post("/simulate", data=SIMULATION).text
    runs = run_simulation(SimulationBody.model_validate(SIMULATION))["runs"]
    met = {run["policy"]: run["met"] + run["met_unpromised"] for run in runs}
    best = max(met, key=lambda policy: met[policy])
    assert f"{best} meets {met[best]} of 20 deadlines" in page
    assert page.count("<polyline") == 2 and ' style="' not in page


def test_a_simulation_can_be_saved(browser: httpx.Client) -> None:
    table = browser.post("/simulate/runs.csv", data=SIMULATION)
    assert table.text.splitlines()[0].startswith("trace,policy,jobs") and len(table.text.splitlines()) == 3
    assert "attachment" in table.headers["content-disposition"]
    picture = browser.post("/simulate/runs.png", data=SIMULATION)
    assert picture.content.startswith(b"\x89PNG")


def test_a_trace_with_bad_rows_is_told_by_line_and_can_be_read_without_them(browser: httpx.Client) -> None:
    head = "job_id,submit_s,model,batch_size,gpus,duration_s,deadline_s"
    trace = f"{head}\na,0,resnet50,256,1,600,5000\nb,x,resnet50,256,1,600,5000\n"
    told = browser.post("/simulate", data=SIMULATION | {"trace": trace, "synthetic": ""}).text
    assert "Cannot be simulated" in told and "the trace, line 3: " in told and "/tmp" not in told
    told = browser.post("/simulate", data=SIMULATION | {"trace": trace, "synthetic": "", "skip_bad_rows": "yes"}).text
    assert "1 row left out; the first: the trace, line 3: " in told and "/tmp" not in told
    lacking = browser.post("/simulate", data=SIMULATION | {"trace": "job_id,submit_s\n1,2\n", "synthetic": ""}).text
    assert "the trace, line 1: header" in lacking


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"policies": ["os:system"]}, "os:system are unknown"),
        ({"synthetic": "jobs=100000,gap=1"}, "more than the 5000"),
        ({"synthetic": "jobs=some"}, "jobs"),
        ({"cluster": "none"}, "none"),
        ({"synthetic": ""}, "either synthetic or trace"),
    ],
)
def test_what_cannot_be_simulated_is_told(browser: httpx.Client, change: dict[str, object], told: str) -> None:
    page = browser.post("/simulate", data=SIMULATION | change)
    assert page.status_code == 200 and "Cannot be simulated" in page.text
    assert told in page.text


def test_a_trace_that_is_too_long_is_told_wherever_it_is_sent(browser: httpx.Client) -> None:
    trace = "job_id,submit_s\n" * 140_000  # 2.1 MiB, 2.7 MiB as a form
    for place, status in (("/simulate", 200), ("/simulate/runs.csv", 422), ("/simulate/runs.png", 422)):
        answer = browser.post(place, data={**SIMULATION, "trace": trace})
        assert (answer.status_code, "the trace is longer than 2 MiB" in answer.text) == (status, True)


def test_what_the_guard_refuses_is_a_page_for_who_reads_pages(browser: httpx.Client, shown: Shown) -> None:
    sent = {**SIMULATION, "trace": "x" * (9 << 20)}
    refused = browser.post("/simulate", data=sent)
    assert (refused.status_code, refused.headers["content-type"]) == (413, "text/html; charset=utf-8")
    assert "The body is larger than" in refused.text and "script-src" in refused.headers["content-security-policy"]
    part = browser.post("/simulate", data=sent, headers={"hx-request": "true"})
    assert part.json()["error"]["reason"] == "too_large"


def test_the_api_runs_no_code_of_the_caller(shown: Shown) -> None:
    body = SIMULATION | {"policies": ["subprocess:run"]}
    headers = {"authorization": f"Bearer {shown.token}"}
    answer = httpx.post(f"{shown.url}/api/v1/simulations", json=body, headers=headers)
    assert answer.status_code == 422 and "subprocess:run" in answer.json()["error"]["sentence"]
    assert httpx.post(f"{shown.url}/api/v1/simulations", json=SIMULATION).status_code in (401, 403)


def test_the_front_shows_each_plan_with_its_task(browser: httpx.Client) -> None:
    page = browser.post("/cloud", data=RENTAL | {"spot": "yes"}).text
    found = run_rental(RentalBody.model_validate(write_rental_body(spot=True)))
    assert found["plans"][0]["name"] in page and "cheapest that respects every limit" in page
    assert page.count('<circle class="dot') == len({plan["name"] for plan in (*found["front"], *found["plans"])})
    assert "instance_type: " in page and "use_spot: true" in page
    assert f"./springtide-{__version__}-py3-none-any.whl" in page and "make wheel" in page


def write_rental_body(**more: object) -> dict[str, object]:
    body = {"points": write_packaged("resnet50"), "clouds": ["aws"], "steps": 90000, "global_batch": 256}
    return body | {"deadline": "24h"} | more


def test_limits_that_nothing_keeps_are_told_with_the_nearest(browser: httpx.Client) -> None:
    page = browser.post("/cloud", data=RENTAL | {"deadline": "1m"}).text
    assert "Nothing respects the limits" in page and "deadline" in page
    assert '<circle class="dot miss"' in page


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"steps": "many"}, "steps"),
        ({"points": "a,b\n1,2"}, "the points"),
        ({"deadline": "soon"}, "soon"),
        ({"clouds": "moon"}, "moon"),
        ({"model": "none"}, "none"),
    ],
)
def test_what_cannot_be_searched_is_told(browser: httpx.Client, change: dict[str, str], told: str) -> None:
    page = browser.post("/cloud", data=RENTAL | change)
    assert page.status_code == 200 and "Cannot be searched" in page.text
    assert told in page.text


def test_a_front_of_one_plan_is_drawn() -> None:
    found = run_rental(RentalBody.model_validate(write_rental_body(deadline="", types=["p4d.24xlarge"])))
    view = build_rental(found)
    assert view.best is not None and all(0 <= dot.x <= 100 for dot in view.dots)
    assert LogScale(1.0, 10.0).find(1.0) < LogScale(1.0, 10.0).find(5.0) < LogScale(1.0, 10.0).find(10.0)


def test_policies_that_do_as_well_as_the_best_are_named_with_it() -> None:
    def run(policy: str, met: int) -> dict[str, object]:
        counts = {"met": met, "met_unpromised": 0, "dsr": 0.5, "dsr_alone_bound": 1.0, "avg_jct_s": 60.0}
        return {"policy": policy, **counts, "hours": [0.0, 1.0], "held": [1.0, 0.0]}

    view = build_simulation({"devices": 4, "runs": [run("edf", 9), run("fifo", 7), run("springtide", 9)]})
    assert (view.best["policy"], view.equals) == ("edf", ["springtide"])


def test_times_between_one_and_two_hours_have_marks() -> None:
    assert len(list_spans(LogScale(3700.0, 7100.0))) >= 3
    places = sorted(LogScale(60.0, 2.6e6).find(span) for span in list_spans(LogScale(60.0, 2.6e6)))
    assert min(after - before for before, after in pairwise(places)) >= 0.06  # no words touch


def test_ratios_are_told_in_words() -> None:
    assert [tell_ratio(ratio, "as long") for ratio in (2.14, 23.3, 1.14, 0.96, 1.001)] == [
        "2.1 times as long",
        "23 times as long",
        "14 % more time",
        "4 % less time",
        "as long",
    ]


def test_few_wait_and_what_is_known_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[bytes] = []

    async def compute(request: bytes) -> dict[str, int]:
        computed.append(request)
        await asyncio.sleep(0.01)
        return {"number": len(computed)}

    async def ask() -> list[object]:
        runner = StudyRunner()
        users = [UserRecord(f"user-{number}", "", id=f"@{number}") for number in range(9)]
        first = await runner.run(users[0], "simulation", {"seed": 0})
        assert await runner.run(users[1], "simulation", {"seed": 0}) == first
        many = [runner.run(user, "simulation", {"seed": seed}) for seed, user in enumerate(users[1:], 1)]
        return await asyncio.gather(*many, return_exceptions=True)

    monkeypatch.setattr(study_runner, "compute", compute)
    answers = asyncio.run(ask())
    refused = [answer for answer in answers if isinstance(answer, StateError)]
    assert len(computed) == 1 + len(answers) - len(refused)
    assert 0 < len(refused) < len(answers)


def test_who_asks_for_many_studies_waits_for_their_own_and_keeps_nobody_else_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def compute(request: bytes) -> dict[str, str]:
        await asyncio.sleep(0.01)
        return {"of": request.decode()}

    async def ask() -> list[object]:
        runner, eve, ann = StudyRunner(), UserRecord("eve", "", id="@eve"), UserRecord("ann", "", id="@ann")
        many = [asyncio.create_task(runner.run(eve, "simulation", {"seed": seed})) for seed in range(20)]
        await asyncio.sleep(0)
        mine = await runner.run(ann, "simulation", {"seed": -1})
        assert not all(task.done() for task in many), "it came before the last ones of the other user"
        return [mine, *await asyncio.gather(*many, return_exceptions=True)]

    monkeypatch.setattr(study_runner, "compute", compute)
    assert all(isinstance(answer, dict) for answer in asyncio.run(ask()))


def test_a_users_second_study_waits_for_the_first_however_long_it_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    async def compute(request: bytes) -> dict[str, str]:
        await asyncio.sleep(0.3)
        return {"of": request.decode()}

    async def ask() -> list[object]:
        runner, eve = StudyRunner(), UserRecord("eve", "", id="@eve")
        many = [runner.run(eve, "simulation", {"seed": seed}) for seed in range(3)]
        return await asyncio.gather(*many, return_exceptions=True)

    monkeypatch.setattr(study_runner, "compute", compute)
    monkeypatch.setattr(user_turns, "TURN_S", 0.1)
    assert all(isinstance(answer, dict) for answer in asyncio.run(ask()))


def test_one_user_holds_so_many_connections_with_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    async def compute(request: bytes) -> dict[str, str]:
        await asyncio.sleep(0)
        return {"of": request.decode()}

    async def ask() -> list[object]:
        runner, eve = StudyRunner(), UserRecord("eve", "", id="@eve")
        many = [runner.run(eve, "simulation", {"seed": seed}) for seed in range(study_runner.MOST_OF_EACH + 1)]
        answers = await asyncio.gather(*many, return_exceptions=True)
        return [*answers, await runner.run(eve, "simulation", {"seed": -1})]

    monkeypatch.setattr(study_runner, "compute", compute)
    answers = asyncio.run(ask())
    assert [type(answer) for answer in answers].count(LimitError) == 1 and isinstance(answers[-1], dict)


def test_a_process_that_is_ended_is_told() -> None:
    with pytest.raises(InputError, match="more time"):
        study_runner.read_answer(-9, b"", b"")
    with pytest.raises(StateError, match="no module"):
        study_runner.read_answer(1, b"", b"Traceback\nno module")


def test_the_pages_open_without_an_answer(browser: httpx.Client, tmp_path: Path) -> None:
    for place in ("/simulate", "/cloud"):
        page = browser.get(place)
        assert (
            page.status_code == 200
            and "<form" in page.text
            and "script-src 'self'" in page.headers["content-security-policy"]
        )
