import json
from pathlib import Path

import pytest
from experiments.spot_counts import draw_spot_counts, read_spot_counts, write_spot_counts

from springtide.errors import TraceError

ROWS = "time_s,zone,count,price\n0,a,16,1.0\n300,a,5,1.0\n0,b,0,1.2\n600,a,5,1.0\n900,a,5,1.4\n"


def test_rows_make_zones_without_entries_that_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "market.csv"
    path.write_text(ROWS)
    first, second = read_spot_counts(path)
    assert (first.name, first.times_s, first.counts) == ("a", (0.0, 300.0, 900.0), (16, 5, 5))
    assert (second.name, second.counts, second.usd_per_h) == ("b", (0,), (1.2,))
    assert (first.place(299.0), first.place(300.0), first.next_change_s(300.0)) == (0, 1, 900.0)
    assert first.shifted(400.0).times_s == (0.0, 500.0)


def test_a_drawn_market_is_the_same_for_a_seed_and_survives_its_file(tmp_path: Path) -> None:
    drawn = draw_spot_counts("z", 16, 86400.0, 1.0, seed=3)
    assert drawn == draw_spot_counts("z", 16, 86400.0, 1.0, seed=3)
    write_spot_counts(tmp_path / "z.csv", [drawn])
    (read,) = read_spot_counts(tmp_path / "z.csv")
    assert read.counts == drawn.counts
    assert read.times_s == pytest.approx(drawn.times_s, rel=1e-4)


def test_skypilots_ticks_need_a_price(tmp_path: Path) -> None:
    path = tmp_path / "us-west-2a_v100_1.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": [0, 0, 5, 16]}))
    (zone,) = read_spot_counts(path, 0.9)
    assert (zone.name, zone.times_s, zone.counts) == ("us-west-2a_v100_1", (0.0, 600.0, 900.0), (0, 5, 16))
    with pytest.raises(TraceError, match="has no prices; give the spot price"):
        read_spot_counts(path)


def test_a_trace_of_preemptions_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "full.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 600, "price_info": {"price": 1}}, "data": [1, 0]}))
    with pytest.raises(TraceError, match="counts preemptions"):
        read_spot_counts(path, 1.0)


def test_probe_rounds_are_gathered_from_their_folder(tmp_path: Path) -> None:
    for number, created in enumerate((16, 3)):
        body = {
            "scheduled_at": f"2025-10-03T17:{number}0:00-07:00",
            "zone_results": {"asia-south2-b": {"instances_created": created}},
        }
        (tmp_path / f"{number}.json").write_text(json.dumps(body))
    (zone,) = read_spot_counts(tmp_path, 2.0)
    assert (zone.name, zone.times_s, zone.counts) == ("asia-south2-b", (0.0, 600.0), (16, 3))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("0,a,1.5,1", "count '1.5' must be a whole number"),
        ("0,a,-1,1", "count '-1' must be a number, 0 or more"),
        ("x,a,1,1", "time_s 'x' must be a number"),
        ("0,a,1,0", "price '0' must be a positive number"),
    ],
)
def test_a_bad_row_is_told(tmp_path: Path, row: str, message: str) -> None:
    path = tmp_path / "market.csv"
    path.write_text(f"time_s,zone,count,price\n{row}\n")
    with pytest.raises(TraceError, match=message):
        read_spot_counts(path)
