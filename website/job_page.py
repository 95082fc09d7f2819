"""The page of all keys and the JSON Schema, both made of the one model.

Written by `python -m website.job_page docs`.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from springtide.core.job_file import JobFile, build_schema
from springtide.core.job_file_parts.job_explanations import show_value
from springtide.core.job_file_parts.job_sections import Checkpoint, Notice, Retry, Sweep

SECTIONS: dict[str, type[BaseModel]] = {"checkpoint": Checkpoint, "retry": Retry, "notify": Notice, "sweep": Sweep}
EXAMPLE = """name: digits-cnn
run: python train.py --epochs 20
logical_workers: 4
devices: 1..8
deadline: 6h
checkpoint:
  every: 5m
  keep: 2
env:
  LR: '0.1'
secrets: [WANDB_API_KEY]
notify:
- email: ann@example.org
  on: [ended]
"""
INTRODUCTION = """# Every key of a job file

Written by `python -m website.job_page docs` from the model that checks job files; do not edit it.
What a job is and how it lives is in [job](concepts/job.md), the JSON Schema for editors in
[job.schema.json](job.schema.json).

A job file is YAML, and only `run` is required. Such a file, as a whole:

```yaml
{example}```

An unknown key is an error that names the nearest known one. At
submission every key can be changed: `springtide submit job.yaml --set deadline=2h --set checkpoint.every=1m`, and
variables with `--env LR=0.1`. A text reads as YAML there too, so `--set devices='[1, 2, 4]'` is a list.
"""


def build_page() -> str:
    """The page, in the order of the model."""
    parts = [INTRODUCTION.format(example=EXAMPLE)]
    for name, field in JobFile.model_fields.items():
        parts.append(f"## {name}\n\n{describe(field)}\n\n{show_examples(name, field)}")
        if name in SECTIONS:
            parts.append("\n".join(list_keys(SECTIONS[name])) + "\n")
    return "\n".join(parts)


def describe(field: FieldInfo) -> str:
    """What a key means, and what is so without it."""
    text = field.description or ""
    if field.is_required():
        return f"{text} Required."
    is_plain = not isinstance(field.default, BaseModel) and field.default not in (None, [], {})
    return f"{text} Default: `{show_value(field.default)}`." if is_plain and "Default:" not in text else text


class ExampleDumper(yaml.SafeDumper):
    """YAML as people write it: a line for each key, and lists of plain values on one line."""

    def represent_items(self, items: list[Any]) -> yaml.Node:
        """A list."""
        is_plain = not any(isinstance(item, (list, dict)) for item in items)
        return self.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=is_plain)


ExampleDumper.add_representer(list, ExampleDumper.represent_items)


def show_examples(name: str, field: FieldInfo) -> str:
    """Each example as YAML."""
    texts = [
        yaml.dump({name: one}, Dumper=ExampleDumper, sort_keys=False, width=100, default_flow_style=False)
        for one in field.examples or ()
    ]
    return "```yaml\n" + "# or\n".join(texts) + "```\n"


def list_keys(section: type[BaseModel]) -> Iterator[str]:
    """The keys of a mapping inside the file."""
    yield "| key | meaning | example |"
    yield "|---|---|---|"
    for name, field in section.model_fields.items():
        example = show_value((field.examples or [None])[0])
        yield f"| `{name}` | {describe(field)} | `{name}: {example}` |"


def write_docs(folder: Path) -> None:
    """Write both files."""
    (folder / "job-file.md").write_text(build_page(), encoding="utf-8")
    (folder / "job.schema.json").write_text(json.dumps(build_schema(), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_docs(Path(sys.argv[1]))
