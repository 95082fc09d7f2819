import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.control.storage.archives import check_archive, list_files, pack, unpack
from springtide.errors import ArchiveError


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def make_tar(member: tarfile.TarInfo, data: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


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


def test_unpacking_gives_back_the_files_and_happens_once(tmp_path: Path) -> None:
    write(tmp_path / "a", train_dot_py="print(1)", sub__m_dot_py="2")
    archive = pack(tmp_path / "a")
    target = tmp_path / "code" / archive.code_hash
    unpack(archive.data, target)
    unpack(archive.data, target)
    assert (target / "sub" / "m.py").read_text() == "2"
    assert [path.name for path in (tmp_path / "code").iterdir()] == [archive.code_hash]


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", "."])
def test_members_that_reach_outside_are_refused(name: str) -> None:
    with pytest.raises(ArchiveError, match="does not stay inside"):
        check_archive(make_tar(tarfile.TarInfo(name)))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_members_that_are_no_files_are_refused(kind: bytes) -> None:
    member = tarfile.TarInfo("x")
    member.type = kind
    member.linkname = "/etc/passwd"
    with pytest.raises(ArchiveError, match="only regular files"):
        check_archive(make_tar(member))


@given(st.binary(max_size=2000))
def test_any_bytes_are_taken_or_refused(data: bytes) -> None:
    try:
        check_archive(data)
    except ArchiveError:
        return
