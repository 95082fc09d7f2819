import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.client.packing import pack
from springtide.control.storage.archives import check_archive, unpack
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
