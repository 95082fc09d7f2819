"""Job files as they are read from a disk."""

from pathlib import Path

import pytest

from springtide import examples
from springtide.client.job_folders import read_job_file
from springtide.errors import JobError


@pytest.mark.parametrize("name", examples.TEMPLATES)
def test_the_examples_are_valid(name: str) -> None:
    assert read_job_file(examples.folder(name) / "job.yaml").logical_workers == 4


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="cannot be read"):
        read_job_file(tmp_path / "job.yaml")
    (tmp_path / "job.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(JobError, match="not UTF-8"):
        read_job_file(tmp_path / "job.yaml")
    (tmp_path / "job.yaml").write_text("#" * (1 << 21))
    with pytest.raises(JobError, match="larger than"):
        read_job_file(tmp_path / "job.yaml")
