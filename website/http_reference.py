"""The HTTP reference: the OpenAPI document of the server as a page to read."""

from collections.abc import Iterator
from typing import Any

Document = dict[str, Any]
BOUNDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
}
HEAD = """# HTTP

Every command and every page of the dashboard asks this API. A request carries `Authorization: Bearer TOKEN`; bodies and
answers are JSON unless a route says otherwise, and every answer has `schema`. A running server shows the same, to try
out, at `/docs`.

Errors are `{"error": {"reason": WORD, "sentence": TEXT}}`: 4xx where the request is wrong and has had no
effect, 503 where the platform could not answer. A 503 with `unknown: true` may have had one: ask again with the same
`Idempotency-Key`, which does no harm.
"""


def write_reference(document: Document) -> str:
    """A page with a section per tag and an entry per operation."""
    tagged: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for verb, operation in operations.items():
            if verb != "head":
                tag = (operation.get("tags") or ["platform"])[0]
                tagged.setdefault(tag, []).append(write_operation(verb, path, operation, document))
    sections = (f"## {tag.capitalize()}\n\n" + "\n".join(entries) for tag, entries in tagged.items())
    return HEAD + "\n" + "\n".join(sections)


def write_operation(verb: str, path: str, operation: Document, document: Document) -> str:
    """One operation: what it does, what it takes."""
    rows = [*list_parameters(operation, document), *list_body(operation, document)]
    table = "| Given | In | Needed | What |\n|---|---|---|---|\n" + "\n".join(rows) + "\n" if rows else ""
    return f"### `{verb.upper()} {path}`\n\n{operation.get('description', '')}\n\n{table}"


def list_parameters(operation: Document, document: Document) -> Iterator[str]:
    """Rows of what stands in the path, the query and the head of a request."""
    for given in operation.get("parameters", []):
        yield write_row(given["name"], given["in"], given["schema"], given.get("required", False), document)


def list_body(operation: Document, document: Document) -> Iterator[str]:
    """Rows of the keys of a request's body."""
    for content in operation.get("requestBody", {}).get("content", {}).values():
        body = follow(content["schema"], document)
        for name, schema in body.get("properties", {}).items():
            yield write_row(name, "body", schema, name in body.get("required", ()), document)


def write_row(name: str, place: str, schema: Document, required: bool, document: Document) -> str:
    """One thing that is given."""
    told = schema.get("description", "") or follow(schema, document).get("description", "")
    default = "" if required or schema.get("default") is None else f"default `{schema['default']}`"
    what = "; ".join(filter(None, [describe_type(schema, document), escape(told), default]))
    return f"| `{name}` | {place} | {'yes' if required else 'no'} | {what} |"


def describe_type(schema: Document, document: Document) -> str:
    """A type in words, with its bounds."""
    if "anyOf" in schema:
        kinds = (describe_type(each, document) for each in schema["anyOf"] if each.get("type") != "null")
        return " or ".join(dict.fromkeys(kinds))
    schema = follow(schema, document)
    if "enum" in schema:
        return "one of " + ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {describe_type(schema.get('items', {}), document)}"
    bounds = [words.format(schema[key]) for key, words in BOUNDS.items() if key in schema]
    return escape(
        ", ".join([schema.get("title", "") if "properties" in schema else schema.get("type", "any"), *bounds])
    )


def follow(schema: Document, document: Document) -> Document:
    """A schema with its reference looked up."""
    if "$ref" not in schema:
        return schema
    found: Document = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]]
    return found


def escape(text: str) -> str:
    """Text inside a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")
