"""YAML read so that what is written is what is meant: no aliases, no key twice, no dates, octals or yes for true."""

import re
from typing import Any

import yaml

from springtide.errors import JobError


class _Loader(yaml.SafeLoader):
    """YAML without aliases, repeated keys, dates, times, octals and yes/no booleans: what you read is what you get."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise JobError(f"line {mark.line + 1}: aliases (*name) are not accepted; write the value out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = getattr(key_node, "value", None)
            if isinstance(key, str) and key in seen:
                raise JobError(f"line {key_node.start_mark.line + 1}: key {key!r} is given twice; keep one")
            seen.add(key if isinstance(key, str) else id(key_node))
        return super().construct_mapping(node, deep)


_PREFIX = "tag:yaml.org,2002:"
# YAML 1.1 reads 1:30 as 90, 010 as 8, yes as true: those stay texts here, which the model then takes or refuses.
_PLAIN = {
    "bool": ("true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?(?:0|[1-9][0-9_]*)", "-+0123456789"),
    "float": (r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+][0-9]+)?", "-+0123456789."),
}
_Loader.yaml_implicit_resolvers = {
    letter: [(tag, rule) for tag, rule in rules if tag.removeprefix(_PREFIX) not in (*_PLAIN, "timestamp")]
    for letter, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _name, (_rule, _letters) in _PLAIN.items():
    _Loader.add_implicit_resolver(_PREFIX + _name, re.compile(rf"(?:{_rule})$"), list(_letters))


def parse_yaml(text: str, origin: str) -> Any:
    """What YAML text holds, read strictly."""
    try:
        return yaml.load(text, _Loader)
    except JobError as error:
        raise JobError(f"{origin}, {error}") from None
    except RecursionError:
        raise JobError(f"{origin} is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        raise JobError(f"{origin} is not YAML: {' '.join(str(error).split())}") from None
