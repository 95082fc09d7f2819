"""The Ask page: what would a job be told if it were submitted? Asked without side effects, then submitted or not."""

import hashlib
import json
import secrets
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response

from springtide.client.replies import JobInfo
from springtide.core.job_file import JobFile
from springtide.dashboard import rendering
from springtide.dashboard.ask_view import TERMS, AskReply, Question, build_reply, start_question
from springtide.dashboard.in_process_api import ApiRefusal, InProcessApi, open_api
from springtide.dashboard.posted_forms import read_form
from springtide.errors import JobError, SpringtideError

MOST_BASES = 200


def add_ask_pages(app: FastAPI) -> None:
    """Ask, and submit."""

    async def show(request: Request, question: Question | None, **more: Any) -> Response:
        api = open_api(app, request)
        total = (await api.get("board", limit="1", lanes="false"))["devices"]["total"]
        values = {"title": "Ask", "question": question, "bases": await list_bases(api), "reply": None, "problem": ""}
        # a slider from one to one could not be dragged
        values |= {"most_devices": max(2, total), "attempt": secrets.token_urlsafe(16)}
        return rendering.answer_page(request, "ask.html", **(values | more))

    @app.get("/ask", include_in_schema=False)
    async def open_question(request: Request) -> Response:
        api, ref = open_api(app, request), request.query_params.get("job", "")
        bases = await list_bases(api)
        if not ref and not bases:
            return await show(request, None)
        try:
            question = start_question(JobInfo.read(await api.get("jobs", ref or bases[0].id)))
            return await show(request, question, **await find_reply(api, question))
        except SpringtideError as error:
            return await show(request, None, problem=str(error))

    @app.post("/ask", include_in_schema=False)
    async def answer_question(request: Request) -> Response:
        question = read_question(await read_form(request))
        found = await find_reply(open_api(app, request), question)
        if request.headers.get("hx-request"):
            return rendering.send_html(request, rendering.render("part_answer.html", question=question, **found))
        return await show(request, question, **found)

    @app.get("/ask/submit", include_in_schema=False)
    async def ask_again(request: Request) -> Response:  # whoever signs in after a refused submission comes here
        return rendering.go_to("/ask")

    @app.post("/ask/submit", include_in_schema=False)
    async def submit(request: Request) -> Response:
        api, form = open_api(app, request), await read_form(request)
        question = read_question(form)
        try:
            body = await write_request(api, question)
            job = JobInfo.read(await api.post("jobs", body=body, key=name_attempt(form, body)))
        except SpringtideError as error:
            # of what became of it nobody may know: sent again, it is still the same
            kept = {"attempt": form["attempt"]} if form.get("attempt") else {}
            return await show(request, question, problem=str(error), **kept)
        return rendering.go_to(f"/jobs/{job.id}")


def name_attempt(form: Mapping[str, str], body: Mapping[str, Any]) -> str:
    """The idempotency key of a form as it was sent: sent twice it is the same job, with other terms another one."""
    told = json.dumps([form.get("attempt", ""), body], sort_keys=True)
    return f"page.{hashlib.sha256(told.encode()).hexdigest()[:32]}" if form.get("attempt") else ""


async def list_bases(api: InProcessApi) -> list[JobInfo]:
    """The jobs whose code can be used, the newest of each name."""
    jobs = [JobInfo.read(one) for one in (await api.get("jobs", limit=str(MOST_BASES)))["jobs"]]
    return list({job.name: job for job in jobs[::-1]}.values())[::-1]


def read_question(form: dict[str, str]) -> Question:
    """The question of a form."""
    return Question(form.get("base", ""), form.get("file", ""), {name: form.get(name, "") for name in TERMS})


async def write_request(api: InProcessApi, question: Question) -> dict[str, Any]:
    """The question as the API takes it: the job, and the code of the job it starts from."""
    job = question.read_job()
    if job.secrets:
        names = ", ".join(job.secrets)
        raise JobError(
            f"this job needs the secrets {names}, which a browser does not send; submit it with: springtide submit"
        )
    base = JobInfo.read(await api.get("jobs", question.base))
    return {"job": write_job(job), "archive": base.code_hash}


def write_job(job: JobFile) -> dict[str, Any]:
    """A job as a document."""
    return job.model_dump(mode="json", exclude_defaults=True)


async def find_reply(api: InProcessApi, question: Question) -> dict[str, AskReply | str | None]:
    """The reply to a question, or what is wrong with it."""
    try:
        body = await write_request(api, question)
        document = await api.post("plan", body=body | {"compare": True})
        board = await api.get("board", limit="1", lanes="false")
        return {"reply": build_reply(document, board["now_s"]), "problem": ""}
    except (JobError, ApiRefusal) as error:
        return {"reply": None, "problem": str(error)}
