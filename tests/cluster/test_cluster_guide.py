"""The guide "from your laptop to a cluster", typed line by line on machines with networks of their own.

A machine is a network namespace with an address, a host name, a /tmp of its own, and a folder that all of them see;
what it knows of names is in its /etc/hosts. What a reader puts in place of what the guide says is put there too: the
token, the shared folder, and a script of one's own.
"""

import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from benchmarks.host_networks import HostNetwork, can_make_networks
from tests.cluster.ray_clusters import needs_ray
from tests.executors.hosts.loopback_cluster import wait_until
from tests.follow_docs import BLOCK, ROOT

import springtide

pytestmark = [
    needs_ray,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not can_make_networks(), reason="machines are network namespaces, which need root and `ip`"),
]
GUIDE = ROOT / "docs" / "guides" / "clusters.md"
EXAMPLES = Path(springtide.__file__).parent / "examples"
#: As the guide has them; what the machines share is mounted where every system has a folder for that.
NET, HEAD, SHARED, MOUNT = "10.0.0", 5, "/shared", "/mnt"
ENTER = f"""set -e; hostname "$1"
mount --bind "$2/shared" {MOUNT}; mount --bind "$2/hosts" /etc/hosts; mount --bind "$2/$1" /tmp
cd /tmp; shift 2; exec "$@"
"""


@dataclass
class Machines:
    """Machines on one cable, each with a shell to type into."""

    folder: Path
    network: HostNetwork

    def add(self, name: str, number: int) -> None:
        """A machine with a name and an address."""
        self.network.add(name, number)
        with (self.folder / "hosts").open("a") as hosts:
            print(f"{NET}.{number} {name}", file=hosts)
        (self.folder / name).mkdir()

    def type(self, name: str, text: str) -> subprocess.Popen[str]:
        """Type lines into a shell on a machine; the shell ends with them."""
        path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        environ = {"PATH": path, "LANG": "C.UTF-8", "TERM": "dumb", "HOME": "/tmp"}
        inside = ["unshare", "--uts", "--mount", "sh", "-c", ENTER, "sh", name, str(self.folder)]
        return subprocess.Popen(
            [*self.network.enter(name), *inside, "bash", "--noprofile", "--norc", "-ec", text],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, name: str, text: str) -> str:
        """Type lines that end, and end well; what they said."""
        code, said = self.ask(name, text)
        assert code == 0, f"{text}\n{said}"
        return said

    def ask(self, name: str, text: str) -> tuple[int, str]:
        """Type lines that end; how, and what they said."""
        shell = self.type(name, text)
        said, _ = shell.communicate()
        return shell.returncode, said


@pytest.fixture
def machines() -> Iterator[Machines]:
    network = HostNetwork(NET, has_this_machine=False)
    try:
        with tempfile.TemporaryDirectory(prefix="st-", ignore_cleanup_errors=True) as short:
            made = Machines(Path(short), network)
            (made.folder / "shared").mkdir()
            (made.folder / "hosts").write_text("127.0.0.1 localhost\n")
            made.add("head", HEAD)
            made.add("h1", 6)
            made.add("h2", 7)
            yield made
    finally:
        network.close()


def read_guide(token: str) -> dict[str, str]:
    """What is to be typed in each section, with what the reader fills in."""
    found = {}
    for section in re.split(r"^## ", GUIDE.read_text(), flags=re.M)[1:]:
        blocks = "".join(match["text"] for match in BLOCK.finditer(section))
        typed = "".join(line.removeprefix("$ ") + "\n" for line in blocks.splitlines())
        typed = typed.replace("RAY_AUTH_TOKEN=... ", f"RAY_AUTH_TOKEN={token} ").replace(SHARED, MOUNT)
        found[section.splitlines()[0]] = typed
    return found


def test_the_guide_leads_from_a_laptop_to_a_cluster(machines: Machines) -> None:
    token = secrets.token_hex(32)
    guide = read_guide(token)
    first, count = re.subn(r"\$\(python -c .*?\)$", token, guide["1. The head"], flags=re.M)
    assert count == 1 and "ray start --head" in first, "the token that the first line would make is ours"
    export = first.splitlines()[0]
    machines.run("head", first)
    hosts = [machines.type(name, guide["2. The hosts"]) for name in ("h1", "h2")]
    for host in hosts:
        await_line(host, "Ray runtime started")
    looked = machines.run("head", f"{export}\n{guide['3. Look']}")
    assert "2 hosts" in looked, looked
    home = f"{export}\n{guide['3. Look'].splitlines()[0]}\n"
    assert "SPRINGTIDE_HOME" in home
    server = machines.type("head", home + guide["4. Serve"])
    await_line(server, "springtide at http://")
    wait_until(lambda: machines.ask("head", f"{home}springtide nodes")[0] == 0, lambda: "no server")
    nodes = machines.run("head", f"{home}springtide nodes")
    assert "h1" in nodes and "h2" in nodes, nodes
    shutil.copytree(EXAMPLES / "cnn", machines.folder / "head" / "work")
    machines.run("head", f"{home}cd work\nspringtide submit job.yaml\nspringtide logs -f digits-cnn")
    assert "succeeded" in machines.run("head", f"{home}springtide status digits-cnn")
    proved = machines.run("head", f"{home}cd work\n{guide['5. Prove it']}")
    assert "cases identical" in proved, proved
    machines.run("head", f"{home}springtide stop")
    server.communicate(timeout=60)
    for host in hosts:
        press_interrupt(host)
        host.communicate(timeout=90)
        assert host.returncode == 0


def await_line(shell: subprocess.Popen[str], words: str) -> None:
    """Read what a shell says until it says this."""
    assert shell.stdout is not None
    said = []
    for line in shell.stdout:
        said.append(line)
        if words in line:
            return
    raise AssertionError("".join(said))


def press_interrupt(shell: subprocess.Popen[str]) -> None:
    """Ctrl-C in the shell where `springtide join` runs."""
    typed = psutil.Process(shell.pid)
    for process in (typed, *typed.children(recursive=True)):
        if "join" in process.cmdline():
            process.send_signal(signal.SIGINT)
