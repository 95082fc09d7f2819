"""What the docs point at is there: links, files named by their path, decisions; and CONTRIBUTING works as written."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
import yaml
from website.__main__ import list_broken, list_named, read_pages
from website.__main__ import main as write_site

from springtide.cli.app import VERBS
from springtide.control.api.routes import describe_api
from springtide.dashboard.studies.study_routes import add_study_routes

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILE = re.compile(r"`((?:[a-z_0-9]+/)+[a-z_0-9]+\.py)`")
BASES = ("", "src/", "src/springtide/")
ROW = re.compile(r"^\| (\d{3}) \| \[.*\]\(([^)]*)\) \| ([^|]*) \|", re.MULTILINE)
TO_BE_WRITTEN = {"src/springtide/policies/mine.py", "tests/policies/test_mine.py", "src/springtide/cli/greet.py"}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_links_lead_to_pages_and_headings_that_are_there() -> None:
    pages = read_pages()
    assert [error for source, text in pages.items() for error in list_broken(source, text, pages)] == []


def test_links_that_lead_nowhere_are_told() -> None:
    pages = {"docs/a.md": "[b](b.md) [c](gone.md) [d](b.md#there) [e](b.md#not-there)", "docs/b.md": "# There"}
    told = list(list_broken("docs/a.md", pages["docs/a.md"], pages))
    assert len(told) == 2 and "docs/gone.md" in told[0] and "b.md#not-there" in told[1]


def test_the_site_has_every_page_and_every_route(tmp_path: Path) -> None:
    assert write_site(tmp_path) == 0
    menu = set(list_named(yaml.safe_load((tmp_path / "mkdocs.yml").read_text())["nav"]))
    assert menu == {path.relative_to(tmp_path / "pages").as_posix() for path in (tmp_path / "pages").rglob("*.md")}
    reference = (tmp_path / "pages" / "http.md").read_text()
    assert [path for path in describe_api(add_study_routes)["paths"] if f" {path}`" not in reference] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_are_named_exist(page: Path) -> None:
    named = set(FILE.findall(page.read_text(encoding="utf-8"))) - TO_BE_WRITTEN
    assert {path for path in named if not any((ROOT / base / path).exists() for base in BASES)} == set()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_that_are_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    verbs = set(re.findall(r"`springtide ([a-z]+)", text)) - {"greet"}
    assert verbs - VERBS.keys() == set()
    targets = set(re.findall(r"`make ([a-z-]+)[` ]", text))
    assert targets - set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)) == set()
    benchmarks = set(re.findall(r"python -m benchmarks\.([a-z_]+)", text))
    assert {one for one in benchmarks if not (ROOT / "benchmarks" / f"{one}.py").exists()} == set()


def read_decisions() -> dict[str, list[str]]:
    """The decision pages by name, each with its number and those that it took in."""
    pages = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    return {page.name: [page.name[:3], *find_taken(page.read_text(encoding="utf-8"))] for page in pages}


def find_taken(text: str) -> list[str]:
    """The numbers of the decisions that a page took in, from the line below its title."""
    line = re.search(r"^# [^\n]*\n\nTook in ([\d,\s]+)\.$", text, re.MULTILINE)
    return re.findall(r"\d{3}", line[1]) if line else []


def find_decisions(text: str) -> set[str]:
    """The numbers that a text calls decisions: `decision 003`, `decisions 003 and 425`, `decisions/003-...`."""
    lists = re.findall(r"\bdecisions? (\d{3}(?:(?:, | and )\d{3})*)\b", text, re.IGNORECASE)
    return {number for found in lists for number in re.findall(r"\d{3}", found)} | set(
        re.findall(r"\bdecisions/(\d{3})\b", text)
    )


def test_every_decision_has_one_home() -> None:
    numbers = [number for taken in read_decisions().values() for number in taken]
    assert [number for number in set(numbers) if numbers.count(number) > 1] == []


def test_every_decision_is_in_the_index_with_what_it_took_in() -> None:
    index = (ROOT / "docs" / "decisions" / "index.md").read_text(encoding="utf-8")
    rows = {row[0]: (row[1], re.findall(r"\d{3}", row[2])) for row in re.findall(ROW, index)}
    assert rows == {taken[0]: (page, taken[1:]) for page, taken in read_decisions().items()}


SOURCES = ("src", "tests", "benchmarks", "experiments", "website", "docs")


@pytest.mark.parametrize("folder", [*SOURCES, "."])
def test_decisions_that_are_named_have_a_page(folder: str) -> None:
    homes = {number for taken in read_decisions().values() for number in taken}
    beside = (ROOT / folder).glob("*.md") if folder == "." else (ROOT / folder).rglob("*")
    texts = [path for path in beside if path.suffix in {".md", ".py", ".toml"}]
    named = {name(path): find_decisions(path.read_text(encoding="utf-8")) - homes for path in texts}
    assert {path: numbers for path, numbers in named.items() if numbers} == {}


def read_blocks() -> list[str]:
    """The Python of CONTRIBUTING: a policy, then a verb."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return [dedent(block) for block in re.findall(r" *```python\n(.*?)```", text, re.S)]


def test_the_policy_of_contributing_runs_from_outside_the_package(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(read_blocks()[0], encoding="utf-8")
    workload = ["--synthetic", "jobs=20,gap=300,seed=0", "--cluster", "2x8:a100"]
    springtide = str(Path(sys.executable).with_name("springtide"))
    command = [springtide, "simulate", *workload, "--policy", "mine:mine,fifo"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "mine" in done.stdout and "fifo" in done.stdout


def test_the_verb_of_contributing_says_hello(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scope: dict[str, object] = {}
    exec(read_blocks()[1], scope)
    run = scope["run"]
    assert callable(run)
    run("ann")
    assert capsys.readouterr().out == "hello ann\n"


def test_the_simulation_of_the_python_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "python-api.md").read_text(encoding="utf-8")
    exec(re.findall(r"```python\n(.*?)```", text, re.S)[-1], {})
    assert "springtide" in capsys.readouterr().out


def test_the_guide_to_elastic_training_changes_six_lines_and_the_logging() -> None:
    page = (ROOT / "docs" / "guides" / "elastic-in-a-few-lines.md").read_text(encoding="utf-8")
    scripts = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    plain, elastic = ([line.strip() for line in text.splitlines()] for text in scripts)
    assert len([line for line in elastic if line and line not in plain]) == 7


def read_cli_sources() -> str:
    """The sources of the command line, in which a text that goes over several lines is one."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "src/springtide/cli").glob("*.py")))
    return re.sub(r'"\s*\n\s*"', "", text)


def list_tables(page: str) -> Iterator[tuple[list[str], str]]:
    """The headings of every table that a page shows, and what is said of them below it, on one line."""
    for block in re.findall(r"```text\n(.*?)```", page, re.DOTALL):
        lines = block.splitlines()
        for number, line in enumerate(lines):
            if re.fullmatch(r"[A-Z][A-Z-]*(  +[A-Z(][A-Z0-9() -]*)+", line):
                words = re.split(r"  +", line)
                begins = re.compile(rf"({'|'.join(map(re.escape, words))})(: | and )")
                told = next((at for at in range(number, len(lines)) if begins.match(lines[at])), len(lines))
                yield words, " ".join(lines[told:])


def test_the_first_ten_minutes_show_the_tables_and_legends_of_today() -> None:
    source, page = read_cli_sources(), (ROOT / "docs/first-ten-minutes.md").read_text(encoding="utf-8")
    tables = list(list_tables(page))
    assert len(tables) >= 4
    for headings, legend in tables:
        for heading in headings:
            assert f'"{heading}"' in source, f"{heading} heads no column any more: make session"
        for piece in filter(None, legend.split("; ")):
            assert piece.split(": ", 1)[-1] in source, f"{piece!r} is said nowhere any more: make session"
