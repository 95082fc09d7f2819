"""Importing published tables."""

from pathlib import Path

import pytest

from springtide.errors import ProfileError
from springtide.throughput.tables.formats import TableFormat, import_points
from springtide.throughput.tables.points import make_layout


def test_elasticflow_tables_are_by_global_batch(tmp_path: Path) -> None:
    (tmp_path / "net.csv").write_text("global_batch_size,1,16\n64,2.0,10\n128,1.0,nan\n", encoding="utf-8")
    points = import_points(TableFormat(tmp_path, "a100", 8), "elasticflow")
    assert [(point.layout, point.step_s) for point in points] == [
        (make_layout("net", "a100", 1, 1, 64), 0.5),
        (make_layout("net", "a100", 2, 16, 4), 0.1),
        (make_layout("net", "a100", 1, 1, 128), 1.0),
    ]


def test_pollux_placements_are_digits(tmp_path: Path) -> None:
    path = tmp_path / "net-placements.csv"
    path.write_text("placement,local_bsz,step_time,sync_time\n31,8,0.5,0.1\n", encoding="utf-8")
    (point,) = import_points(TableFormat(path, "t4", 4), "pollux")
    assert point.layout == make_layout("net", "t4", 2, 4, 8, 3)
    assert point.sync_s == 0.1


def test_pollux_scalability_spreads_evenly(tmp_path: Path) -> None:
    path = tmp_path / "net-scalability.csv"
    path.write_text("num_nodes,num_replicas,local_bsz,step_time,sync_time\n6,8,8,0.5,0.1\n", encoding="utf-8")
    (point,) = import_points(TableFormat(path, "t4", 4), "pollux")
    assert point.layout.max_per_node == 2


def test_a_table_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net-placements.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(ProfileError, match=r"line 2.*needed are placement"):
        import_points(TableFormat(path, "t4", 4), "pollux")
    with pytest.raises(ProfileError, match="format 'csv' is unknown"):
        import_points(TableFormat(path, "t4", 4), "csv")
