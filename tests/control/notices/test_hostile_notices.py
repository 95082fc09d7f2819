"""What one user's notices can do to others: nothing, whatever the address, the command or the reply is."""

import asyncio
import os
import pwd
import resource
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.control.http_servers import connect, run_server, write_project
from tests.control.notices.hooks import serve_web, wait_for

from springtide.control.notices import notice_deliveries, notifier
from springtide.control.notices.notice_decisions import AT_ONCE, OF_EACH, choose_next
from springtide.control.notices.notice_deliveries import run_command
from springtide.control.storage.database.store_batches import Batch
from springtide.control.storage.records import NoticeRecord
from springtide.core.job_file_parts.job_sections import Notice

BAD_ADDRESS = "http://10.0.0.256/hook"
HOSTS = st.one_of(
    st.sampled_from(["10.0.0.256", "010.1.1.1", "[::1]", "[v1.a]", "[::g]", "xn--a", "a_b", "ö", "\u00df.de", "a..b"]),
    st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){0,4}", fullmatch=True),
    st.text(min_size=1, max_size=12),
)


def way(address: str) -> dict[str, Any]:
    return {"webhook": address, "on": ["ended"]}


def make_notice(address: str, job: str = "gone") -> NoticeRecord:
    told = {"event": "ended", "sentence": "it has ended", "at_s": 0.0, "job": job, "name": "digits", "state": "failed"}
    return NoticeRecord(job, 0.0, way(address), told)


def test_an_address_that_there_cannot_be_is_refused_where_it_is_written() -> None:
    with pytest.raises(ValueError, match=r"there can be no host '10\.0\.0\.256'"):
        Notice(webhook=BAD_ADDRESS)


@given(HOSTS, st.sampled_from(["", ":80", ":0080", ":"]))
def test_what_is_taken_as_an_address_can_be_asked(host: str, port: str) -> None:
    try:
        notice = Notice(webhook=f"http://{host}{port}/hook")
    except ValueError:
        return
    assert httpx.URL(notice.webhook or "").raw_host


def test_a_poisoned_notice_costs_itself_only_and_others_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "LOOK_S", 0.1)
    with serve_web([]) as (hook, heard), run_server(tmp_path) as server, connect(server) as client:
        server.store.write(Batch(notices=[make_notice(BAD_ADDRESS), make_notice("http://[::g]/"), make_notice(hook)]))
        wait_for(lambda: heard)
        wait_for(lambda: [one.tries for one in server.store.notices("gone")] == [1, 1, 1])
        said = [one.said for one in server.store.notices("gone")]
        path = write_project(tmp_path / "work", notify=[way(hook)])
        job = client.wait(client.submit(path))
        wait_for(lambda: [one.state for one in client.notices(job)] == ["sent"])
        check = httpx.get(f"{server.url}/readyz").json()["checks"]["notices"]
    assert "10.0.0.256" in said[0] and said[1] and not said[2]
    assert check["ok"]


def test_a_notifier_that_has_ended_is_told_and_the_server_stays_ready(tmp_path: Path) -> None:
    with run_server(tmp_path) as server:
        server.notifier.ended = True
        server.notifier.thread.join()
        reply = httpx.get(f"{server.url}/readyz")
        assert reply.status_code == 200
        assert "start the server again" in reply.json()["checks"]["notices"]["sentence"]


def test_notices_that_cannot_be_read_are_told_and_the_server_stays_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> list[tuple[int, str]]:
        raise OSError(5, "no such luck")

    monkeypatch.setattr(notifier, "LOOK_S", 0.05)
    monkeypatch.setattr(notifier, "STILL_S", 1.0)
    with run_server(tmp_path) as server:
        monkeypatch.setattr(server.store, "list_due_notices", fail)
        time.sleep(1.5)
        reply = httpx.get(f"{server.url}/readyz")
        assert reply.status_code == 200
        told = reply.json()["checks"]["notices"]
        assert told["age_s"] < 1.0 and "no such luck" in told["sentence"]
        monkeypatch.undo()
        wait_for(lambda: not httpx.get(f"{server.url}/readyz").json()["checks"]["notices"]["sentence"])


def test_a_notice_that_cannot_be_read_is_given_up_and_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "LOOK_S", 0.1)
    with serve_web([]) as (hook, heard), run_server(tmp_path) as server:
        later = time.time() + 1e6
        server.store.write(Batch(notices=[replace(make_notice(hook, "torn"), due_s=later)]))
        with sqlite3.connect(str(server.store.path)) as line:
            line.execute("UPDATE notices SET body = '{torn', due_s = 0")
        line.close()
        server.store.write(Batch(notices=[make_notice(hook)]))
        wait_for(lambda: heard)
        with sqlite3.connect(str(server.store.path)) as line:
            state, said = line.execute("SELECT state, said FROM notices WHERE job = 'torn'").fetchone()
        line.close()
    assert state == "given_up" and "cannot be read" in said


def test_what_is_said_of_a_failure_can_be_stored_anywhere() -> None:
    assert notice_deliveries.tell("a\0b\ud800") == "a\\0b\\ud800"


def test_what_was_told_and_cannot_be_noted_is_not_told_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "LOOK_S", 0.1)
    with serve_web([]) as (hook, heard), run_server(tmp_path) as server:
        put, refusals = server.store.put_notice, [1, 2, 3]

        def refuse(notice: NoticeRecord) -> None:
            if refusals:
                refusals.pop()
                raise OSError("disk full")
            put(notice)

        monkeypatch.setattr(server.store, "put_notice", refuse)
        server.store.write(Batch(notices=[make_notice(hook)]))
        wait_for(lambda: [one.state for one in server.store.notices("gone")] == ["sent"])
    assert len(heard) == 1


def run(work: Callable[[], Coroutine[Any, Any, str]]) -> str:
    return asyncio.run(work())


def test_a_command_that_prints_without_end_takes_no_memory_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notice_deliveries, "COMMAND_S", 2.0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said = run(lambda: run_command(["sh", "-c", "yes >&2"], {}, None))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
    assert said == "sh did not end within 2 s"


def test_the_end_of_what_a_command_prints_is_told() -> None:
    words = ["sh", "-c", "yes | head -c 3000000 >&2; echo >&2; echo the end >&2; exit 3"]
    assert run(lambda: run_command(words, {}, None)) == "sh ended with code 3: the end"
    assert "no-such-program" in run(lambda: run_command(["no-such-program"], {}, None))


def test_a_command_reads_all_of_a_long_document(tmp_path: Path) -> None:
    said = tmp_path / "said.json"
    body = {"sentence": "x" * 300_000}
    assert run(lambda: run_command(["sh", "-c", f"sleep 0.2; cat > {said}"], body, None)) == ""
    assert len(said.read_text()) > 300_000
    assert run(lambda: run_command(["true"], body, None)) == "", "one that reads nothing is not waited for"


@pytest.mark.parametrize("ending", ["exit 0", "exec sleep 60"])
def test_what_a_command_leaves_behind_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setattr(notice_deliveries, "COMMAND_S", 2.0)
    kept = tmp_path / "pid"
    script = f"setsid sh -c 'echo $$ > {kept}; exec sleep 600' > /dev/null 2>&1 & sleep 0.5; {ending}"
    run(lambda: run_command(["sh", "-c", script], {}, None))
    wait_for(lambda: not Path(f"/proc/{int(kept.read_text())}").exists())


def test_a_command_that_is_broken_off_ends_with_all_it_has_started(tmp_path: Path) -> None:
    kept = tmp_path / "pid"

    async def leave() -> str:
        script = f"setsid sh -c 'echo $$ > {kept}; exec sleep 600'"
        task = asyncio.create_task(run_command(["sh", "-c", script], {}, None))
        while not kept.exists() or not kept.read_text():
            await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return kept.read_text()

    pid = int(run(leave))
    wait_for(lambda: not Path(f"/proc/{pid}").exists())


def test_a_command_has_less_than_the_server_where_memory_or_processors_are_short(tmp_path: Path) -> None:
    said = tmp_path / "said"
    script = f"ulimit -d > {said}; cat /proc/self/oom_score_adj >> {said}; nice >> {said}"
    assert run(lambda: run_command(["sh", "-c", script], {}, None)) == ""
    kilobytes, first_to_end, niceness = said.read_text().split()
    assert int(kilobytes) <= 1 << 20 and first_to_end == "1000" and int(niceness) >= os.nice(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")
def test_a_command_runs_as_the_user_that_jobs_run_as_and_can_undo_none_of_its_limits() -> None:
    nobody = pwd.getpwnam("nobody")
    script = 'echo "$(id -u) $(id -g) $HOME $(renice -n 0 $$ 2>&1 | grep -c denied)" >&2; exit 1'
    said = run(lambda: run_command(["sh", "-c", script], {}, "nobody"))
    assert said == f"sh ended with code 1: {nobody.pw_uid} {nobody.pw_gid} {nobody.pw_dir} 1"
    assert "no-such-user" in notice_deliveries.tell(str(run(lambda: try_command("no-such-user"))))


async def try_command(run_as: str) -> str:
    """What is said of a command of a user that this system does not have."""
    told = {"event": "ended", "sentence": "it has ended", "at_s": 0.0}
    notice = NoticeRecord("gone", 0.0, {"command": ["true"]}, told)
    return await notice_deliveries.deliver(notice, None, lambda: run_as, 0.0)


@given(
    st.lists(st.tuples(st.integers(1, 10_000), st.sampled_from("abcdef")), unique_by=lambda one: one[0]),
    st.lists(st.sampled_from("abcdef"), max_size=AT_ONCE),
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 99)),
)
def test_no_owner_has_more_than_their_part_and_no_place_is_empty(
    waiting: list[tuple[int, str]], under_way: list[str], turns: dict[str, int]
) -> None:
    under_way = [owner for number, owner in enumerate(under_way) if under_way[:number].count(owner) < OF_EACH]
    chosen = choose_next(waiting, under_way, turns)
    after = [*under_way, *(owner for _, owner in chosen)]
    assert all(after.count(owner) <= OF_EACH for owner in after) and len(after) <= AT_ONCE
    left = [owner for seq, owner in waiting if seq not in {one for one, _ in chosen}]
    assert len(after) == AT_ONCE or all(after.count(owner) == OF_EACH for owner in left)


def test_owners_take_turns_however_many_notices_each_has() -> None:
    waiting = [(number, f"dead-{number % 40}") for number in range(400)] + [(1000, "ann")]
    under_way: list[str] = []
    turns = {f"dead-{number}": number + 1 for number in range(40)}
    assert choose_next(waiting, under_way, turns)[0] == (1000, "ann")


def test_dead_webhooks_of_one_user_delay_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "LOOK_S", 0.1)
    with (
        socket.create_server(("127.0.0.1", 0), backlog=200) as silent,
        serve_web([]) as (hook, _),
        run_server(tmp_path) as server,
        connect(server) as client,
    ):
        dead = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        server.store.write(Batch(notices=[make_notice(dead) for _ in range(100)]))
        wait_for(lambda: len(server.notifier.under_way) == OF_EACH)
        path, began_s = write_project(tmp_path / "work", notify=[way(hook)]), time.monotonic()
        job = client.wait(client.submit(path))
        wait_for(lambda: [one.state for one in client.notices(job)] == ["sent"])
        assert time.monotonic() - began_s < notice_deliveries.DELIVERY_S, "no try of the others had to end before"


def test_new_notices_of_an_owner_come_before_those_that_have_failed(tmp_path: Path) -> None:
    with run_server(tmp_path) as server:
        server.notifier.close()
        server.store.listeners.append(server.notifier.hear)  # as it was, for the end of the server
        failed, fresh = replace(make_notice(BAD_ADDRESS), tries=1), make_notice(BAD_ADDRESS)
        server.store.write(Batch(notices=[failed] * OF_EACH + [fresh]))
        numbers = [one.seq for one in server.store.notices("gone")]
        found = server.store.list_due_notices(1.0, OF_EACH)
        assert found[0] == (numbers[-1], "") and len(found) == OF_EACH
        assert server.store.list_due_notices(1.0, OF_EACH, numbers) == []


HUNG = """
import asyncio, socket, threading
from springtide.control.notices import notifier

socket.getaddrinfo = lambda *given, **named: threading.Event().wait()

async def look():
    try:
        async with asyncio.timeout(0.1):
            await asyncio.get_running_loop().getaddrinfo("nowhere", 80)
    except TimeoutError:
        print("told", flush=True)

loop = asyncio.new_event_loop()
loop.set_default_executor(notifier.LookupThreads())
loop.run_until_complete(look())
loop.close()
"""


def test_a_name_that_nobody_answers_for_keeps_no_server_from_ending() -> None:
    done = subprocess.run([sys.executable, "-c", HUNG], stdout=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "told\n")
