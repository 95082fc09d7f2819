"""`springtide mcp`: the platform for agents, as tools of the Model Context Protocol over stdin and stdout.

Each tool is a verb of the client and answers with a few named values; errors are the sentences that people get.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from springtide.cli.connections import connect_or_start
from springtide.core.shared_types import Document
from springtide.errors import InputError, SpringtideError

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from springtide.client.client import Client
    from springtide.client.replies import JobInfo

T = TypeVar("T", bound=Callable[..., Any])
MOST_LINES = 1000
INSTRUCTIONS = """Trains PyTorch scripts with a promised finish. Ask `plan` first: it stores nothing. `submit` answers
admitted (promised), waitlisted or declined; a declined job has offers, which `accept` takes. `why` explains a job in a
sentence and says what to do. `wait` returns when it has ended; `fetch` brings the weights here. Jobs are named by id or
name."""


def run() -> None:
    """Serve an agent on stdin and stdout until it hangs up. Needs the SDK: pip install 'springtide[mcp]'.

    Example:

      springtide mcp
    """
    build_server(connect_or_start).run()


def build_server(connect: "Callable[[], Client]") -> "MCPServer":
    """The tools, over connections to a server that are opened when they are needed."""
    try:
        from mcp.server import MCPServer
    except ImportError:
        raise InputError("springtide mcp needs the protocol's SDK: pip install 'springtide[mcp]'") from None
    from springtide import __version__

    server = MCPServer("springtide", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    for tool in list_tools(connect):
        server.tool()(tell_errors(tool))
    return server


def tell_errors(tool: T) -> T:
    """The tool with our errors as the sentence that the agent reads, instead of a failure of the server."""

    @wraps(tool)
    def call(*words: Any, **named: Any) -> Any:
        try:
            return tool(*words, **named)
        except SpringtideError as error:
            return {"error": str(error), "reason": error.reason} | error.facts

    return call  # type: ignore[return-value]


def list_tools(connect: "Callable[[], Client]") -> list[Callable[..., Document]]:
    """The verbs that agents have."""
    return [*list_asking_tools(connect), *list_following_tools(connect)]


def list_asking_tools(connect: "Callable[[], Client]") -> list[Callable[..., Document]]:
    """Asking for promises, and taking offers."""

    def plan(job_file: str, deadline: str | None = None, budget_usd: float | None = None) -> Document:
        """What a submission would be told now, without any effect; unknown code is measured first for some seconds.

        job_file: path of a job.yaml here. deadline: 45m, 6h or a time with its zone. budget_usd: most dollars.
        """
        from springtide.client.job_folders import load_job

        with connect() as client:
            told = client.plan(load_job(Path(job_file), deadline=deadline, budget=write_usd(budget_usd)), probe=True)
        return {
            "answer": told.answer,
            "sentence": told.sentence,
            "deadline": show(told.deadline),
            "expected_end": show(told.predicted_finish),
            "cost_usd": told.cost_usd,
            "offers": [{"kind": one.kind, "deadline": show(one.deadline), "steps": one.steps} for one in told.offers],
        }

    def submit(
        job_file: str,
        deadline: str | None = None,
        budget_usd: float | None = None,
        name: str | None = None,
        settings: list[str] | None = None,
        env: list[str] | None = None,
    ) -> Document:
        """Ask for a promise, and have the job run if it is admitted; a declined one has offers to accept.

        settings: other keys of the file, each KEY=VALUE, as in steps=100. env: variables of the job, each NAME=VALUE.
        A file with a sweep makes an array of jobs, and all of them are in the answer.
        """
        from springtide.client.job_folders import load_job
        from springtide.core.job_file_parts.job_settings import JobSettings

        with connect() as client:
            changes = JobSettings(settings or [], env or [])
            job = load_job(Path(job_file), changes, deadline=deadline, budget=write_usd(budget_usd), name=name)
            if job.job.sweep is None:
                return describe(client.submit(job))
            array = client.submit_array(job)
            return {"array": array.id, "name": array.name, "jobs": [describe(one) for one in array.jobs]}

    def accept(job: str, offer: str | None = None) -> Document:
        """Take an open offer of a declined job: the one named, or the first."""
        with connect() as client:
            return describe(client.accept(job, offer))

    def cancel(job: str) -> Document:
        """End a job; its last checkpoint stays."""
        with connect() as client:
            return describe(client.cancel(job))

    return [plan, submit, accept, cancel]


def list_following_tools(connect: "Callable[[], Client]") -> list[Callable[..., Document]]:
    """Following jobs, and bringing what they made."""

    def jobs(all: bool = False) -> Document:
        """The active jobs, newest first; with `all` those that have ended too."""
        with connect() as client:
            return {"jobs": [describe(job) for job in client.jobs(all)]}

    def why(job: str) -> Document:
        """Why a job is where it is, and what can be done."""
        with connect() as client:
            told = client.why(job)
        return {"state": str(told.state), "sentence": told.sentence, "facts": list(told.facts), "remedy": told.remedy}

    def wait(job: str, seconds: float = 60.0) -> Document:
        """The job once it has ended, or as it is after so many seconds (at most 600)."""
        import time

        until_s = time.monotonic() + min(seconds, 600.0)
        with connect() as client:
            return describe(client.wait(job, lambda found: found.ended or time.monotonic() > until_s))

    def logs(job: str, lines: int = 50, pattern: str | None = None) -> Document:
        """The last lines that a job printed and recorded; with `pattern`, those in which it is found."""
        from springtide.client.log_streams import LogChoice

        choice = LogChoice(tail=max(1, min(lines, MOST_LINES)), pattern=pattern)
        with connect() as client:
            return {"lines": [line.document for line in client.read_log(job, choice)]}

    def fetch(job: str, out: str, paths: list[str] | None = None) -> Document:
        """Bring the weights of a job into a folder here, or the files of these paths: output, logs, output/*.png."""
        with connect() as client:
            if paths:
                return {"files": [str(path) for path in client.fetch_files(job, paths, out)]}
            fetched = client.fetch(job, out)
        return {"step": fetched.step, "weights": str(fetched.weights), "files": [str(path) for path in fetched.files]}

    return [jobs, why, wait, logs, fetch]


def describe(job: "JobInfo") -> Document:
    """What an agent needs to know of a job."""
    offers = [{"id": one.id, "sentence": one.sentence} for one in job.open_offers]
    return {
        "id": job.id,
        "name": job.name,
        "state": str(job.state),
        "answer": job.answer,
        "sentence": job.sentence,
        "deadline": show(job.deadline),
        "expected_end": show(job.predicted_finish),
        "met": job.met,
        "step": job.step,
        "total_steps": job.total_steps,
        "cost_usd": job.cost_usd,
        "open_offers": offers,
    }


def show(instant: Any) -> str | None:
    """An instant as text."""
    return None if instant is None else instant.isoformat()


def write_usd(amount: float | None) -> str | None:
    """Dollars as a job file has them."""
    return None if amount is None else f"{amount:g} USD"
