"""What the hosts of a Ray cluster have, before a server uses them: for `springtide doctor --engine ray`."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from springtide import __version__
from springtide.executors.hosts.lead_address import WITNESS
from springtide.executors.ray.ray_executor import KeeperProcess


@dataclass(frozen=True, slots=True)
class SurveyedHost:
    """A host: what is there, what keeps it from working, and what is only worth knowing."""

    name: str
    seen: str
    problem: str = ""
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Survey:
    """A cluster and its hosts."""

    ray: str
    python: str
    hosts: tuple[SurveyedHost, ...]


def survey(address: str, home: Path, needs_home: bool = True) -> Survey:
    """Look at every node: its Python, torch and springtide, and whether it sees the home, if it needs to."""
    witness, content = home / f"{WITNESS}.{secrets.token_hex(4)}", secrets.token_hex(16)
    keeper = KeeperProcess(address, home, None, ("--survey", str(witness)))
    keeper.connect()
    try:
        witness.write_text(content)
        keeper.write("go")
        answer = keeper.read_line()
    finally:
        witness.unlink(missing_ok=True)
        keeper.close()
    seen = sorted(answer["hosts"].items())
    hosts = tuple(judge(name, said, content if needs_home else None, str(home)) for name, said in seen)
    return Survey(str(keeper.connection["ray"]), str(keeper.connection["python"]), hosts)


def judge(name: str, said: Mapping[str, Any], content: str | None, home: str) -> SurveyedHost:
    """What is wrong with a host; `content` is what it must read in the home, None: nothing. Pure."""
    if "error" in said:
        remedy = f"install springtide[train,ray]=={__version__} in the Python that Ray uses there"
        return SurveyedHost(name, str(said["error"]), remedy)
    seen = f"Python {said['python']}, torch {said['torch'] or 'none'}, {said['devices']}"
    if said["version"] != __version__:
        problem = f"it has springtide {said['version']}, this machine {__version__}: install the same on both"
    elif not said["torch"]:
        problem = "it has no torch: install springtide[train] there"
    elif content is not None and said["witness"] != content:
        remedy = "put the home on storage that all hosts share, or serve with --storage URL"
        problem = f"it does not see {home} as this machine does: {remedy}"
    else:
        problem = ""
    nice = int(said["nice"])
    remark = f"processes there start at nice {nice}: set RAY_worker_niceness=0 where its raylet starts" if nice else ""
    return SurveyedHost(name, seen, problem, remark)
