"""The page of claims is rendered from claims.toml and from nothing else."""

from pathlib import Path

import pytest
from experiments.papers import read_claims, render

from springtide.errors import InputError

ROOT = Path(__file__).parents[2]
CLAIM = """[[claim]]
id = "one"
paper = "elasticflow"
what = "DSR | of a trace"
published = ".788"
ours = ".98"
command = "python -m benchmarks.deadlines"
date = "2026-01-01"
note = "with pauses"
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "claims.toml"
    path.write_text(text)
    return path


def test_the_committed_page_is_up_to_date() -> None:
    page = ROOT / "docs" / "papers.md"
    assert page.read_text() == render(read_claims()), "run: python -m experiments.papers"


def test_a_claim_becomes_a_row_and_a_note(tmp_path: Path) -> None:
    page = render(read_claims(write(tmp_path, CLAIM)))
    assert "## ElasticFlow" in page
    assert "| DSR \\| of a trace | .788 | .98 | `python -m benchmarks.deadlines` | 2026-01-01 |" in page
    assert "- *DSR | of a trace*: with pauses" in page


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (CLAIM + CLAIM, "twice"),
        (CLAIM.replace("elasticflow", "nobody"), "'nobody'"),
        (CLAIM.replace("published", "printed"), "lacks ['published'], has unknown ['printed']"),
    ],
)
def test_bad_claims_are_refused(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(InputError) as caught:
        read_claims(write(tmp_path, text))
    assert part in str(caught.value)
