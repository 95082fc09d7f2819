"""The tests behind the table of attacks in docs/concepts/security.md, as it names them; for `make test-adversary`.

`python -m tests.adversary.attacks` prints their files, one per line.
"""

from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/concepts/security.md"
HEAD = "| Attack or accident | What happens | Tried by, under `tests/` |"


def list_attacks(page: str) -> dict[str, list[str]]:
    """The files that try each attack of the page's table, relative to the checkout, by what the attack is."""
    lines = page.splitlines()
    begin = lines.index(HEAD) + 2
    attacks = {}
    for line in lines[begin:]:
        if not line.startswith("|"):
            break
        attack, _, tried_by = line.strip("| ").rsplit(" | ", 2)
        attacks[attack] = [f"tests/{name.strip('`')}.py" for name in tried_by.split(", ")]
    return attacks


if __name__ == "__main__":
    print("\n".join(sorted({file for files in list_attacks(PAGE.read_text()).values() for file in files})))
