"""The guide "from your laptop to a cluster", typed line by line on machines with networks of their own.

A machine is a network namespace with an address, a host name and a folder for temporary files. What a reader puts in
place of what the guide says is put there too: the token, the shared folder, and a script of one's own.
"""

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from benchmarks.host_networks import can_make_networks, ip
from tests.cluster.ray_clusters import needs_ray
from tests.executors.hosts.loopback_cluster import wait_until
from tests.follow_docs import BLOCK, ROOT

import springtide

pytestmark = [
    needs_ray,
    pytest.mark.slow,
    pytest.mark.skipif(not can_make_networks(), reason="machines are network namespaces, which need root and `ip`"),
]
GUIDE = ROOT / "docs" / "guides" / "clusters.md"
EXAMPLES = Path(springtide.__file__).parent / "examples"
#: As the guide has it.
HEAD, SHARED = "10.0.0.5", "/shared/springtide"
NET = HEAD.rpartition(".")[0]


@dataclass
class Machines:
    """Machines on one cable."""

    folder: Path
    bridge: str = field(default_factory=lambda: f"stg{os.getpid() % 100000}")
    spaces: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> "Machines":
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", f"{NET}.1/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        return self

    def add(self, name: str, address: str) -> None:
        """A machine with a name and an address."""
        space = self.spaces[name] = f"{self.bridge}-{name}"
        cable = f"{self.bridge}v{len(self.spaces)}"
        ip("netns", "add", space)
        ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
        ip("link", "set", cable, "master", self.bridge, "up")
        ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            ip("-n", space, "link", "set", device, "up")
        ip("-n", space, "route", "add", "default", "via", f"{NET}.1")
        (self.folder / name).mkdir()

    def type(self, name: str, text: str) -> subprocess.Popen[str]:
        """Type lines into a shell on a machine; the shell ends with them."""
        path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        place = self.folder / name
        environ = {"PATH": path, "LANG": "C.UTF-8", "TERM": "dumb", "HOME": str(place), "TMPDIR": str(place)}
        called = ["unshare", "--uts", "sh", "-c", f'hostname {name} && exec "$@"', name]
        return subprocess.Popen(
            ["ip", "netns", "exec", self.spaces[name], *called, "bash", "--noprofile", "--norc", "-ec", text],
            cwd=place,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, name: str, text: str, patience_s: float = 280.0) -> str:
        """Type lines that end, and end well; what they said."""
        code, said = self.ask(name, text, patience_s)
        assert code == 0, f"{text}\n{said}"
        return said

    def ask(self, name: str, text: str, patience_s: float = 280.0) -> tuple[int, str]:
        """Type lines that end; how, and what they said."""
        shell = self.type(name, text)
        said, _ = shell.communicate(timeout=patience_s)
        return shell.returncode, said

    def __exit__(self, *exception: object) -> None:
        for space in self.spaces.values():
            listed = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=True)
            for pid in map(int, listed.stdout.split()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            ip("netns", "del", space)
        ip("link", "del", self.bridge)


@pytest.fixture
def machines() -> Iterator[Machines]:
    with tempfile.TemporaryDirectory(prefix="st-") as short, Machines(Path(short)) as made:
        made.add("head", HEAD)
        made.add("h1", f"{NET}.6")
        made.add("h2", f"{NET}.7")
        yield made


def read_guide(token: str, shared: Path) -> dict[str, str]:
    """What is to be typed in each section, with what the reader fills in."""
    sections = re.split(r"^## ", GUIDE.read_text(), flags=re.M)[1:]
    found = {}
    for section in sections:
        blocks = "".join(match["text"] for match in BLOCK.finditer(section))
        typed = blocks.replace("RAY_AUTH_TOKEN=... ", f"RAY_AUTH_TOKEN={token} ").replace(SHARED, str(shared))
        found[section.splitlines()[0]] = typed
    return found


def test_the_guide_leads_from_a_laptop_to_a_cluster(machines: Machines, tmp_path: Path) -> None:
    token, shared = secrets.token_hex(32), tmp_path / "shared"
    guide = read_guide(token, shared)
    chosen = f"$(echo {token})"  # the token that the first line would make
    first = re.sub(r"\$\(python -c .*?\)$", lambda match: chosen, guide["1. The head"], flags=re.M)
    assert chosen in first and "ray start --head" in first
    export = first.splitlines()[0]
    machines.run("head", first)
    hosts = [machines.type(name, guide["2. The hosts"]) for name in ("h1", "h2")]
    look = f"{export}\n{guide['3. Look']}"
    seen = [(1, "")]

    def are_there() -> bool:
        seen[0] = machines.ask("head", look)
        return "2 hosts" in seen[0][1]

    wait_until(are_there, lambda: seen[0][1])
    assert seen[0][0] == 0, seen[0][1]
    home = f"{export}\nexport SPRINGTIDE_HOME={shared}\n"
    server = machines.type("head", home + guide["4. Serve"])
    wait_until(lambda: machines.ask("head", f"{home}springtide nodes")[0] == 0, lambda: "no server")
    nodes = machines.run("head", f"{home}springtide nodes")
    assert "h1" in nodes and "h2" in nodes, nodes
    shutil.copytree(EXAMPLES / "cnn", machines.folder / "head" / "work")
    machines.run("head", f"{home}cd work\nspringtide submit job.yaml\nspringtide logs -f digits-cnn", 400.0)
    assert "succeeded" in machines.run("head", f"{home}springtide status digits-cnn")
    proved = machines.run("head", f"{home}cd work\n{guide['5. Prove it']}", 400.0)
    assert "cases identical" in proved, proved
    machines.run("head", f"{home}springtide stop")
    server.communicate(timeout=60)
    for host in hosts:
        tell_join(host)
        host.communicate(timeout=90)
        assert host.returncode == 0


def tell_join(shell: subprocess.Popen[str]) -> None:
    """Ctrl-C in the shell where `springtide join` runs."""
    typed = psutil.Process(shell.pid)
    for process in (typed, *typed.children(recursive=True)):
        if "join" in process.cmdline():
            process.send_signal(signal.SIGINT)
