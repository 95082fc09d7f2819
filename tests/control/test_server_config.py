from pathlib import Path

import pytest

from springtide.control.scheduling.server_context import ServerOptions
from springtide.control.server import Listening
from springtide.control.server_config import KEYS, read_config
from springtide.control.storage.state_dir import StateDir
from springtide.errors import InputError


def write(folder: Path, text: str) -> StateDir:
    home = StateDir(folder)
    home.config.write_text(text)
    return home


def test_the_file_sets_what_the_command_line_leaves_open(tmp_path: Path) -> None:
    home = write(tmp_path, "policy: elasticflow\nburst: 7\n")
    assert read_config(home, ServerOptions()) == ServerOptions(policy="elasticflow", burst=7)


def test_the_command_line_goes_first(tmp_path: Path) -> None:
    home = write(tmp_path, "policy: elasticflow\nclouds: aws\n")
    assert read_config(home, ServerOptions(policy="edf")) == ServerOptions(policy="edf", clouds="aws")


def test_an_unknown_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="bursts is not known"):
        read_config(write(tmp_path, "bursts: 7\n"), ServerOptions())


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("burst: many", "burst is 'many': input should be a valid integer"),
        ("burst: true", "burst is True: input should be a valid integer"),
        ("burst: 0", "burst is 0: input should be greater than or equal to 1"),
        ("keep_days: -1", "keep_days is -1: input should be greater than or equal to 1"),
        ("keep_days: 1:30", "keep_days is '1:30'"),
        ("rate_per_s: .inf", "rate_per_s is '.inf'"),
        ("policy: 7", "policy is 7: input should be a valid string"),
        ("archive_limit_bytes: 1.5", "archive_limit_bytes is 1.5: input should be a valid integer"),
        ("nodes: 0", "nodes is 0"),
        ("most_memory: a lot", "most_memory 'a lot' is not an amount of memory"),
        ("most_memory: 7", "most_memory is 7: input should be a valid string"),
        ("warm_memory: much", "warm_memory 'much' is not an amount of memory"),
        ("most_processes: 1", "most_processes is 1: input should be greater than or equal to 100"),
        ("idle_patience_s: 0", "idle_patience_s is 0: input should be greater than or equal to 5"),
        ("warm_servers: -1", "warm_servers is -1"),
        ("warm_s: .nan", "warm_s is '.nan'"),
        ("xyz: 1", "xyz is not known; there are: archive_limit_bytes, burst"),
        ("- 1", "is not a mapping"),
        ("burst: 1\nburst: 2", "key 'burst' is given twice"),
        ("a: &x 1\nb: *x", "aliases"),
        ("burst: [", "is not YAML"),
    ],
)
def test_a_value_that_cannot_be_is_refused_in_a_sentence(tmp_path: Path, line: str, sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        read_config(write(tmp_path, line + "\n"), ServerOptions())
    assert sentence in str(refused.value)
    assert "server.yaml" in str(refused.value)


def test_every_option_can_be_set_and_an_empty_file_sets_none(tmp_path: Path) -> None:
    assert set(KEYS) == set(ServerOptions.__dataclass_fields__)
    assert read_config(write(tmp_path, "# nothing\n"), ServerOptions()) == ServerOptions()


def test_an_empty_host_is_not_every_network() -> None:
    with pytest.raises(InputError, match=r"write 0\.0\.0\.0 if you mean that"):
        Listening("")
