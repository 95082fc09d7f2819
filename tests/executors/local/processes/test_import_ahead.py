"""Imports ahead of a script's own: threads of libraries that take care of forks leave a server fit, others do not."""

import subprocess
import sys
from pathlib import Path

TRY = """
import sys
from springtide.executors.local.processes.fork_server_main import import_ahead
sys.path.insert(0, sys.argv[1])
assert import_ahead(["scipy.linalg:solve", "sklearn.linear_model", "lazy:part,other", "nowhere"])
assert "lazy_part" in sys.modules
assert not import_ahead(["starting"])
"""


def test_a_pool_of_a_library_that_knows_of_forks_is_no_hindrance(tmp_path: Path) -> None:
    """scipy brings an OpenBLAS of its own, with threads of its own: no script with it was ever imported ahead."""
    (tmp_path / "lazy.py").write_text(
        "def __getattr__(name):\n    if name != 'part':\n        raise AttributeError(name)\n"
        "    import lazy_part\n    return lazy_part\n"
    )
    (tmp_path / "lazy_part.py").touch()
    (tmp_path / "starting.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    done = subprocess.run([sys.executable, "-c", TRY, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "nowhere was not imported ahead" in done.stderr
