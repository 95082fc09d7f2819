"""The guide "what will it cost", followed literally: every console line is run in a shell and must end well."""

import os
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "what-will-it-cost.md"


def test_every_command_of_the_guide_works(tmp_path: Path) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    commands = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    assert len(commands) >= 6
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = os.environ | {"PATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for command in commands:
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert (tmp_path / "plans.png").is_file()
    assert "instance_type:" in (tmp_path / "resnet50.yaml").read_text(encoding="utf-8")
