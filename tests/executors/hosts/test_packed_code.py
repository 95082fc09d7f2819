"""Archives of code on the lead's disk: packed once, and gone when nobody has asked for them for a while."""

import time
from pathlib import Path

from springtide.executors.hosts.packed_code import KEPT_S, PackedCode


def test_what_nobody_uses_any_more_goes_and_is_packed_again_if_need_be(tmp_path: Path) -> None:
    code = PackedCode(tmp_path / "packed")
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text(name)
    old, new = (code.pack(str(tmp_path / name)) for name in ("old", "new"))
    code.used_s[old] = code.used_s[new] = time.monotonic() - KEPT_S
    assert code.read(new, 0).data, "a host is about to have it"
    code.pack(str(tmp_path / "new"))
    assert [path.name for path in code.folder.iterdir()] == [new] and code.read(old, 0).failure
    assert code.pack(str(tmp_path / "old")) == old and code.read(old, 0).data
