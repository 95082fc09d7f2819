"""Every policy through the live reconciler: arrivals, ends, faults, drains, lost nodes, restarts, on one and two types.

Nothing may raise in a step, no device may be held twice, every job comes to an end, and promises are kept where nothing
was lost.
"""

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from tests.adversary.nights import SEED, Record, count, report
from tests.control.hand_clock import HandClockServer

from springtide.control.scheduling.reconciler import FAILURES
from springtide.control.scheduling.server_context import ServerOptions
from springtide.core.job_states import JobState
from springtide.executors.fake import FakeJob
from springtide.policies import POLICIES

SECONDS = {"a100": 0.0125, "t4": 0.025}
SCRIPTS = {
    "short": FakeJob(total_steps=150, logical_workers=8, seconds=SECONDS, startup_s=0.5),
    "long": FakeJob(total_steps=500, logical_workers=8, seconds=SECONDS, startup_s=0.5),
}
TYPES = {1: ("a100",), 2: ("a100", "t4")}
MOVES = ("submit", "submit", "submit", "tight", "wide", "kill", "drain", "undrain", "restart", "cancel", "pass")
ENDS = (JobState.SUCCEEDED, JobState.CANCELLED, JobState.DECLINED)


def make_server(folder: Path, policy: str, types: int) -> HandClockServer:
    """Two nodes of two devices of each type."""
    return HandClockServer(
        folder, devices=4, nodes=2, scripts=SCRIPTS, types=TYPES[types], options=ServerOptions(policy=policy)
    )


def submit(server: HandClockServer, random: Random, move: str) -> str:
    """A job of a random script: best effort, with a deadline that is easy or hard to keep, on one type or any."""
    keys: dict[str, object] = {"run": f"python train.py {random.choice(('short', 'long'))}"}
    keys["determinism"] = random.choice(("D1", "D2"))
    if move != "wide" and random.random() < 0.7:
        keys["deadline"] = "20s" if move == "tight" else random.choice(("90s", "5m", "20m"))
    if random.random() < 0.3:
        keys["devices"] = random.choice((1, 2, "1..4"))
    return server.submit(accept_offer=random.random() < 0.3, user=random.choice(("ann", "bob")), **keys).id


def check_devices(server: HandClockServer) -> None:
    """Store, world and executor agree on who holds what, and nobody shares a device."""
    context = server.reconciler.context
    held = {record.id: record.devices for record in server.store.active_jobs() if record.devices}
    assert held == {one.job: one.devices for one in server.executor.running()}
    names = [name for devices in held.values() for name in devices]
    assert len(names) == len(set(names))
    places = {job_id: view.devices for job_id, view in context.world.jobs.items() if view.devices}
    assert {job: server.reconciler.inventory.find_devices(devices) for job, devices in held.items()} == places


def act(server: HandClockServer, random: Random, jobs: list[str], move: str) -> None:
    """Let one thing happen."""
    nodes, drained = server.reconciler.inventory.nodes, server.reconciler.inventory.drained
    if move in ("submit", "tight", "wide"):
        jobs.append(submit(server, random, move))
    elif move == "kill" and server.executor.runs:
        server.executor.kill(random.choice(sorted(server.executor.runs)))
    elif move == "drain" and not drained:
        server.reconciler.call(lambda: server.operations.drain(random.choice(nodes), 5.0))
    elif move == "undrain" and drained:
        server.reconciler.call(lambda: server.operations.undrain(min(drained)))
    elif move == "lose" and not drained:
        node = random.choice(nodes)
        server.executor.lose_node(node, server.reconciler.inventory.names_of(node))
    elif move == "restart":
        server.restart()
    elif move == "cancel" and jobs:
        server.reconciler.call(lambda: server.operations.cancel(random.choice(jobs), "ann"))


def finish(server: HandClockServer, jobs: list[str]) -> None:
    """Give all nodes back and let every job come to its end."""
    for node in sorted(server.reconciler.inventory.drained):
        server.reconciler.call(lambda node=node: server.operations.undrain(node))  # type: ignore[misc]
    for _ in range(60):
        server.pass_s(30, by_s=1.0)
        if not server.store.active_jobs():
            break
    check_devices(server)
    unended = {job: server.event_kinds(job)[-5:] for job in jobs if server.job(job).state not in ENDS}
    assert not unended, {job: (server.job(job).state, server.job(job).sentence, told) for job, told in unended.items()}
    assert server.store.fact(FAILURES) is None
    assert server.executor.running() == ()


@pytest.mark.parametrize("types", [1, 2])
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_it_serves_whatever_happens(tmp_path: Path, policy: str, types: int) -> None:
    for seed in range(2):
        make_moves(make_server(tmp_path / str(seed), policy, types), Random(f"{policy} {types} {seed}"), 16)


@pytest.mark.adversary
@pytest.mark.timeout(600)
@pytest.mark.parametrize("types", [1, 2])
@pytest.mark.parametrize("policy", ["springtide", "easyscale-heter", "fifo"])
def test_it_serves_another_night(tmp_path: Path, policy: str, types: int, record_property: Record) -> None:
    seen: Counter[str] = Counter()
    for number in count(4):
        random = Random(f"{policy} {types} {SEED} {number}")
        seen += make_moves(make_server(tmp_path / str(number), policy, types), random, 30)
    report(record_property, f"actions with {policy} on {types} types", seen)


def make_moves(server: HandClockServer, random: Random, moves: int) -> Counter[str]:
    """Let so many things happen, then everything end; how often each was done."""
    jobs: list[str] = []
    chosen = random.choices((*MOVES, "lose"), k=moves)
    for move in chosen:
        act(server, random, jobs, move)
        server.pass_s(random.choice((1.0, 4.0, 15.0)), by_s=1.0)
        check_devices(server)
    finish(server, jobs)
    return Counter(chosen)


@pytest.mark.parametrize("types", [1, 2])
@pytest.mark.parametrize("policy", sorted(name for name, entry in POLICIES.items() if entry.promises))
def test_it_keeps_its_promises_where_nothing_is_lost(tmp_path: Path, policy: str, types: int) -> None:
    promised = 0
    for seed in range(2):
        random = Random(f"{policy} {types} {seed}")
        server = make_server(tmp_path / str(seed), policy, types)
        for name in SCRIPTS:  # measured on every type, at every share, before anything is promised
            submit_known(server, name)
        jobs: list[str] = []
        for move in random.choices(("submit", "submit", "tight", "wide", "restart", "pass"), k=14):
            act(server, random, jobs, move)
            server.pass_s(random.choice((1.0, 4.0, 15.0)), by_s=1.0)
            check_devices(server)
        finish(server, jobs)
        assert {job: server.job(job).missed for job in jobs if server.job(job).missed} == {}
        promised += sum(server.job(job).promised for job in jobs)
    assert promised > 2


def submit_known(server: HandClockServer, name: str) -> None:
    """Let a script run to its end at both levels, so that its speed is known afterwards."""
    for level in ("D1", "D2"):
        server.submit(run=f"python train.py {name}", deadline="1h", determinism=level)
        server.pass_s(120, by_s=1.0)


@pytest.mark.parametrize("policy", sorted(name for name, entry in POLICIES.items() if not entry.promises))
def test_one_that_promises_nothing_says_so(tmp_path: Path, policy: str) -> None:
    server = make_server(tmp_path, policy, 1)
    submit_known(server, "short")
    record = server.submit(run="python train.py short", deadline="10m")
    assert not record.promised and record.reason != "promised"
    assert "promised to" not in record.sentence
    if record.state is JobState.ADMITTED:
        assert record.sentence.startswith("admitted without a promise: ")
