"""Replies in a notebook."""

from dataclasses import replace

from tests.client.made_up_replies import make_job


def test_a_job_shows_itself_and_what_it_holds_is_escaped() -> None:
    job = replace(make_job(), sentence="<img src=x onerror=alert(1)>", name="resnet")
    html = job._repr_html_()
    assert "<caption>resnet</caption>" in html
    assert "<img" not in html and "&lt;img src=x" in html
