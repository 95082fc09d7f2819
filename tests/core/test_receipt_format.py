"""Receipts: what a change of one does to it."""

import json
from typing import Any

import pytest

from springtide.core.receipt_format import check_chain, digest_receipt, hash_line, list_links, read_receipt
from springtide.errors import InputError


def make_chain(*contents: dict[str, Any]) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for content in contents:
        before = lines[-1]["chain"] if lines else ""
        lines.append({**content, "chain": hash_line(before, content)})
    return lines


def make_receipt() -> dict[str, Any]:
    head = {"facts": {"seed": 0}, "environment": {"torch": "2"}, "data": None}
    chain = make_chain(head, {"step": 3, "state": "a"}, {"step": 7, "state": "b"})
    told = {"schema": 1, "job": {"run": ["python", "train.py"]}, "chain": chain}
    return {**told, "digest": digest_receipt(told), "seal": {"mac": "f"}}


def test_a_receipt_is_read_and_its_links_are_listed() -> None:
    receipt = read_receipt(json.dumps(make_receipt()), "r.json")
    assert list(list_links(receipt)) == [(3, "a"), (7, "b")]


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("chain", 1, "state"), "c", "line 2 of the receipt's chain does not follow"),
        (("chain", 0, "facts"), {"seed": 1}, "line 1 of the receipt's chain does not follow"),
        (("job", "run"), ["python", "other.py"], "does not have the digest that it names"),
        (("schema",), 2, "its schema is 2"),
        (("chain",), [], "is not a receipt"),
    ],
)
def test_a_receipt_that_was_changed_is_refused(place: tuple[Any, ...], value: Any, said: str) -> None:
    receipt = make_receipt()
    inner: Any = receipt
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(InputError, match=said):
        read_receipt(json.dumps(receipt), "r.json")


def test_a_line_left_out_is_found_even_where_the_digest_was_made_anew() -> None:
    receipt = make_receipt()
    del receipt["chain"][1]
    receipt["digest"] = digest_receipt(receipt)
    with pytest.raises(InputError, match="line 2"):
        read_receipt(json.dumps(receipt), "r.json")


def test_an_empty_chain_is_a_chain() -> None:
    check_chain([])
