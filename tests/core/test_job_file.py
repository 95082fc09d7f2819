import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.core.dependencies import AfterEnd, Dependency
from springtide.core.job_file import JobFile, build_schema, check_job, parse_job_text
from springtide.core.job_file_parts.device_counts import list_devices
from springtide.core.job_file_parts.job_sections import STORED
from springtide.errors import JobError


def test_only_run_is_required_and_the_rest_is_as_designed() -> None:
    job = parse_job_text("run: python train.py --lr 0.1", "job.yaml")
    assert job.words == ("python", "train.py", "--lr", "0.1")
    assert (job.workdir, job.deadline, job.determinism, job.elastic, job.priority) == (".", None, "D1", True, 0)
    assert (job.checkpoint.every_s, job.checkpoint.keep, job.checkpoint.dir, job.retry.max) == (300.0, 2, None, 3)
    assert job.shares(8, 4) == (1, 2, 3, 4)


def test_every_key_of_the_design_is_read() -> None:
    text = """
name: digits-cnn
run: [python, train.py]
workdir: .
version: cnn-2
setup: [make -C kernels]
python: null
env: {OMP_SCHEDULE: static, N: 3}
secrets: [WANDB_API_KEY]
inputs: {digits: /data/digits, vocab: 'https://example.org/vocab.txt'}
outputs: [metrics.json, 'plots/*.png']
logical_workers: 8
steps: null
deadline: 2026-11-16T09:00:00+01:00
budget: 50 USD
max_runtime: 12h
memory: 16 GiB
devices: 1..8
device_types: null
determinism: D2
elastic: true
duration: null
patience: 10m
checkpoint: {every: 5m, keep: 2, dir: null}
retry: {max: 3}
after: {prepare: ok, cleanup: any}
hold: true
notify: [{webhook: 'https://example.org/hook', on: [started]}, {email: ann@example.org}, {command: tell --all}]
labels: {team: vision, year: 2026}
sweep: null
priority: 0
"""
    job = parse_job_text(text, "job.yaml")
    assert job.env == {"OMP_SCHEDULE": "static", "N": "3"}
    assert job.budget_usd == 50 and job.patience_s == 600 and job.max_runtime_s == 43200
    assert job.memory_bytes == 16 * 2**30
    assert job.dependencies == (Dependency("prepare", AfterEnd.OK), Dependency("cleanup", AfterEnd.ANY))
    assert job.labels == {"team": "vision", "year": "2026"} and job.notify[2].words == ("tell", "--all")
    assert set(JobFile.model_fields) == {line.split(":")[0] for line in text.strip().splitlines()}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run: x\ndeadlin: 5m", "unknown key 'deadlin'; did you mean 'deadline'?"),
        ("run: x\ncheckpoint: {evry: 1m}", "unknown key 'checkpoint.evry'; did you mean 'every'?"),
        ("run: x\nfrobnicate: 1", "unknown key 'frobnicate'; there are: name, run"),
        ("name: a", "run is missing"),
        ("run: x\ngpus: 2", "unknown key 'gpus'; it is called 'devices' here, as in devices: 1..8"),
        ("run: x\nnum_nodes: 2", "it is called 'devices' here"),
        ("run: x\nresources: {}", "it is called 'devices' here"),
        ("commands: [x]", "unknown key 'commands'; it is called 'run' here, as in run: python train.py --lr 0.1"),
        ("run: x\ntimeout: 1h", "it is called 'max_runtime' here, as in max_runtime: 12h"),
        ("run: x\ntime: 1h", "it is called 'max_runtime' here"),
        ("run: x\ndepends_on: a", "it is called 'after' here, as in after: prepare"),
        ("run: x\nneeds: a", "it is called 'after' here"),
        ("run: x\nfile_mounts: {}", "it is called 'inputs' here"),
        ("run: x\nvolumes: {}", "it is called 'inputs' here"),
        ("run: x\nenv: {A: }", "env.A is empty; it must be a text, as in env: {"),
        ("run: ''", "run: it is empty"),
        ("run: a && b", "run holds '&&', which only a shell understands"),
        ("run: a | b", 'write run: [bash, -c, "..."]'),
        ("run: a > out.txt", "run holds '>'"),
        ("run: python train.py --data $DATA", "run holds '$DATA'"),
        ('run: python train.py "--data=${DATA}"', "run holds '${DATA}'"),
        ("run: a; b", "run holds ';'"),
        (
            "run: LR=0.1 python t.py",
            "run holds 'LR=', which only a shell understands, and none reads it; set it with env:",
        ),
        ("run: |\n  python a.py\n  python b.py\n", "run holds several lines, which only a shell understands"),
        ("run: |\n  python a.py \\\n    --lr 1\n", "write one command on one line (a long one after `run: >-`)"),
        ("run: (python a.py)", "run holds '('"),
        ("run: 'python a.py # the first'", "run holds '#'"),
        (
            "run: cd src",
            "run holds 'cd', which only a shell understands, and none reads it; name the folder with workdir:",
        ),
        ("run: cd src && python t.py", "name the folder with workdir:, as in workdir: src"),
        ("run: export LR=1", "set variables with env:"),
        ("run: source venv/bin/activate", "name an interpreter with python:"),
        ("run: . venv/bin/activate", "run holds '.'"),
        ("run: alias a=b", "run holds 'alias'"),
        (
            "run: python t.py ~/data",
            "run holds '~', which only a shell understands, and none reads it; write the whole path",
        ),
        ("run: python t.py data/*.tar", "run holds '*'"),
        ("run: python t.py data/?.tar", "run holds '?'"),
        ("run: x\nnotify: [{command: tell > log}]", 'put it into a script, or write command: [bash, -c, "..."]'),
        ("run: x\nnotify: [{command: A=1 tell}]", "command holds 'A='"),
        ("run: x\nversion: two words", "version 'two words' must be one word"),
        ("run: x\nsetup: ['']", "setup holds an empty line"),
        ("run: x\nsetup: {}", "setup holds {}; it must be a text or a list"),
        ("run: x\ninputs: {a/b: /data}", "inputs: 'a/b' must be letters"),
        ("run: x\ninputs: {data: data}", "it must be an absolute path or an http(s) address"),
        ("run: x\ninputs: {data: 'ftp://host/x'}", "it must be an absolute path or an http(s) address"),
        ("run: x\noutputs: [../model.pt]", "must be a name or a pattern below $SPRINGTIDE_OUTPUT"),
        ("run: x\nmemory: plenty", "memory 'plenty' is not an amount of memory; write 500 MB, 16 GiB or 1.5 TB"),
        ("run: x\nmemory: 16", "memory is 16; it must be a text, as in memory: 16 GiB"),
        ("run: x\nmemory: 10 GiBs", "is not an amount of memory"),
        ("run: x\nmemory: 0 GB", "must be at least 1 MB"),
        ("run: x\nmemory: 99999999999 TB", "at most 1000 TB"),
        ("run: x\nmax_runtime: soon", "max_runtime 'soon' is not a span"),
        ("run: x\nelastic: false\ndevices: 1\nduration: 2h\nmax_runtime: 1h", "is longer than max_runtime 1h"),
        ("run: x\nafter: {a: maybe}", "a mapping from names to ok, any or failed"),
        ("run: x\nafter: ['']", "after: '' is not a job"),
        ("run: x\nhold: 1", "hold is 1; it must be true or false, as in hold: true"),
        ("run: x\ninputs: /data", "inputs is '/data'; it must be a mapping, as in inputs: {digits: /data/digits,"),
        ("run: x\ninputs: {data: 3}", "inputs.data is 3; it must be a text, as in inputs: {digits:"),
        ("run: x\noutputs: a.json", "outputs is 'a.json'; it must be a list, as in outputs: [metrics.json,"),
        ("run: x\nmax_runtime: 5", "max_runtime is 5; it must be a text, as in max_runtime: 12h"),
        ("run: x\nenv: [A=1]", "env is ['A=1']; it must be a mapping, as in env: {"),
        ("run: x\nlabels: [a]", "labels is ['a']; it must be a mapping, as in labels: {"),
        ("run: x\nnotify: {email: a@b.org}", "it must be a list, as in notify: [{"),
        ("run: x\nnotify: [ann]", "notify.0 is 'ann'; it must be a mapping, as in notify: [{"),
        ("run: x\nsecrets: {A: key}", "secrets must be a list, as in secrets: [WANDB_API_KEY]"),
        ("run: x\nsweep: 3", "sweep is 3; it must be a mapping, as in sweep: {"),
        ("run: x\nsweep: {grid: {lr: []}}", "sweep.grid.lr is []; it must be a list of one or more, as in sweep: {"),
        ("run: x\nsweep: {grid: {a: [1]}, promise: no}", "it must be 'each' or 'whole', as in sweep: {"),
        ("run: x\nnotify: [{webhok: a}]", "unknown key 'notify.0.webhok'; did you mean 'webhook'?"),
        ("run: x\nnotify: [{on: [ended]}]", "exactly one of webhook, email and command"),
        ("run: x\nnotify: [{email: a@b, command: c}]", "exactly one of webhook, email and command"),
        ("run: x\nnotify: [{webhook: 'file:///etc/passwd'}]", "is not an address; write https://host/path"),
        ('run: x\nnotify: [{email: "a@b\\nBcc: c@d"}]', "is not one address"),
        ("run: x\nnotify: [{email: a@b, on: [often]}]", "notify.0.on.0 is 'often'"),
        ("run: x\nlabels: {Team: a}", "labels: 'Team' must be lower-case"),
        ("run: x\nlabels: {team: a b}", "labels: team is 'a b'"),
        (
            f"run: x\nsweep: {{promise: whole, grid: {{a: {list(range(101))}}}}}",
            "at most 100 can be promised as a whole",
        ),
        ("run: x\nsweep: {}", "sweep needs either grid or cases"),
        ("run: x\nsweep: {grid: {}}", "sweep.grid is empty"),
        ("run: x\nsweep: {grid: {lr: 3}}", "sweep.grid.lr is 3"),
        ("run: x\nsweep: {grid: {lr: [true]}}", "lr holds true or false; quote it"),
        ("run: x\nsweep: {grid: {LD_PRELOAD: [a]}}", "LD_PRELOAD is reserved"),
        ("run: x\nsweep: {cases: [{lr: 1}], grid: {lr: [1]}}", "sweep needs either grid or cases"),
        ("run: x\nsweep: {cases: [{lr: 1}]}\ncheckpoint: {dir: /a}", "checkpoint.dir cannot be shared"),
        ("run: 'a \"b'", "cannot be split into words"),
        ("run: 3", "run holds 3; it must be a text or a list of texts"),
        ("run: x\nname: Digits", "name 'Digits' must be a lower-case letter"),
        ("run: x\nname: ../etc", "name '../etc' must be a lower-case letter"),
        ("run: x\ndeadline: 90", "deadline holds 90; it must be a span"),
        ("run: x\ndeadline: 2026-11-16T09:00:00", "has no time zone"),
        ("run: x\ndevices: 8..2", "is empty: 8 is above 2"),
        ("run: x\ndevices: [0]", "from 1 to 65536"),
        ("run: x\ndevices: true", "devices holds True; it must be a number"),
        ("run: x\nbudget: 50 EUR", "'50 EUR' is not an amount"),
        ("run: x\nelastic: false", "needs a fixed number of devices"),
        ("run: x\nduration: 5m", "duration is only for jobs with elastic: false"),
        ("run: x\nlogical_workers: 2\ndevices: 4", "a device holds at least one logical worker"),
        ("run: x\nenv: {A: yes, B: true}", "B is true; quote it"),
        ("run: x\nenv: {SPRINGTIDE_HOME: x}", "SPRINGTIDE_HOME is reserved"),
        ("run: x\nenv: {LD_PRELOAD: x}", "LD_PRELOAD is reserved"),
        ("run: x\nenv: {'A B': x}", "'A B' is not the name of an environment variable"),
        ("run: x\nenv: {A: x}\nsecrets: [A]", "A is in both env and secrets"),
        ("run: x\ncheckpoint: {dir: ../x}", "must be an absolute path"),
        ("run: x\nrun: y", "line 2: key 'run' is given twice"),
        ("a: &x [1]\nrun: *x", "line 2: aliases"),
        ("- run", "holds a list"),
        ("", "holds nothing"),
        ("run: [", "is not YAML"),
        ("run: " + "[" * 3000, "nested too deeply"),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(text: str, message: str) -> None:
    with pytest.raises(JobError) as caught:
        parse_job_text(text, "job.yaml")
    assert message in str(caught.value)
    assert str(caught.value).startswith("job.yaml")


def test_everything_that_is_wrong_is_listed_at_once() -> None:
    with pytest.raises(JobError, match=r"name .*; deadline .*; devices"):
        parse_job_text("run: x\nname: A\ndeadline: 5x\ndevices: 0..0", "job.yaml")


def test_ranges_are_tried_one_by_one_and_then_by_powers_of_two() -> None:
    assert list_devices("1..4") == (1, 2, 3, 4)
    assert list_devices(4) == (4,)
    assert list_devices([4, 1, 2]) == (1, 2, 4)
    assert list_devices("1..100") == (*range(1, 17), 32, 64, 100)


@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 200), st.integers(1, 200))
def test_shares_stay_within_the_wish_the_workers_and_the_cluster(a: int, b: int, workers: int, most: int) -> None:
    low, high = sorted((a, b))
    for share in check_job({"run": "x", "devices": f"{low}..{high}"}, "test").shares(workers, most):
        assert low <= share <= min(high, workers, most)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    ).flatmap(lambda value: st.sampled_from(sorted(JobFile.model_fields)).map(lambda key: {"run": "x", key: value}))
)
def test_any_value_is_taken_or_refused_with_a_sentence(document: dict[str, Any]) -> None:
    try:
        check_job(document, "test")
    except JobError as error:
        assert str(error).startswith("test: ")


@pytest.mark.parametrize("name", JobFile.model_fields)
def test_every_example_of_a_key_can_be_written(name: str) -> None:
    needs: dict[str, dict[str, Any]] = {"elastic": {"devices": 4}, "duration": {"elastic": False, "devices": 4}}
    for example in JobFile.model_fields[name].examples or ():
        document = {"run": "python train.py", **needs.get(name, {}), name: example}
        assert name in check_job(document, "job").model_fields_set


def test_what_was_taken_before_is_still_read_from_the_store() -> None:
    stored = JobFile.model_validate({"run": "echo a | cat"}, context=STORED)
    assert stored.words == ("echo", "a", "|", "cat")


def test_what_a_program_is_to_get_can_be_quoted() -> None:
    for text in ("grep 'a|b' x", r"echo \$HOME", 'bash -c "a && b"', "python x.py --price 5$ '$HOME'"):
        assert parse_job_text(json.dumps({"run": text}), "job.yaml").run == text


@pytest.mark.parametrize(
    "text", ["a '*' \"(b)\"", r"a \* '# b'", "a '~/b' c~d", "a --colour=#fff", "a 'LR=1\nb'", "a b=c", "python t.py\n"]
)
def test_what_a_shell_would_leave_alone_is_taken(text: str) -> None:
    assert parse_job_text(json.dumps({"run": text, "notify": [{"command": text}]}), "job.yaml").run == text


def test_the_schema_names_every_key() -> None:
    schema = build_schema()
    assert set(schema["properties"]) == set(JobFile.model_fields)
    assert schema["required"] == ["run"]
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("deadline: 1:30", "deadline '1:30' is not a span of time"),
        ("duration: 1:30:00", "duration '1:30:00' is not a span of time"),
        ("steps: 1:30", "steps is '1:30'"),
        ("steps: 010", "steps is '010'"),
        ("steps: 0x10", "steps is '0x10'"),
        ("devices: 1:2", "'1:2' is neither a number, a range"),
    ],
)
def test_a_number_that_yaml_would_read_otherwise_is_refused(line: str, sentence: str) -> None:
    with pytest.raises(JobError) as refused:
        parse_job_text(f"run: python train.py\n{line}\n", "job.yaml")
    assert sentence in str(refused.value)


def test_values_of_env_are_kept_as_they_are_written() -> None:
    job = parse_job_text("run: x\nenv: {A: 1:30, B: 010, C: 0x1F, D: 12:34:56, E: 1_000}\n", "job.yaml")
    assert job.env == {"A": "1:30", "B": "010", "C": "0x1F", "D": "12:34:56", "E": "1000"}


@pytest.mark.parametrize("key", ["", " ", "[]", "a.b", "&a", "0"])
def test_a_key_of_any_kind_is_refused_in_a_sentence(key: str) -> None:
    with pytest.raises(JobError, match="unknown key"):
        check_job({"run": "python train.py", key: 1}, "job.yaml")


def test_a_changed_copy_says_what_it_says() -> None:
    job = check_job({"run": "python a.py", "steps": 5}, "test")
    assert (job.words, job.document) == (("python", "a.py"), {"run": "python a.py", "steps": 5})
    other = job.model_copy(update={"run": "python b.py", "steps": 7})
    assert (other.words, other.document) == (("python", "b.py"), {"run": "python b.py", "steps": 7})
    assert job.document["steps"] == 5
