"""Replies in a notebook."""

from dataclasses import replace

from tests.client.made_up_replies import make_job

import springtide


def test_a_job_shows_itself_and_what_it_holds_is_escaped() -> None:
    job = replace(make_job(), sentence="<img src=x onerror=alert(1)>", name="resnet")
    html = job._repr_html_()
    assert "<caption>resnet</caption>" in html
    assert "<img" not in html and "&lt;img src=x" in html


def test_a_simulation_shows_what_was_kept() -> None:
    report = springtide.simulate("jobs=5,gap=900,seed=1", "fifo", "1x8:a100")
    html = report._repr_html_()
    assert f"{report.met + report.met_unpromised} of 5" in html and "fifo on " in html and "<script" not in html
