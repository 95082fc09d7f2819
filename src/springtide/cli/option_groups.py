"""Options of a command in groups: a dataclass whose fields are made by `option` stands for all of them.

Typer wants one parameter per option. A command with thirty of them takes a few groups instead, each a frozen value that
the modes of the command pass on; `flatten` makes of it what typer reads.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, Field, field, fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_type_hints

import typer

from springtide.errors import InputError

OPTION = "option"
NAMES = "names"
_MARK: Any = Annotated  # of a type that is only known when it is run


def option(default: Any, help: str, *names: str, **rules: Any) -> Any:
    """A field of a group that is an option: its default, what it means, its names if not the field's, typer's rules."""
    metadata = {OPTION: typer.Option(*names, help=help, **rules), NAMES: names}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def list_given(*groups: Any) -> list[str]:
    """The options of these groups that differ from their defaults, as they are typed."""
    return [
        name_option(one) for group in groups for one in fields(group) if getattr(group, one.name) != find_default(one)
    ]


def refuse_given(given: Sequence[str], rule: str) -> None:
    """Refuse options that would be ignored; `rule` says what they need, or what does without them."""
    if given:
        raise InputError(f"{', '.join(given)}: {rule}")


def name_option(one: "Field[Any]") -> str:
    """An option as it is typed."""
    return next((name for name in one.metadata[NAMES] if name.startswith("--")), f"--{one.name.replace('_', '-')}")


def find_default(one: "Field[Any]") -> Any:
    """What an option is where it is not given."""
    return one.default if one.default_factory is MISSING else one.default_factory()


def flatten(command: Callable[..., None]) -> Callable[..., None]:
    """The command with every option of its groups as a parameter of its own; values reach it in their groups."""
    types = get_type_hints(command, include_extras=True)
    given = signature(command).parameters.values()
    parameters = [flat for one in given for flat in list_parameters(one, types[one.name])]

    def run(**values: Any) -> None:
        command(**{one.name: gather(one.name, types[one.name], values) for one in given})

    run.__doc__, run.__name__ = command.__doc__, command.__name__
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    setattr(run, "__signature__", Signature(parameters))  # noqa: B010
    return run


def list_parameters(parameter: Parameter, annotation: Any) -> Iterator[Parameter]:
    """The parameters that typer is to see for one of the command's: itself, or the options of its group."""
    if not is_dataclass(annotation):
        yield parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=annotation)
        return
    types = get_type_hints(annotation)
    for one in fields(annotation):
        marked = _MARK[types[one.name], one.metadata[OPTION]]
        yield Parameter(one.name, Parameter.KEYWORD_ONLY, default=find_default(one), annotation=marked)


def gather(name: str, annotation: Any, values: dict[str, Any]) -> Any:
    """The value of one of the command's parameters: as given, or its group made of the values of its options."""
    if not is_dataclass(annotation):
        return values[name]
    group: Any = annotation
    return group(**{one.name: values[one.name] for one in fields(annotation)})
