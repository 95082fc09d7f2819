"""The OpenAPI document of the server as values that a page is made of: what there is, and what each takes.

Pure. The page of a running server and the reference of the documentation are both written from it. Texts have their
code in backticks, as docstrings do.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from springtide.core.shared_types import Document

BOUNDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
}


@dataclass(frozen=True, slots=True)
class Given:
    """One thing that a request has: in its path, its query, its head or its body."""

    name: str
    place: str
    needed: bool
    what: str


@dataclass(frozen=True, slots=True)
class Operation:
    """What a verb does at a path."""

    verb: str
    path: str
    told: str
    given: list[Given]

    @property
    def first(self) -> str:
        """What it does, in its first sentence."""
        return " ".join(self.told.split("\n\n")[0].split())

    @property
    def more(self) -> list[str]:
        """What else there is to say, by paragraphs."""
        return [" ".join(text.split()) for text in self.told.split("\n\n")[1:]]


def read_operations(document: Document) -> dict[str, list[Operation]]:
    """The operations of a document by their tag."""
    tagged: dict[str, list[Operation]] = {}
    for path, operations in document["paths"].items():
        for verb, operation in operations.items():
            if verb != "head":
                given = [*list_parameters(operation, document), *list_body(operation, document)]
                one = Operation(verb.upper(), path, operation.get("description", ""), given)
                tagged.setdefault((operation.get("tags") or ["platform"])[0], []).append(one)
    return tagged


def list_parameters(operation: Document, document: Document) -> Iterator[Given]:
    """What stands in the path, the query and the head of a request."""
    for given in operation.get("parameters", []):
        yield read_given(given["name"], given["in"], given["schema"], given.get("required", False), document)


def list_body(operation: Document, document: Document) -> Iterator[Given]:
    """The keys of a request's body."""
    for content in operation.get("requestBody", {}).get("content", {}).values():
        body = follow(content["schema"], document)
        for name, schema in body.get("properties", {}).items():
            yield read_given(name, "body", schema, name in body.get("required", ()), document)


def read_given(name: str, place: str, schema: Document, required: bool, document: Document) -> Given:
    """One thing that is given."""
    told = schema.get("description", "") or follow(schema, document).get("description", "")
    default = "" if required or schema.get("default") is None else f"default `{schema['default']}`"
    what = "; ".join(filter(None, [describe_type(schema, document), " ".join(told.split()), default]))
    return Given(name, place, required, what)


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
    return ", ".join([schema.get("title", "") if "properties" in schema else schema.get("type", "any"), *bounds])


def follow(schema: Document, document: Document) -> Document:
    """A schema with its reference looked up."""
    if "$ref" not in schema:
        return schema
    found: Document = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]]
    return found
