"""What is done before a job starts: setup once for a code, inputs there and watched; and outputs that must be left."""

import hashlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
from tests.executors.local.agents import RecordedAgent
from tests.executors.local.processes.test_read_only import needs_namespaces

from springtide.executors.local.jobs.input_watch import INPUTS_S, InputWatch
from springtide.executors.local.processes import prepare_main
from springtide.executors.protocol import Failed, Finished, InputsSeen, JobPreparation, JobSpec, Start, Stop, Stopped


def prepare(folder: Path, setup: tuple[str, ...] = (), **inputs: str) -> tuple[dict[str, Any], str]:
    """What the process says, and what it prints."""
    source = folder / "code"
    source.mkdir(exist_ok=True)
    (source / "train.py").write_text("print('hello')\n")
    request = {"source": str(source), "folder": str(folder / "copy"), "setup": setup, "inputs": inputs}
    request |= {"inputs_dir": str(folder / "inputs"), "cache_dir": str(folder / "cache")}
    command = [sys.executable, "-I", prepare_main.__file__]
    done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True)
    return json.loads(done.stdout), done.stderr


@contextmanager
def serve(files: dict[str, bytes]) -> Iterator[tuple[str, list[int]]]:
    """Files over HTTP with their hash as ETag, and the codes that were answered."""
    answered: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = files.get(self.path)
            etag = "" if body is None else hashlib.sha256(body).hexdigest()
            code = 404 if body is None else 304 if self.headers.get("If-None-Match") == etag else 200
            answered.append(code)
            self.send_response(code)
            self.send_header("ETag", etag)
            self.end_headers()
            self.wfile.write(body if body is not None and code == 200 else b"")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", answered
    finally:
        server.shutdown()
        server.server_close()


def test_setup_runs_once_in_a_copy_and_again_after_it_failed(tmp_path: Path) -> None:
    line = f"echo again >> {tmp_path}/runs && cp train.py built.py"
    told, printed = prepare(tmp_path, (line, "false"))
    assert told["code"] == "setup_failed" and "setup command 2 of 2 ('false') ended with code 1" in told["reason"]
    assert "setup: false" in printed
    for _ in range(2):
        assert prepare(tmp_path, (line,))[0] == {"fingerprints": {}}
    assert (tmp_path / "runs").read_text() == "again\n" * 2, "once for each failure, and once"
    assert (tmp_path / "copy" / "built.py").exists() and not (tmp_path / "code" / "built.py").exists()


def test_inputs_are_linked_or_fetched_once_read_only_and_fingerprinted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.txt").write_text("one")
    with serve({"/vocab": b"words"}) as (address, answered):
        first, _ = prepare(tmp_path, digits=str(data), vocab=f"{address}/vocab")
        again, _ = prepare(tmp_path, digits=str(data), vocab=f"{address}/vocab")
    assert first == again and answered == [200, 304]
    fetched = tmp_path / "inputs" / "vocab"
    assert fetched.read_bytes() == b"words" and (tmp_path / "inputs" / "digits" / "a.txt").read_text() == "one"
    assert fetched.stat().st_mode & 0o222 == 0
    assert first["fingerprints"]["vocab"] == f"sha256:{hashlib.sha256(b'words').hexdigest()}"
    (data / "b.txt").write_text("two")
    changed, _ = prepare(tmp_path, digits=str(data))
    assert changed["fingerprints"]["digits"] != first["fingerprints"]["digits"]


def test_inputs_that_are_not_there_are_named_and_an_absent_host_may_come_back(tmp_path: Path) -> None:
    told, _ = prepare(tmp_path, digits=str(tmp_path / "nowhere"))
    assert told["code"] == "no_input" and "does not exist on this machine; correct `inputs`" in told["reason"]
    with serve({}) as (address, _):
        told, _ = prepare(tmp_path, vocab=f"{address}/vocab")
    assert told["code"] == "no_input" and "answers 404" in told["reason"]
    told, _ = prepare(tmp_path, vocab=f"{address}/vocab")
    assert told["code"] == "input_unreachable"


def make_spec(recorded: RecordedAgent, command: str, setup: tuple[str, ...] = (), **fields: Any) -> JobSpec:
    """A gang of one that runs a line of shell after a preparation."""
    job = recorded.new_job()
    source, home = recorded.folder / f"{job}-code", recorded.folder / job
    source.mkdir()
    inputs = fields.pop("inputs", {})
    needs = JobPreparation(str(source), str(home / "inputs"), str(recorded.folder / "cache"), setup, inputs)
    spec = recorded.spec(job, folder=recorded.folder / f"{job}-copy", elastic=False, preparation=needs, **fields)
    return JobSpec(**{name: getattr(spec, name) for name in spec.__slots__} | {"argv": ("sh", "-c", command)})


def test_a_job_runs_from_where_its_setup_was_and_leaves_what_it_must(recorded: RecordedAgent, tmp_path: Path) -> None:
    data = tmp_path / "data.txt"
    data.write_text("data")
    command = 'cat made.txt "$SPRINGTIDE_INPUTS/data" > "$SPRINGTIDE_OUTPUT/result.txt"'
    fields: dict[str, Any] = {"setup": ("echo built > made.txt",), "inputs": {"data": str(data)}}
    job = recorded.start(make_spec(recorded, command, outputs=("*.txt",), **fields))
    recorded.wait_for_end(job, Finished)
    assert (recorded.folder / job / "output" / "result.txt").read_text() == "built\ndata"
    assert recorded.of(job, InputsSeen)[0].fingerprints.keys() == {"data"}
    job = recorded.start(make_spec(recorded, "true", outputs=("model.pt",), **fields))
    failed = recorded.wait_for_end(job, Failed)
    assert failed.code == "no_outputs" and "left no 'model.pt' in $SPRINGTIDE_OUTPUT" in failed.reason


def test_a_job_cannot_write_to_its_inputs_while_others_can(recorded: RecordedAgent, tmp_path: Path) -> None:
    needs_namespaces()
    data = tmp_path / "data"
    data.mkdir()
    command = 'cp /dev/null "$SPRINGTIDE_INPUTS/data/mine" || echo kept > "$SPRINGTIDE_OUTPUT/result.txt"'
    job = recorded.start(make_spec(recorded, command, setup=("true",), inputs={"data": str(data)}))
    recorded.wait_for_end(job, Finished)
    assert (
        "Read-only file system" in recorded.read_log(job) and (recorded.folder / job / "output" / "result.txt").exists()
    )
    (data / "ours").write_text("we can")
    assert [path.name for path in data.iterdir()] == ["ours"]


def test_what_an_input_holds_is_looked_at_again_and_a_change_is_reported(
    recorded: RecordedAgent, tmp_path: Path
) -> None:
    data = tmp_path / "data.txt"
    data.write_text("one")
    seen: list[dict[str, str]] = []
    watch = InputWatch(make_spec(recorded, "true", inputs={"data": str(data)}), seen.append)

    def look(now_s: float) -> None:
        watch.look(now_s)
        assert watch.preparing is not None, "a look is due"
        while watch.preparing is not None:
            time.sleep(0.01)
            watch.look(now_s)

    watch.begin()
    while (done := watch.poll()) is None:
        time.sleep(0.01)
    watch.note(done.fingerprints, 0.0)
    watch.look(INPUTS_S / 2)
    assert watch.preparing is None and len(seen) == 1, "not due yet"
    look(INPUTS_S)
    assert len(seen) == 1, "nothing has changed"
    data.write_text("two, and longer")
    look(2 * INPUTS_S)
    assert len(seen) == 2 and seen[0]["data"] != seen[1]["data"]
    data.unlink()
    look(3 * INPUTS_S)
    assert seen[2] == {"data": "no_input"}


def test_a_failing_setup_fails_the_job_with_its_log(recorded: RecordedAgent) -> None:
    job = recorded.start(make_spec(recorded, "true", setup=("echo no compiler here >&2; exit 3",)))
    failed = recorded.wait_for_end(job, Failed)
    assert failed.code == "setup_failed" and failed.reason.endswith("ended with code 3: no compiler here")
    assert "no compiler here" in recorded.read_log(job)


def test_a_setup_that_does_not_end_is_ended_with_its_job(recorded: RecordedAgent, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    job = recorded.start(make_spec(recorded, "true", setup=(f"echo $$ > {note}; sleep 1000",)))
    recorded.wait_for(note.exists, "the setup")
    recorded.apply(Stop(job=job, generation=2, key="stop"))
    recorded.wait_for_end(job, Stopped)
    recorded.wait_for(lambda: not psutil.pid_exists(int(note.read_text())), "the end of the setup")


def test_a_job_stopped_in_its_start_up_shows_the_step_of_its_checkpoint(recorded: RecordedAgent) -> None:
    job = recorded.tiny("--steps", "40")
    recorded.wait_for_step(job, 5)
    recorded.apply(Stop(job=job, generation=2, key="stop"))
    saved = recorded.wait_for_end(job, Stopped)
    start = Start(
        job=job, generation=3, key="again", spec=recorded.spec(job, "tiny.py", "--steps", "40"), devices=("cpu:0",)
    )
    recorded.apply(start)
    recorded.apply(Stop(job=job, generation=4, key="at once"))
    assert recorded.wait_for_end(job, Stopped).step == saved.step
