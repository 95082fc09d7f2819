from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.core.job_file import parse_job_text
from springtide.core.job_file_parts.sweeps import MOST_SWEPT, expand_sweep, list_cases, name_swept
from springtide.errors import JobError

NAMES = st.sampled_from(["lr", "seed", "batch", "depth"])
VALUES = st.lists(
    st.integers(-9, 9) | st.floats(0, 1) | st.sampled_from(["a b", "{lr}", "'", "x"]),
    min_size=1,
    max_size=4,
    unique_by=str,
)


def test_a_value_replaces_its_name_in_the_command_and_else_becomes_a_variable() -> None:
    text = "run: python t.py --lr {lr} --note {{lr}}\nenv: {A: b}\nsweep: {grid: {lr: [0.1, a b], SEED: [1, 2]}}"
    jobs = expand_sweep(parse_job_text(text, "job.yaml"))
    assert [dict(one.values) for one in jobs] == [
        {"lr": lr, "SEED": seed} for lr, seed in product(["0.1", "a b"], ["1", "2"])
    ]
    assert jobs[2].job.words == ("python", "t.py", "--lr", "a b", "--note", "{a b}")
    assert jobs[2].job.env == {"A": "b", "SEED": "1"} and jobs[2].job.sweep is None


def test_cases_are_taken_as_they_stand() -> None:
    jobs = expand_sweep(parse_job_text("run: python t.py\nsweep: {cases: [{a: 1}, {b: 2, a: 3}]}", "job.yaml"))
    assert [(one.number, one.job.env) for one in jobs] == [(1, {"a": "1"}), (2, {"b": "2", "a": "3"})]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run: t --lr {lrr}\nsweep: {grid: {lr: [1]}}", "run holds {lrr}, and not every job of the sweep has a value"),
        ("run: t --lr {lrr}\nsweep: {grid: {lr: [1], seed: [2]}}", "all have: lr, seed"),
        ("run: t {a}\nsweep: {cases: [{a: 1}, {b: 2}]}", "run holds {a}, and not every job"),
        ("run: t\nsweep: {cases: [{a: 1}, {}]}", "sweep.cases has an empty case, number 2; give it a value"),
        ("run: t\nsweep: {cases: [{a: 1, b: 2}, {b: 2, a: 1}]}", "sweep.cases has a=1, b=2 twice"),
        ("run: t\nsweep: {grid: {a: [1, 2, 1]}}", "sweep.grid.a has 1 twice; give each value once"),
    ],
)
def test_a_sweep_whose_jobs_would_not_differ_or_keep_braces_is_refused(text: str, message: str) -> None:
    with pytest.raises(JobError) as caught:
        parse_job_text(text, "job.yaml")
    assert message in str(caught.value)


def test_braces_that_are_no_name_are_left_to_the_program() -> None:
    text = "run: [t, '{\"a\": 1}', '{}', '{0}', '{lr}']\nsweep: {grid: {lr: [1]}}"
    (one,) = expand_sweep(parse_job_text(text, "job.yaml"))
    assert one.job.words == ("t", '{"a": 1}', "{}", "{0}", "1")


def test_a_million_jobs_are_refused_without_making_one() -> None:
    values = list(range(1000))
    with pytest.raises(JobError, match=f"sweep makes 1000000 jobs; at most {MOST_SWEPT} are taken"):
        parse_job_text(f"run: x\nsweep: {{grid: {{a: {values}, b: {values}}}}}", "job.yaml")


@given(st.dictionaries(NAMES, VALUES, min_size=1))
def test_a_grid_is_every_combination_once_and_no_value_is_read_twice(grid: dict[str, list[str | int | float]]) -> None:
    run = " ".join(["python t.py", *(f"--{name} {{{name}}}" for name in grid)])
    import json

    jobs = expand_sweep(parse_job_text(json.dumps({"run": run, "sweep": {"grid": grid}}), "job.yaml"))
    wanted = [tuple(str(value) for value in values) for values in product(*grid.values())]
    assert [one.job.words[3::2] for one in jobs] == wanted
    assert [one.number for one in jobs] == list(range(1, len(wanted) + 1))
    assert list_cases(grid, None) == [one.values for one in jobs]


@given(st.from_regex(r"[a-z][a-z0-9-]{0,62}", fullmatch=True), st.integers(1, MOST_SWEPT))
def test_names_of_an_array_are_names_and_differ(base: str, count: int) -> None:
    names = {name_swept(base, number, count) for number in range(1, count + 1)}
    assert len(names) == count and max(map(len, names)) <= 63
