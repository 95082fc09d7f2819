"""The report: what fits on a page, and the rest of it in sums."""

import re
from pathlib import Path

import pytest
from tests.dashboard.browsers import CHROMIUM
from tests.dashboard.scenes import play, show
from tests.dashboard.screenshots import sign_in

from springtide.control.api.reports.promise_reports import write_report
from springtide.control.storage.records import JobLedgerEntry
from springtide.core.job_states import JobState
from springtide.dashboard.report_view import build_rows

WEEK_S = 7 * 86400.0
NOW_S = 1_800_000_000.0


def make_ledger(users: int, weeks: int) -> list[JobLedgerEntry]:
    """A job for each user and week; the users with higher numbers pay more."""
    return [
        JobLedgerEntry(
            f"user-{user:02}", JobState.SUCCEEDED, True, "", 3600.0, 0, NOW_S + WEEK_S * week, None, None, user
        )
        for user in range(users)
        for week in range(weeks)
    ]


def test_the_largest_users_and_the_last_weeks_are_named_and_the_rest_is_summed_up() -> None:
    report = write_report(make_ledger(25, 10), None, True)
    rows = build_rows(report)
    assert [len(rows.users), rows.users[0]["name"], rows.users[-1]["name"]] == [21, "user-24", "5 others"]
    assert [len(rows.weeks), rows.weeks[-1]["name"]] == [9, "2 earlier weeks"]
    for some in (rows.users, rows.weeks):
        assert sum(one["usd"] for one in some) == report["total"]["usd"]
        assert sum(one["jobs"] for one in some) == report["total"]["jobs"] == 250
    assert [len(rows.grid.weeks), rows.grid.users[-1]] == [8, ("5 others", [10.0] * 8)]
    assert (report["from_s"], report["to_s"]) == (NOW_S, NOW_S + 9 * WEEK_S)


@pytest.mark.skipif(not CHROMIUM, reason="the browser tests need a browser: apt-get install chromium")
def test_it_is_one_page_on_paper_with_its_dates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("playwright.sync_api", reason="the browser tests need: pip install playwright")
    scene = play(tmp_path / "scene")
    monkeypatch.setattr(scene.store, "list_ledger", lambda owner: make_ledger(40, 30))
    with show(scene) as shown, sign_in(shown, tmp_path / "profile") as page:
        page.goto(f"{shown.url}/report")
        told = page.locator(".titles").inner_text()
        assert "1200 jobs that ended from" in told and "as of" in told
        assert "20 others" in page.locator("main").inner_text()
        pdf = page.pdf(format="A4")
    assert len(re.findall(rb"/Type\s*/Page[^s]", pdf)) == 1
