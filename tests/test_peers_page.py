"""The page of what others have: 49 rows, each an answer with evidence, and nothing named that is not there."""

import re
from pathlib import Path

import pytest

from springtide.cli.app import VERBS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "peers.md").read_text()
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in PAGE.splitlines()
    if re.match(r"\| \d", line)
]
#: A test, a benchmark, a make target or a command: what fails or is seen to be wrong when a row is no longer true.
EVIDENCE = re.compile(r"`(tests/|python -m benchmarks\.|make |springtide )")


def test_there_are_49_rows_in_order() -> None:
    assert [int(row[0]) for row in ROWS] == list(range(1, 50))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_is_yes_with_evidence_or_no_with_a_reason(row: list[str]) -> None:
    _, feature, answer, shown = row
    assert feature and shown
    assert answer.startswith("yes") or "because" in answer + shown, answer
    assert EVIDENCE.search(shown), shown


def test_every_test_that_is_named_exists() -> None:
    for cell in (row[3] for row in ROWS):
        path = ""
        for word in re.findall(r"`((?:tests/[\w/]+\.py)?(?:::\w+)?)`", cell):
            given, _, name = word.partition("::")
            path = given or path
            text = (ROOT / path).read_text()
            assert not name or f"def {name}(" in text, word


def test_every_command_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"`make ([\w-]+)", PAGE)) <= targets
    assert {verb for verb in re.findall(r"`springtide ([a-z]+)", PAGE)} <= VERBS.keys()
    for name in re.findall(r"python -m benchmarks\.(\w+)", PAGE):
        assert (ROOT / "benchmarks" / f"{name}.py").is_file(), name
