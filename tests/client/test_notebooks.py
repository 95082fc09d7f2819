"""Replies in a notebook."""

from dataclasses import replace

from tests.client.made_up_replies import make_job

import springtide
from springtide.client.replies import PlanInfo
from springtide.control.api.documents import write_forecast
from springtide.control.scheduling.operations import Forecast


def test_a_job_shows_itself_and_what_it_holds_is_escaped() -> None:
    job = replace(make_job(), sentence="<img src=x onerror=alert(1)>", name="resnet")
    html = job._repr_html_()
    assert "<caption>resnet</caption>" in html
    assert "<img" not in html and "&lt;img src=x" in html


def test_a_plan_shows_its_answer_and_is_drawn() -> None:
    now_s = 1_800_000_000.0
    forecast = Forecast(
        "admitted", "", "<b>promised", now_s + 900, now_s + 600, 100, plan=((now_s, 2), (now_s + 300, 4)), promised=True
    )
    html = PlanInfo.read(write_forecast(forecast, now_s))._repr_html_()
    assert "admitted" in html and "&lt;b&gt;promised" in html and "<b>promised" not in html
    assert html.count("<rect") == 2 and "<script" not in html


def test_a_simulation_shows_what_was_kept() -> None:
    report = springtide.simulate("jobs=5,gap=900,seed=1", "fifo", "1x8:a100")
    html = report._repr_html_()
    assert f"{report.met + report.met_unpromised} of 5" in html and "fifo on " in html and "<script" not in html
