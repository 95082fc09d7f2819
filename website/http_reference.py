"""The HTTP reference: the OpenAPI document of the server as a page to read."""

from typing import Any

from springtide.dashboard.api_reference import Given, Operation, read_operations

HEAD = """# HTTP

Every command and every page of the dashboard asks this API. A request carries `Authorization: Bearer TOKEN`; bodies and
answers are JSON unless a route says otherwise, and every answer has `schema`. A running server shows the same at
`/docs`, and gives it to other programs as OpenAPI at `/openapi.json`.

Errors are `{"error": {"reason": WORD, "sentence": TEXT}}`: 4xx where the request is wrong and has had no
effect, 503 where the platform could not answer. A 503 with `unknown: true` may have had one: ask again with the same
`Idempotency-Key`, which does no harm.
"""


def write_reference(document: dict[str, Any]) -> str:
    """A page with a section per tag and an entry per operation."""
    sections = (
        f"## {tag.capitalize()}\n\n" + "\n".join(map(write_operation, operations))
        for tag, operations in read_operations(document).items()
    )
    return HEAD + "\n" + "\n".join(sections)


def write_operation(one: Operation) -> str:
    """One operation: what it does, what it takes."""
    rows = "\n".join(map(write_row, one.given))
    table = f"| Given | In | Needed | What |\n|---|---|---|---|\n{rows}\n" if rows else ""
    return f"### `{one.verb} {one.path}`\n\n{one.told}\n\n{table}"


def write_row(given: Given) -> str:
    """One thing that is given, in a table, whose columns a bar would end."""
    what = given.what.replace("|", "\\|")
    return f"| `{given.name}` | {given.place} | {'yes' if given.needed else 'no'} | {what} |"
