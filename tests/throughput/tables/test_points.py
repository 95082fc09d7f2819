"""Points files and the notes beside them: what is read, what is refused, and with which words."""

from pathlib import Path

import pytest
from tests.throughput.made_up_points import make_points

from springtide.errors import ProfileError
from springtide.throughput.tables.points import (
    Notes,
    find_notes_file,
    make_layout,
    read_notes,
    read_points,
    read_queries,
    write_notes,
    write_points,
)

HEADER = "model,device_type,nodes,devices,local_batch,step_s"


def write(folder: Path, *rows: str, header: str = HEADER) -> Path:
    path = folder / "points.csv"
    path.write_text("\n".join((header, *rows)) + "\n", encoding="utf-8")
    return path


def test_points_survive_writing_and_reading(tmp_path: Path) -> None:
    points = make_points()
    path = tmp_path / "points.csv"
    path.write_text(write_points(points), encoding="utf-8")
    again = read_points(path)
    assert [point.layout for point in again] == [point.layout for point in points]
    assert [point.step_s for point in again] == pytest.approx([point.step_s for point in points])


def test_the_fullest_node_defaults_to_an_even_spread(tmp_path: Path) -> None:
    points = read_points(write(tmp_path, "net,t4,3,7,16,0.1", "net,t4,1,1,16,0.08"))
    assert points[0].layout.max_per_node == 3


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("net,t4,1,1,16,0", "step_s '0' must be a positive number"),
        ("net,t4,1,1,16,-1", "step_s '-1' must be a positive number"),
        ("net,t4,1,1,16,nan", "step_s 'nan' must be a positive number"),
        ("net,t4,1,1,16,fast", "step_s 'fast' is not a number"),
        ("net,t4,1,1,16,86400", "give seconds per step, not ms"),
        ("net,t4,1,1,0,0.1", "local_batch '0' must be a positive number"),
        ("net,t4,4,2,16,0.1", "every node holds at least one device"),
        ("net,t4,1,1.5,16,0.1", "devices '1.5' must be a whole number"),
        (",t4,1,1,16,0.1", "model is empty"),
    ],
)
def test_a_row_that_cannot_be_right_is_named_with_its_rule(tmp_path: Path, row: str, words: str) -> None:
    path = write(tmp_path, "net,t4,1,1,8,0.05", row)
    with pytest.raises(ProfileError) as error:
        read_points(path)
    assert words in str(error.value)
    assert "line 3" in str(error.value)


def test_a_fullest_node_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "net,t4,2,4,16,0.1,1", header=HEADER + ",max_per_node")
    with pytest.raises(ProfileError, match="max_per_node 1 does not fit 4 devices on 2 nodes"):
        read_points(path)


def test_contradictory_repeats_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "net,t4,1,1,16,0.1", "net,t4,1,1,16,0.5")
    with pytest.raises(ProfileError, match=r"took both 0.1 s and 0.5 s.*remove the wrong row"):
        read_points(path)


def test_a_global_batch_given_as_local_is_recognised(tmp_path: Path) -> None:
    path = write(tmp_path, "net,t4,1,1,64,0.8", "net,t4,1,4,64,0.22", "net,t4,1,8,64,0.12")
    with pytest.raises(ProfileError, match="looks like the global batch"):
        read_points(path)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "net,t4,1,1,16", header="model,device_type,nodes,devices,local_batch")
    with pytest.raises(ProfileError, match="line 1: missing column step_s"):
        read_points(path)


def test_an_empty_file_and_a_missing_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="holds no points"):
        read_points(write(tmp_path))
    with pytest.raises(ProfileError, match="cannot be read"):
        read_points(tmp_path / "none.csv")


def test_a_query_needs_no_step_time(tmp_path: Path) -> None:
    header = "model,device_type,nodes,devices,local_batch,remark"
    queries = read_queries(write(tmp_path, "net,t4,2,8,16,mine", header=header))
    assert queries[0].layout == make_layout("net", "t4", 2, 8, 16)
    assert queries[0].cells["remark"] == "mine"


def test_notes_are_read_as_they_were_written(tmp_path: Path) -> None:
    points = tmp_path / "net.points.csv"
    assert write_notes(points, {"worker_batch": 32, "script_logical_workers": 8, "noise": 0.02}) == find_notes_file(
        points
    )
    assert read_notes(points) == Notes(32, 8)


def test_points_without_notes_have_empty_ones(tmp_path: Path) -> None:
    assert read_notes(tmp_path / "imported.csv") == Notes()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "holds no notes"),
        ('{"worker_batch": 0}', "worker_batch 0 must be a whole number"),
        ('{"script_logical_workers": "8"}', "script_logical_workers '8' must be"),
    ],
)
def test_broken_notes_are_named(tmp_path: Path, text: str, message: str) -> None:
    points = tmp_path / "net.points.csv"
    find_notes_file(points).write_text(text, encoding="utf-8")
    with pytest.raises(ProfileError, match=message):
        read_notes(points)
