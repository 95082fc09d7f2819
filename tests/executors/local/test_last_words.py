import traceback

import pytest

from springtide.executors.local.jobs.last_words import sum_up

TRACEBACK = """loading the data
Traceback (most recent call last):
File "/opt/springtide/fork_server_main.py", line 157, in run_script
runpy.run_path(script, run_name="__main__")
File "<frozen runpy>", line 88, in _run_code
File "train.py", line 3, in <module>
raise ValueError("no such file: data.bin")
ValueError: no such file: data.bin"""


def test_of_a_traceback_the_error_and_the_line_of_the_script_are_told() -> None:
    assert sum_up(TRACEBACK.splitlines()) == "ValueError: no such file: data.bin (train.py, line 3)"


def test_the_line_of_the_script_is_told_where_a_package_has_raised() -> None:
    inner = ['File "/x/site-packages/torch/nn.py", line 9, in forward', "return f(x)", "^^^^", "RuntimeError: 3 x 4"]
    assert sum_up([*TRACEBACK.splitlines()[:-1], *inner]) == "RuntimeError: 3 x 4 (train.py, line 3)"


def test_the_error_is_told_whole_where_a_frame_has_no_line_of_code() -> None:
    made = [*TRACEBACK.splitlines()[:-2], 'File "<string>", line 1, in <module>', "RuntimeError: one", "two"]
    assert sum_up(made).startswith("RuntimeError: one | two")


def test_a_module_of_the_users_in_a_folder_of_our_name_is_theirs() -> None:
    own = ['File "/home/me/springtide/model.py", line 7, in forward', "return x @ y", "RuntimeError: 3 x 4"]
    assert sum_up([*TRACEBACK.splitlines()[:-2], *own]) == (
        "RuntimeError: 3 x 4 (/home/me/springtide/model.py, line 7)"
    )


def test_the_last_of_several_tracebacks_counts() -> None:
    later = TRACEBACK.replace("ValueError", "KeyError").splitlines()
    assert sum_up([*TRACEBACK.splitlines(), *later]).startswith("KeyError")


@pytest.mark.parametrize("error", [ZeroDivisionError("by 0"), AssertionError(), RuntimeError("one\ntwo")])
def test_what_python_prints_is_understood(error: Exception) -> None:
    try:
        raise error
    except Exception as caught:
        lines = [line.strip() for line in "".join(traceback.format_exception(caught)).splitlines() if line.strip()]
    told = sum_up(lines)
    assert told.startswith(type(error).__name__) and "test_last_words.py, line" in told


@pytest.mark.parametrize(
    ("lines", "told"), [([], ""), (["Killed"], "Killed"), (["Traceback (most recent call last):"], "Traceback (most")]
)
def test_other_words_are_told_as_they_are(lines: list[str], told: str) -> None:
    assert sum_up(lines).startswith(told)


def test_a_refusal_is_told_whole_and_without_what_the_script_printed_before() -> None:
    refusal = ["error: a step was unpacked. Walk it:", *[f"line {number}" for number in range(6)]]
    told = sum_up(["epoch 0", "loss 1.25", *refusal])
    assert told == " | ".join(refusal).removeprefix("error: ")
    assert sum_up([*refusal, *TRACEBACK.splitlines()]) == sum_up(TRACEBACK.splitlines())


def test_an_error_that_a_script_has_overcome_is_not_its_last_word() -> None:
    later = [f"epoch {number}" for number in range(40)]
    told = sum_up(["error: no such file, so another is taken", *later, "Killed"])
    assert told == " | ".join([*later[-4:], "Killed"])
