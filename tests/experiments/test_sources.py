"""Inputs of figures: what is found, and what is wrong with the rest, each by name."""

from pathlib import Path

import pytest
from experiments.sources import Sources, find_traces, open_sources

from springtide.errors import InputError

TRACE = "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n1,0,10,bert,100,64,1,10\n"


def test_traces_are_found_and_others_named(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "cluster01.csv").write_text(TRACE)
    (tmp_path / "mine.csv").write_text(TRACE)
    (tmp_path / "foreign.csv").write_text("a,b\n1,2\n")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "workload.csv").write_text("name,time,application,max_parallelism\n")
    (tmp_path / "README.md").write_text("not a trace")
    found = find_traces(Sources(tmp_path))
    assert [(path.stem, cluster) for path, cluster in found.traces] == [("cluster01", "64x8:a100")]
    reasons = dict(zip(("bytes", "foreign", "mine"), found.problems, strict=True))
    assert "is not a CSV text file" in reasons["bytes"]
    assert "no column of submission times" in reasons["foreign"]
    assert "give one with --cluster" in reasons["mine"]
    named = find_traces(Sources(tmp_path, cluster="2x8:a100"))
    assert ("mine", "2x8:a100") in [(path.stem, cluster) for path, cluster in named.traces]


def test_folders_are_found_beneath_data(tmp_path: Path) -> None:
    (tmp_path / "data" / "traces").mkdir(parents=True)
    sources = open_sources(tmp_path / "data")
    assert (sources.traces, sources.profiles) == (tmp_path / "data" / "traces", None)
    assert sources.find_trace("195job") is None
    with pytest.raises(InputError, match="holds none of traces/, profiles/, measurements/"):
        open_sources(tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        open_sources(None, traces=tmp_path / "nowhere")
