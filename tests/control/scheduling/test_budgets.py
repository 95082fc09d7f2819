"""What a job may cost, asked before it is promised: refused with the price, or kept to shares that it can pay for."""

from pathlib import Path

import pytest
from tests.control.hand_clock import POLICY, HandClockServer

from springtide.control.scheduling.live_jobs import afford, afford_types
from springtide.control.scheduling.server_context import ServerOptions
from springtide.core.curves import Curve
from springtide.core.job_states import JobState
from springtide.core.jobs import JobId, Overhead
from springtide.core.typed_curves import TypedCurves
from springtide.executors.fake import FakeJob

RUN = "python train.py long"
SCRIPTS = {"long": FakeJob(total_steps=400, speeds={1: 10.0, 2: 12.0})}  # 40 s on one device, 67 device-seconds on two
USD_PER_DEVICE_H = 3600.0  # a dollar for each device-second


@pytest.fixture
def hand_server(tmp_path: Path) -> HandClockServer:
    options = ServerOptions(policy=POLICY, price_per_device_hour=USD_PER_DEVICE_H)
    return HandClockServer(tmp_path, scripts=dict(SCRIPTS), options=options)


def test_a_job_that_its_budget_cannot_pay_for_is_declined_and_told_what_it_costs(hand_server: HandClockServer) -> None:
    record = hand_server.submit(run=RUN, deadline="10m", budget="10 USD")
    hand_server.pass_s(20)  # it is measured first
    record = hand_server.job(record.id)
    assert (record.state, record.reason) == (JobState.DECLINED, "budget_too_small")
    assert "it would cost at least" in record.sentence
    assert "of its 400 steps" in record.sentence
    known = hand_server.submit(run=RUN, deadline="10m", budget="10 USD")
    assert known.reason == "budget_too_small"  # at once where the speed is known


def test_a_promised_job_keeps_to_the_shares_that_it_can_pay_for(hand_server: HandClockServer) -> None:
    hand_server.submit(run=RUN, deadline="10m")
    hand_server.pass_s(80)
    rich = hand_server.submit(run=RUN, deadline="10m", budget="1000 USD")
    assert hand_server.reconciler.context.world.jobs[JobId(rich.id)].job.curve.shares[:2] == (1, 2)
    hand_server.pass_s(80)
    poor = hand_server.submit(run=RUN, deadline="10m", budget="64 USD")
    assert poor.promised
    assert hand_server.reconciler.context.world.jobs[JobId(poor.id)].job.curve.shares == (1,)
    hand_server.pass_s(90)
    assert hand_server.job(poor.id).state is JobState.SUCCEEDED


def test_a_resume_says_what_it_grants(hand_server: HandClockServer) -> None:
    record = hand_server.submit(run=RUN, budget="10 USD", devices=1)
    hand_server.pass_s(20)
    assert hand_server.job(record.id).state is JobState.PAUSED
    hand_server.reconciler.call(lambda: hand_server.operations.resume(record.id, hand_server.find_step(record.id)))
    hand_server.reconciler.step()
    told = [event.sentence for event in hand_server.store.events() if event.kind == "resumed"]
    assert told[-1].endswith("its budget of 10 USD was spent and is granted once more")


def test_only_shares_within_the_budget_are_left_and_the_cheapest_if_there_is_none() -> None:
    curve = Curve((1, 2, 4), (1.0, 1.9, 2.0))
    assert afford(curve, 100.0, Overhead(base_s=1.0), 110.0).shares == (1, 2)
    assert afford(curve, 100.0, Overhead(base_s=1.0), 50.0).shares == (1,)
    assert afford(curve, 100.0, Overhead(base_s=1.0), 1000.0) == curve


def test_on_several_types_only_what_can_be_paid_for_is_left() -> None:
    pause = Overhead(base_s=1.0)
    typed = TypedCurves({"fast": Curve((1, 2), (2.0, 2.5)), "slow": Curve((1, 2), (1.0, 1.9))}, movable=True)
    both = afford_types(typed, 100.0, pause, {"fast": 60.0, "slow": 103.0}, ())
    assert {one: curve.shares for one, curve in both.curves.items()} == {"fast": (1,), "slow": (1,)}
    dear = {"fast": 40.0, "slow": 1000.0}  # 51 device-seconds on the fast type are the least
    assert afford_types(typed, 100.0, pause, dear, ()).types == ("slow",)
    assert afford_types(typed, 100.0, pause, dear, {"fast"}).types == ("fast", "slow"), "it runs there"
    poor = afford_types(typed, 100.0, pause, {"fast": 1.0, "slow": 1.0}, ())
    assert {one: curve.shares for one, curve in poor.curves.items()} == {"fast": (1,)}
    assert afford_types(typed, 100.0, pause, {"fast": 1.0, "slow": None}, ()).curves == {"slow": typed.curves["slow"]}
