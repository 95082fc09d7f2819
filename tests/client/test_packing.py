import os
from pathlib import Path

import pytest

from springtide.client.packing import list_files, list_withheld, pack
from springtide.errors import ArchiveError


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_equal_folders_give_equal_hashes_whatever_their_times(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, train_dot_py="print(1)", sub__model_dot_py="x = 1")
    os.utime(tmp_path / "a" / "train.py", (1, 1))
    assert pack(tmp_path / "a") == pack(tmp_path / "b")
    (tmp_path / "b" / "train.py").write_text("print(2)")
    assert pack(tmp_path / "a").code_hash != pack(tmp_path / "b").code_hash


def test_ignore_files_are_honoured_as_git_does(tmp_path: Path) -> None:
    write(
        tmp_path,
        _dot_gitignore="*.log\n/data/\n!keep.log\n**/deep/x.txt\n",
        _dot_springtideignore="secret.txt\n",
        a_dot_log="",
        keep_dot_log="",
        data__big="",
        sub__data__kept="",
        secret_dot_txt="",
        p__deep__x_dot_txt="",
        sub___dot_gitignore="local.py\n",
        sub__local_dot_py="",
        local_dot_py="",
        __pycache____m_dot_pyc="",
    )
    found = set(list_files(tmp_path))
    assert found == {".gitignore", ".springtideignore", "keep.log", "sub/data/kept", "sub/.gitignore", "local.py"}


def test_a_folder_over_the_limit_is_refused_with_its_five_largest_files(tmp_path: Path) -> None:
    for number in range(7):
        (tmp_path / f"f{number}").write_bytes(b"x" * 1000 * (number + 1))
    with pytest.raises(ArchiveError, match=r"largest are: f6 .*, f5 .*, f4 .*, f3 .*, f2 .*springtideignore"):
        pack(tmp_path, limit_bytes=10_000)


def test_links_and_missing_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(ArchiveError, match="is a link"):
        pack(tmp_path)
    with pytest.raises(ArchiveError, match="is not a folder"):
        pack(tmp_path / "nowhere")


def test_ignore_rules_may_hold_spaces_classes_and_escapes_and_the_innermost_wins(tmp_path: Path) -> None:
    write(
        tmp_path,
        _dot_gitignore="run[0-9].txt\n\\#notes\nbuild/*\n!build/keep\ntwo\\ words\n*.bin\n",
        run1_dot_txt="",
        runx_dot_txt="",
        build__gone="",
        build__keep="",
        sub___dot_gitignore="!*.bin\n",
        sub__weights_dot_bin="",
        weights_dot_bin="",
    )
    (tmp_path / "#notes").write_text("")
    (tmp_path / "two words").write_text("")
    assert set(list_files(tmp_path)) == {".gitignore", "runx.txt", "build/keep", "sub/.gitignore", "sub/weights.bin"}


def test_files_that_usually_hold_secrets_stay_here_and_are_named(tmp_path: Path) -> None:
    write(
        tmp_path,
        train_dot_py="",
        _dot_env="TOKEN=x",
        _dot_env_dot_local="",
        _dot_env_dot_example="",
        sub___dot_env="",
        sub__server_dot_key="",
        _dot_ssh__id_rsa="",
        ignored___dot_env="",
        _dot_gitignore="ignored/",
    )
    assert list(list_files(tmp_path)) == [".env.example", ".gitignore", "train.py"]
    assert list_withheld(tmp_path) == [".env", ".env.local", ".ssh/", "sub/.env", "sub/server.key"]
    write(tmp_path, _dot_springtideignore="!.env\n.ssh/\n")
    assert {".env", "sub/.env"} <= set(list_files(tmp_path))
    assert list_withheld(tmp_path) == [".env.local", "sub/server.key"]
