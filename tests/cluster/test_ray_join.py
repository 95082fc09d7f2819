"""The guide's way to a cluster, command by command: a head with a token, a host that joins, one that may not."""

import secrets
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cluster.ray_clusters import RayHead, find_free_port, make_variables, needs_ray
from tests.executors.hosts.loopback_cluster import wait_until

from springtide.cli.doctor import check_storage
from springtide.executors.ray.host_survey import judge
from springtide.executors.ray.name_book import BOOK, MOST_NAMES, read_book, write_book
from springtide.executors.ray.ray_nodes import RayNode, name_actor, name_hosts, read_actors

pytestmark = needs_ray


@pytest.fixture
def head(tmp_path: Path) -> Iterator[RayHead]:
    with tempfile.TemporaryDirectory(prefix="st-") as temporary:
        made = RayHead(find_free_port(), make_variables(tmp_path / "home", temporary))
        made.start()
        yield made
        made.stop()


@pytest.mark.slow
def test_only_a_host_with_the_token_joins(head: RayHead) -> None:
    wrong = head.run("doctor", "--engine", "ray", "--address", head.address, RAY_AUTH_TOKEN=secrets.token_hex(32))
    assert wrong.returncode == 1 and "does not let us in" in wrong.stdout, wrong.stdout
    turned_away = head.run("join", head.address, "--devices", "1", RAY_AUTH_TOKEN=secrets.token_hex(32))
    assert turned_away.returncode == 1, turned_away.stdout + turned_away.stderr
    assert "did not take this machine in" in turned_away.stderr, "Ray's own words stand above ours"
    host = head.join()
    try:
        said = [""]

        def is_there() -> bool:
            said[0] = head.run("doctor", "--engine", "ray", "--address", head.address).stdout
            return "1 hosts" in said[0] and "1 x cpu" in said[0]

        wait_until(is_there, lambda: said[0])
    finally:
        host.send_signal(signal.SIGTERM)
        assert host.wait(60) == 0


def test_what_is_wrong_with_a_host_is_said() -> None:
    good = {"version": "0.1.0", "python": "3.11.7", "torch": "2.13.0", "nice": 0, "witness": "w", "devices": "1 x cpu"}
    assert judge("blue", good, "w", "/home").problem == ""
    assert "no torch" in judge("blue", {**good, "torch": ""}, "w", "/home").problem
    assert "install the same" in judge("blue", {**good, "version": "0.0.9"}, "w", "/home").problem
    assert "storage that all hosts share" in judge("blue", {**good, "witness": ""}, "w", "/home").problem
    assert judge("blue", {**good, "witness": ""}, None, "/home").problem == "", "it has object storage"
    assert "nice 15" in judge("blue", {**good, "nice": 15}, "w", "/home").remark
    assert "springtide[train,ray]" in judge("blue", {"error": "ModuleNotFoundError"}, "w", "/home").problem


def test_a_node_that_is_new_takes_the_name_of_no_host_that_is_there() -> None:
    early, late = (RayNode(8 * letter, "blue", "10.0.0.6", "1") for letter in "ab")
    there = read_actors([name_actor(late.id, "blue"), "somebody-elses", "host-without-a-name"])
    assert there == {late.id: "blue"}
    assert name_hosts([early, late], there, {}, ()) == {early.id: "blue-2", late.id: "blue"}
    assert name_hosts([early, late], {}, {}, ()) == {early.id: "blue", late.id: "blue-2"}


def test_a_machine_has_its_name_under_another_head_too(tmp_path: Path) -> None:
    """Two machines of one name; the head is started again, gives other ids, and they come back one after the other."""
    first, second = RayNode("1" * 8, "blue", "10.0.0.6", "1"), RayNode("2" * 8, "blue", "10.0.0.7", "1")
    names = name_hosts([first, second], {}, read_book(tmp_path), ())
    write_book(tmp_path, {names[node.id]: node.address for node in (first, second)})
    again, other = replace(first, id="f" * 8), replace(second, id="0" * 8)
    alone = name_hosts([other], {}, read_book(tmp_path), ())
    assert alone[other.id] == names[second.id] == "blue-2"
    assert name_hosts([other, again], alone, read_book(tmp_path), ())[again.id] == names[first.id] == "blue"
    stranger = replace(first, id="e" * 8, address="10.0.0.8")
    assert name_hosts([stranger], {}, read_book(tmp_path), ["blue", "blue-2"])[stranger.id] == "blue-3"
    assert name_hosts([stranger], {}, read_book(tmp_path), ())[stranger.id] == "blue", "it has another address now"


def test_a_book_of_names_that_is_damaged_or_cannot_be_written_costs_names_only(tmp_path: Path) -> None:
    for content in (b"", b"\xff", b"[1, 2]", b'{"blue": 6}', b"null"):
        (tmp_path / BOOK).write_bytes(content)
        assert read_book(tmp_path) == {}
        write_book(tmp_path, {"blue": "10.0.0.6"})
        assert read_book(tmp_path) == {"blue": "10.0.0.6"}
    write_book(tmp_path / "nowhere", {"blue": "10.0.0.6"})
    write_book(tmp_path, {f"pod-{one}": "10.0.0.9" for one in range(MOST_NAMES)})
    assert len(read_book(tmp_path)) == MOST_NAMES


@pytest.mark.parametrize(
    ("url", "told"),
    [("ftp://somewhere/jobs", "has the scheme 'ftp'"), ("s3://me:hunter2@bucket/jobs", "holds no credentials")],
)
def test_doctor_looks_at_the_storage_that_a_server_would_be_given(url: str, told: str) -> None:
    found = check_storage(url)
    assert found.status == "failed" and told in found.remedy and "hunter2" not in f"{found}"
