"""One notice on its way: posted, mailed or handed to a command, each bounded in time whatever the other side does."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

from springtide.control.notices import command_main, mail_main
from springtide.control.storage.records import NoticeRecord
from springtide.core.durations import show_instant
from springtide.core.job_file_parts.job_sections import STORED, Notice
from springtide.core.moments import tell_moments
from springtide.executors.local.as_user import find_user
from springtide.executors.local.jobs.environment import allow

DELIVERY_S = 15.0  # for all of one try
COMMAND_S = 12.0  # of them for a command, so that who runs it can end all of it
ENDING_S = 3.0  # that a process has to end when it is told to
MOST_SAID = 300


@dataclass(frozen=True, slots=True)
class MailServer:
    """By which SMTP server mail goes, from whom, and how to get in there; the password is read from a file."""

    host: str
    port: int = 25
    sender: str = "springtide@localhost"
    user: str | None = None
    password_file: str | None = None
    security: str = "none"  # or starttls, or tls


async def deliver(
    notice: NoticeRecord, mail: MailServer | None, find_run_as: Callable[[], str | None], now_s: float
) -> str:
    """Try to tell; returns what went wrong, nothing if all went well. A command runs as whom `find_run_as` says.

    Whatever a way raises is that one notice's failure: it comes of what one user wrote, and costs nobody else.
    """
    try:
        way = Notice.model_validate(notice.way, context=STORED)
        body = write_message(notice.body, now_s)
        async with asyncio.timeout(DELIVERY_S):
            if way.webhook is not None:
                return await post(way.webhook, body)
            if way.email is not None:
                return await send_mail(way.email, body, mail)
            return await run_command(way.words, body, find_run_as())
    except TimeoutError:
        return f"no answer within {DELIVERY_S:g} s"
    except Exception as error:
        return tell(f"{type(error).__name__}: {error}")


def tell(said: str) -> str:
    """What went wrong, in short, and in letters that every database takes."""
    return said.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")[:MOST_SAID]


def write_message(body: Mapping[str, Any], now_s: float) -> dict[str, Any]:
    """What is told, as it reads now."""
    told = {"sentence": tell_moments(body["sentence"], now_s), "at": show_instant(body["at_s"])}
    return {**body, **told}


async def post(address: str, body: Mapping[str, Any]) -> str:
    """Post JSON; nothing of the reply is read but its code."""
    import httpx  # not at start-up: most servers post nothing

    async with (
        httpx.AsyncClient(timeout=DELIVERY_S, follow_redirects=False, trust_env=False) as client,
        client.stream("POST", address, json=body) as reply,
    ):
        return "" if reply.is_success else f"the webhook answered {reply.status_code}"


async def send_mail(address: str, body: Mapping[str, Any], mail: MailServer | None) -> str:
    """Send a mail, in a process that can be ended."""
    if mail is None:
        return "this server sends no mail; its owner sets `smtp` in server.yaml"
    subject = f"[springtide] {body['name']}: {body['event']}"
    text = f"{body['sentence']}\n\njob {body['name']} ({body['job']}) is {body['state']}, step {body['step']}\n"
    request = {"mail": asdict(mail), "to": address, "subject": subject, "text": text}
    return await talk(mail_main, request)


async def run_command(words: Sequence[str], body: Mapping[str, Any], run_as: str | None) -> str:
    """Run a command as the user that jobs run as, with the JSON on its stdin."""
    user = None if run_as is None else asdict(find_user(run_as))
    return await talk(
        command_main, {"words": list(words), "text": json.dumps(body), "user": user, "within_s": COMMAND_S}
    )


async def talk(module: ModuleType, request: Mapping[str, Any]) -> str:
    """What a process of ours says of its failure; it does not outlive its time."""
    assert module.__file__ is not None
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", module.__file__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=allow(os.environ),
        cwd="/",
        start_new_session=True,
    )
    try:
        _, said = await process.communicate(json.dumps(request).encode())
    finally:
        await end(process)
    last = said.decode(errors="replace").strip().rpartition("\n")[2]
    return "" if process.returncode == 0 else tell(last or f"its process ended with code {process.returncode}")


async def end(process: asyncio.subprocess.Process) -> None:
    """End a process, which ends what it has started first."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(ENDING_S):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
