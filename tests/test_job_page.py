"""The page of all keys of a job file, and its JSON Schema, are those of the model."""

import json
from pathlib import Path

from pydantic import BaseModel
from website.job_page import EXAMPLE, SECTIONS, build_page

from springtide.core.job_file import JobFile, build_schema, parse_job_text


def test_the_schema_in_the_docs_is_the_one_that_is_checked() -> None:
    exported = Path(__file__).parents[1] / "docs" / "job.schema.json"
    assert json.loads(exported.read_text()) == build_schema(), "run: python -m website.job_page docs"


def test_the_page_of_keys_is_that_of_the_model_and_shows_every_key_with_an_example() -> None:
    page = Path(__file__).parents[1] / "docs" / "job-file.md"
    assert page.read_text(encoding="utf-8") == build_page(), "run: python -m website.job_page docs"
    sections: list[type[BaseModel]] = [JobFile, *SECTIONS.values()]
    for section in sections:
        assert [name for name, key in section.model_fields.items() if not key.description or not key.examples] == []


def test_the_page_begins_with_a_whole_file_and_writes_a_line_for_each_key() -> None:
    assert parse_job_text(EXAMPLE, "job.yaml").deadline == "6h"
    page = build_page()
    assert EXAMPLE in page and "\nname: digits-cnn\n" in page and "\ndevices: [1, 2, 4]\n" in page
    assert "\n{" not in page
