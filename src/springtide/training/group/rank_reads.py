"""Ranks that a script reads from its environment (`RANK`, `LOCAL_RANK`), as scripts written for torchrun do.

A process of an elastic run has several logical workers, or one, and others tomorrow, so no rank is its own: under our
launcher there is none, and what a script takes instead is 0 in every process. Data that it splits by that number
(`files[rank::world]`) would be 1/N of the data on every process, the same everywhere, and nothing could see it. Found
in the code of the script when it prepares: a share that was taken is refused, a rank that is read is told.
"""

import dis
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType
from typing import Any

from springtide.errors import JobError
from springtide.training.state.script.class_code import list_codes
from springtide.training.state.script.loop_variables import is_installed, list_frames

RANKS = {"RANK", "LOCAL_RANK"}
WORLD_SIZE = "WORLD_SIZE"
ASKING = {"environ", "getenv"}
#: Variables and attributes that are called so have a rank, or the number of ranks.
RANK_NAME = re.compile(r"(^|[._])rank$")
WORLD_NAME = re.compile(r"(^|[._])(world|world_size|num_replicas|num_shards)$")
#: What takes a part of the data, beside a slice and a remainder.
SHARING = {"shard", "split_dataset_by_node", "islice"}
SLICES = ("BUILD_SLICE", "BINARY_SLICE")
LOADING = re.compile(r"LOAD_(FAST|NAME|GLOBAL|DEREF|ATTR|METHOD|CLASSDEREF)")
STORING = re.compile(r"STORE_(FAST|NAME|GLOBAL|DEREF|ATTR)")


@dataclass
class RankNames:
    """The variables that have a rank, and those that have the number of ranks (the sources) or come from it."""

    ranks: set[str] = field(default_factory=set)
    worlds: set[str] = field(default_factory=set)
    sources: set[str] = field(default_factory=set)

    def is_rank(self, name: Any) -> bool:
        """Whether a variable has a rank."""
        return name in self.ranks or (isinstance(name, str) and RANK_NAME.search(name) is not None)

    def is_world(self, name: Any) -> bool:
        """Whether a variable has the number of ranks, or comes from it."""
        return name in self.worlds or (isinstance(name, str) and WORLD_NAME.search(name) is not None)


@dataclass(frozen=True, slots=True)
class Share:
    """A line that takes a part of something by a rank, the variables it takes it by, and the number of ranks."""

    file: str
    line: int
    ranks: tuple[str, ...]
    by: str
    sources: tuple[str, ...]


def check_reads(data: object, warn: Callable[[str], None] | None) -> None:
    """Refuse a share of the data that was taken by a rank; say where a rank is read."""
    frames = list(list_frames())
    for frame in frames:
        values = {**frame.f_globals, **frame.f_locals}
        for share in find_shares(frame.f_code, RankNames()):
            if share.line <= frame.f_lineno and is_taken(share, values):
                refuse_share(share)
    attributes: Any = getattr(data, "__dict__", None)
    codes = [code for one in type(data).__mro__ for code in list_codes(one) if not is_installed(code.co_filename)]
    for code in codes if type(attributes) is dict else ():
        for share in find_shares(code, RankNames()):
            if is_taken(share, attributes):
                refuse_share(share)
    place = next(find_reads(frames), None)
    if place is not None and warn is not None:
        warn(
            f"{place} reads a rank from the environment; no rank is a process's own in an elastic run, and without "
            "torchrun the script's default stands for it in every process. Print and save where run.is_main, give "
            "run.prepare all data on every process, and move to run.device"
        )


def find_reads(frames: Iterable[FrameType]) -> Iterator[str]:
    """Where the script reads a rank: in frames that are under way, and in functions beside them."""
    for frame in frames:
        functions = [one.__code__ for one in frame.f_globals.values() if isinstance(one, FunctionType)]
        near = [one for one in functions if one.co_filename == frame.f_code.co_filename]
        for code in (frame.f_code, *near):
            line: int | None = code.co_firstlineno
            for one in dis.get_instructions(code) if ASKING & {*code.co_names} else ():
                line = one.positions.lineno if one.positions is not None else line
                if one.opname == "LOAD_CONST" and isinstance(one.argval, str) and one.argval in RANKS:
                    yield f"{code.co_filename}:{line}"


# Shares.


def find_shares(code: CodeType, names: RankNames) -> Iterator[Share]:
    """The lines of code, and of what is made in it, that take a part of something by a rank and the number of ranks.

    Not those under a condition that asks for neither, as a switch of the script does: nobody may have come there.
    """
    statements = list(list_statements(code))
    for _, statement in statements:
        note_stored(statement, names)
    skipped = [span for _, statement in statements for span in list_skipped(statement, names)]
    for line, statement in statements:
        certain = [one for one in statement if not any(one.offset in span for span in skipped)]
        ranks, worlds = list_ranks(statement, names), list_worlds(statement, names)
        if ranks and worlds and takes_part(certain, names):
            sources = {*names.sources, *(name for name in worlds if name not in names.worlds)}
            yield Share(code.co_filename, line, tuple(ranks), worlds[0], tuple(sources))
        for one in certain:
            if isinstance(one.argval, CodeType):
                yield from find_shares(one.argval, names)


def list_ranks(statement: list[dis.Instruction], names: RankNames) -> list[str]:
    """The variables with a rank that a line reads."""
    return [name for name in list_names(statement, LOADING) if names.is_rank(name)]


def list_worlds(statement: list[dis.Instruction], names: RankNames) -> list[str]:
    """Those with the number of ranks, or what comes from it."""
    return [name for name in list_names(statement, LOADING) if names.is_world(name)]


def list_names(statement: list[dis.Instruction], kind: re.Pattern[str]) -> list[str]:
    """The variables and attributes that a line reads, or writes; later Pythons have instructions with two."""
    named = [one.argval for one in statement if kind.match(one.opname)]
    return [str(name) for one in named for name in (one if isinstance(one, tuple) else (one,))]


def list_skipped(statement: list[dis.Instruction], names: RankNames) -> Iterator[range]:
    """What the conditions of a line may skip, if they ask for no rank and no number of ranks."""
    asks = False
    for one in statement:
        asks = asks or names.is_rank(one.argval) or names.is_world(one.argval)
        if "JUMP" in one.opname and "_IF_" in one.opname:
            if not asks:
                yield range(one.offset + 1, one.argval)
            asks = False


def list_statements(code: CodeType) -> Iterator[tuple[int, list[dis.Instruction]]]:
    """The instructions of code, line by line."""
    found: dict[int, list[dis.Instruction]] = {}
    line = code.co_firstlineno
    for one in dis.get_instructions(code):
        line = (one.positions.lineno if one.positions is not None else None) or line
        found.setdefault(line, []).append(one)
    yield from sorted(found.items())


def takes_part(statement: list[dis.Instruction], names: RankNames) -> bool:
    """Whether a line slices by a rank, compares a remainder with one or calls what splits data.

    Not one that formats both in a text, or checks whether a number is a multiple of the other.
    """
    for place, one in enumerate(statement):
        if isinstance(one.argval, CodeType):
            continue
        if one.argval in SHARING:
            return True
        if one.opname in (*SLICES, "COMPARE_OP"):
            operands = list_operands(statement, place)
            has_remainder = any(each.opname == "BINARY_OP" and each.argrepr == "%" for each in operands)
            if list_ranks(operands, names) and (has_remainder or one.opname in SLICES):
                return True
    return False


def list_operands(statement: list[dis.Instruction], place: int) -> list[dis.Instruction]:
    """What makes the values that an instruction works on, by where it stands in the text; of a slice its bounds."""
    one = statement[place]
    inside = [index for index in range(place) if is_within(statement[index], one)]
    if one.opname == "BINARY_SLICE":  # its text begins with the object that is sliced
        owner = max((index for index in inside if find_begin(statement[index]) == find_begin(one)), default=-1)
        inside = [index for index in inside if index > owner]
    found = [statement[index] for index in inside]
    # Later Pythons load two variables at once, where the first of them stands.
    before = statement[inside[0] - 1] if inside and inside[0] else None
    if before is not None and isinstance(before.argval, tuple) and LOADING.match(before.opname):
        found.insert(0, before._replace(argval=before.argval[1]))
    return found


def is_within(one: dis.Instruction, around: dis.Instruction) -> bool:
    """Whether an instruction's text lies within that of another; also where Python was told to keep no places."""
    inner, outer = one.positions, around.positions
    if inner is None or outer is None or inner.col_offset is None or outer.col_offset is None:
        return True
    ends = (inner.end_lineno or 0, inner.end_col_offset or 0), (outer.end_lineno or 0, outer.end_col_offset or 0)
    return find_begin(one) >= find_begin(around) and ends[0] <= ends[1]


def find_begin(one: dis.Instruction) -> tuple[int, int]:
    """Where the text of an instruction begins."""
    where = one.positions
    return (0, 0) if where is None else (where.lineno or 0, where.col_offset or 0)


def note_stored(statement: list[dis.Instruction], names: RankNames) -> None:
    """Note what a line stores a rank or the number of ranks in; of a line with both, by their names."""
    asked = {one.argval for one in statement if one.opname == "LOAD_CONST" and isinstance(one.argval, str)}
    asked = asked if ASKING & {*list_names(statement, LOADING)} else set()
    has_rank = bool(asked & RANKS or list_ranks(statement, names))
    has_world = bool(WORLD_SIZE in asked or list_worlds(statement, names))
    stored = {*list_names(statement, STORING)}
    if has_rank and has_world:
        ranks = {name for name in stored if "rank" in name} if len(stored) > 1 else set()
        worlds = stored - ranks if len(stored) > 1 else set()
    else:
        ranks, worlds = (stored if has_rank else set()), (stored if has_world else set())
    names.ranks |= ranks
    names.worlds |= worlds
    names.sources |= worlds if WORLD_SIZE in asked else set()


def is_taken(share: Share, values: Mapping[str, Any]) -> bool:
    """Whether a share is less than the whole: there are several ranks by what the variables have."""
    ranks = [values.get(name) for name in share.ranks]
    worlds = [values.get(name) for name in share.sources]
    return any(type(one) is int for one in ranks) and any(type(one) is int and one > 1 for one in worlds)


def refuse_share(share: Share) -> None:
    """Refuse it."""
    raise JobError(
        f"{share.file}:{share.line} takes a share of something by {share.ranks[0]!r} and {share.by!r}; no rank "
        "is a process's own in an elastic run, so every process would have the same share, and the job would train on "
        "a part of the data. Give run.prepare all data on every process: it gives each logical worker its own, as a "
        "DistributedSampler does. To evaluate, take run.shard(...)"
    )
