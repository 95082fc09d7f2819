"""Which variables a loop of a script carries, found in its bytecode: those it may read before it writes them.

And which of its own attributes a function goes on from. An attribute of a variable (`self.seen`) is a variable like any
other, and so is an item by a constant (`counts["seen"]`). A warning needs only that a value may come from before; a
refusal needs that no path sets it anew.
"""

import dis
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import CodeType

#: An instruction that reads or writes variables; some do both, or two at a time.
ACCESS = re.compile(r"(LOAD|STORE|DELETE)_(?:FAST|NAME|GLOBAL|DEREF)(?!_AND_CLEAR)")
ALWAYS_JUMPING = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE")
RETURNING = ("RETURN_VALUE", "RETURN_CONST")
ENDING = (*RETURNING, "RAISE_VARARGS", "RERAISE")
#: What a clock is asked by: a time differs in a resumed process, and is not lost.
CLOCKS = {"time", "perf_counter", "monotonic", "process_time", "now", "utcnow", "today", "default_timer"}
CLOCKS |= {f"{name}_ns" for name in CLOCKS}
#: The place of an item that is changed, among attributes by their names.
SUBSCRIPT = "[]"
#: Functions that put tensors together.
JOINING = {"cat", "concat", "concatenate", "stack", "hstack", "vstack", "append"}
#: Instructions of a call without arguments, up to where its value is stored.
CALL_LENGTH = 6


@dataclass(frozen=True, slots=True)
class CodeSpan:
    """The instructions of a function, the one that is at work, and the part that is looked at: a loop, or all."""

    code: tuple[dis.Instruction, ...]
    #: What each does with variables: LOAD, STORE or DELETE, and a name.
    accesses: tuple[tuple[tuple[str, str], ...], ...]
    #: The place in `code` of each instruction, by its offset.
    places: Mapping[int, int]
    here: int
    first: int
    last: int
    #: The instructions of the part: from the first to the last, and what handles its exceptions, wherever that lies.
    inside: tuple[int, ...]

    @property
    def start(self) -> int:
        """Where to look from: a loop's next turn, or a call's line, in which a value may be read before the call."""
        if self.code[self.here].opname == "FOR_ITER":
            return self.here + 1
        return max(
            (index for index in range(self.first, self.here + 1) if self.code[index].starts_line), default=self.here
        )

    def follow(self, index: int, came_from: int) -> Iterator[int]:
        """The instructions of the loop that may come next."""
        one = self.code[index]
        if one.opname in ENDING:
            return
        jumps = one.opcode in dis.hasjrel or one.opcode in dis.hasjabs
        # Every inner loop has an item: there is a turn for a worker, and nothing depends on a loop that is empty.
        is_entered = one.opname == "FOR_ITER" and came_from < index
        nexts = [] if one.opname in ALWAYS_JUMPING else [index + 1]
        if jumps and not is_entered:
            nexts.append(self.places[one.argval])
        yield from (place for place in nexts if self.first <= place <= self.last)

    def reach_from(self, start: int) -> set[int]:
        """The instructions that may come from one on, if nothing is raised."""
        seen: set[int] = set()
        open_ = [start]
        while open_:
            index = open_.pop()
            if index not in seen:
                seen.add(index)
                # From behind, for a loop that is left.
                open_ += [place for place in self.follow(index, index) if place not in seen]
        return seen

    def reads_first(self, name: str, start: int) -> bool:
        """Whether a variable may be read, from an instruction on, before it is written."""
        return any(("LOAD", name) in self.accesses[place] for place in self.reach(start, name))

    def goes_on_from(self, name: str, start: int) -> bool:
        """Whether a variable is read, from an instruction on, and on no path written before that."""
        firsts = [self.find_access(place, name) for place in self.reach(start, name)]
        return "LOAD" in firsts and "STORE" not in firsts

    def may_leave(self, name: str, start: int) -> bool:
        """Whether a function may return without having written a variable."""
        return any(self.code[place].opname in RETURNING for place in self.reach(start, name, past="LOAD"))

    def may_leave_be(self, name: str) -> bool:
        """Whether a turn of the loop may end without having written a variable, and no turn only adds to it."""
        is_past = self.here in set(self.reach(self.start, name, past="LOAD"))
        return is_past and not any(self.is_added(index, name) for index in self.list_accesses_of(name, "STORE"))

    def find_access(self, index: int, name: str) -> str | None:
        """What an instruction does with a variable, first of all."""
        return next((kind for kind, other in self.accesses[index] if other == name), None)

    def reach(self, start: int, name: str, past: str | None = None) -> Iterator[int]:
        """The instructions that may come from one on, up to those that access a variable; past those of a kind."""
        seen: set[tuple[int, bool]] = set()
        open_ = [(start, start - 1)]
        while open_:
            index, came_from = open_.pop()
            if (index, came_from < index) in seen:
                continue
            seen.add((index, came_from < index))
            yield index
            if self.find_access(index, name) in (None, past):
                open_ += [(place, index) for place in self.follow(index, came_from)]

    def list_written(self) -> set[str]:
        """The variables that the loop writes, but for those that a clock is read into."""
        written: set[str] = set()
        times: set[str] = set()
        for index in self.inside:
            names = {name for kind, name in self.accesses[index] if kind == "STORE"}
            written |= names
            if names and self.is_time(index):
                times |= names
        return written - times

    def list_accesses_of(self, name: str, kind: str) -> list[int]:
        """Where a variable is read, or written."""
        return [index for index in self.inside if (kind, name) in self.accesses[index]]

    def is_sum(self, name: str) -> bool:
        """Whether a variable is only added to (`total += ...`), so that nothing else in the loop depends on it."""
        stores = self.list_accesses_of(name, "STORE")
        return len(self.list_accesses_of(name, "LOAD")) == len(stores) and all(map(self.is_computed, stores))

    def is_collected(self, name: str) -> bool:
        """Whether a variable is only put together with more (`all_ = torch.cat([all_, out])`), in lines of its own."""
        return all(self.is_put_together(index, name) for index in self.list_accesses_of(name, "STORE"))

    def is_put_together(self, index: int, name: str) -> bool:
        """Whether the line that stores a variable here stores nothing else, and puts what it was and more together."""
        before = range(index, self.first - 1, -1)
        line = next((place for place in before if self.code[place].starts_line), self.first)
        stored = [one for place in range(line, index + 1) for kind, one in self.accesses[place] if kind == "STORE"]
        has_own = any(("LOAD", name) in one for one in self.accesses[line:index])
        return stored == [name] and has_own and any(one.argval in JOINING for one in self.code[line:index])

    def is_computed(self, index: int) -> bool:
        """Whether what is stored here is a sum, a product or the like."""
        return self.code[self.find_end(index) - 1].opname == "BINARY_OP"

    def is_added(self, index: int, name: str) -> bool:
        """Whether what is stored here is computed, in this line, from the variable itself."""
        before = range(index - 1, self.first - 1, -1)
        line = next((place for place in before if self.code[place].starts_line), self.first)
        return self.is_computed(index) and any(("LOAD", name) in one for one in self.accesses[line:index])

    def find_end(self, index: int) -> int:
        """Where the value that is stored here is whole: before an attribute is set, its owner is put on top of it."""
        return index - 1 if self.code[index].opname == "STORE_ATTR" else index

    def is_time(self, index: int) -> bool:
        """Whether what is stored here is what a clock was just asked for."""
        end = self.find_end(index)
        before = self.code[max(0, end - CALL_LENGTH) : end]
        if not before or not before[-1].opname.startswith("CALL"):
            return False
        asked = [one.argval for one in before if one.opname.startswith(("LOAD_", "PUSH_", "STORE_"))]
        return next((name in CLOCKS for name in reversed(asked) if isinstance(name, str)), False)


@lru_cache
def find_carried(code: CodeType, place: int) -> frozenset[str]:
    """The variables that the outermost loop around a place carries, seen from that place."""
    loop = find_loop(code, place)
    if loop is None:
        return frozenset()
    return frozenset(name for name in loop.list_written() if loop.reads_first(name, loop.start))


@lru_cache
def find_written(code: CodeType, place: int) -> frozenset[str]:
    """The variables that the outermost loop around a place writes."""
    loop = find_loop(code, place)
    return frozenset() if loop is None else frozenset(loop.list_written())


@lru_cache
def find_passed_on(code: CodeType, place: int) -> frozenset[str]:
    """The variables that the `for` loop at a place hands from one item to the next, but for mere sums."""
    loop = find_loop(code, place, innermost=True)
    if loop is None or loop.code[loop.here].opname != "FOR_ITER":
        return frozenset()
    passed_on = {name for name in loop.list_written() if loop.goes_on_from(name, loop.start)}
    return frozenset(name for name in passed_on if not loop.is_sum(name))


@lru_cache
def find_collected(code: CodeType, place: int) -> frozenset[str]:
    """Those of these variables that it only puts together with more of their kind."""
    loop = find_loop(code, place, innermost=True)
    return frozenset() if loop is None else frozenset(filter(loop.is_collected, find_passed_on(code, place)))


@lru_cache
def find_left(code: CodeType, place: int) -> frozenset[str]:
    """The variables that the `for` loop at a place goes on from and may leave as they are, or write.

    Not those that it adds to: a rare sum is one nevertheless.
    """
    loop = find_loop(code, place, innermost=True)
    if loop is None or loop.code[loop.here].opname != "FOR_ITER":
        return frozenset()
    going_on = (name for name in loop.list_written() if loop.goes_on_from(name, loop.start))
    return frozenset(name for name in going_on if loop.may_leave_be(name))


@lru_cache(maxsize=4096)
def find_remembered(code: CodeType) -> frozenset[str]:
    """The attributes of its first argument that a function goes on from, and sets: always, or by adding to them."""
    owner = f"{code.co_varnames[0]}." if code.co_argcount else None
    whole = read_code(code)
    found = {name for name in whole.list_written() if owner is not None and name.startswith(owner)}
    return frozenset(
        name.partition(".")[2]
        for name in found
        if whole.goes_on_from(name, 0)
        and (not whole.may_leave(name, 0) or any(map(whole.is_computed, whole.list_accesses_of(name, "STORE"))))
    )


@lru_cache(maxsize=1024)
def read_code(code: CodeType) -> CodeSpan:
    """All of a function."""
    all_ = tuple(rename(one, code) for one in dis.get_instructions(code) if one.opname != "EXTENDED_ARG")
    offsets = [one.offset for one in all_]
    # A jump goes to what extends the argument of an instruction, if there is such: to the next that is one.
    places = {one.offset: bisect_left(offsets, one.offset) for one in dis.get_instructions(code)}
    return CodeSpan(all_, tuple(list_accesses(all_)), places, 0, 0, len(all_) - 1, tuple(range(len(all_))))


def rename(one: dis.Instruction, code: CodeType) -> dis.Instruction:
    """An instruction by the name that it has in older Pythons, with the names of arguments, which `dis` leaves out."""
    if one.opname == "KW_NAMES" and one.arg is not None:
        return one._replace(argval=code.co_consts[one.arg])
    if one.opname == "BINARY_OP" and one.argrepr == "[]":
        return one._replace(opname="BINARY_SUBSCR")
    return one._replace(opname="LOAD_CONST") if one.opname == "LOAD_SMALL_INT" else one


@lru_cache(maxsize=1024)
def find_loop(code: CodeType, place: int, innermost: bool = False) -> CodeSpan | None:
    """The outermost or the innermost loop around a place; a jump back ends one, but for those of handlers."""
    whole = read_code(code)
    # Within a call the place is behind its instruction.
    here = bisect_right([one.offset for one in whole.code], place) - 1
    reached = whole.reach_from(0) | whole.reach_from(here)
    all_ = [(whole.places[one.argval], index) for index, one in enumerate(whole.code) if is_jump_back(one)]
    jumps = [(first, last) for first, last in all_ if last in reached]
    around = [(first, last) for first, last in jumps if first <= here <= last]
    if not around:
        return None
    if innermost:
        around = [(first, last) for first, last in around if first == max(first for first, _ in around)]
    first, last = min(first for first, _ in around), max(last for _, last in around)
    inside = {*range(first, last + 1), *list_handlers(code, whole, first, last)}
    return replace(whole, here=here, first=first, last=last, inside=tuple(sorted(inside)))


def list_handlers(code: CodeType, whole: CodeSpan, first: int, last: int) -> set[int]:
    """What handles exceptions of a loop and goes on with it, wherever the compiler has put that."""
    usual = whole.reach_from(0)
    found: set[int] = set()
    for entry in dis.Bytecode(code).exception_entries:  # type: ignore[attr-defined]  # since Python 3.11
        if first <= whole.places[entry.start] <= last:
            handling = whole.reach_from(whole.places[entry.target]) - usual
            back = {place for index in handling for place in whole.follow(index, index)} & usual
            if any(first <= place <= last for place in back):  # that of an outer loop goes back to before this one
                found |= handling
    return found


def list_accesses(code: tuple[dis.Instruction, ...]) -> Iterator[tuple[tuple[str, str], ...]]:
    """What each instruction does with variables and their attributes, in its order."""
    loaded = ""  # the variable on top of the stack, where that is known
    changed: dict[str, str] = {}  # of `self.seen += 1`, which copies `self` before it reads, the variable by attribute
    item = ""  # of `counts["seen"]`, whose two parts are on top of the stack
    before = ""
    for one in code:
        kinds = ACCESS.findall(one.opname)
        names = one.argval if isinstance(one.argval, tuple) else (one.argval,)
        accesses = tuple(zip(kinds, names, strict=False))
        if one.opname == "LOAD_ATTR" and loaded:
            accesses = (("LOAD", f"{loaded}.{one.argval}"),)
            if before == "COPY":
                changed[one.argval] = loaded
        elif one.opname == "STORE_ATTR" and (owner := changed.get(one.argval, "") if before == "SWAP" else loaded):
            accesses = (("STORE", f"{owner}.{one.argval}"),)
        elif one.opname == "BINARY_SUBSCR" and item:
            accesses = (("LOAD", item),)
            if before == "COPY":
                changed[SUBSCRIPT] = item
        elif one.opname == "STORE_SUBSCR" and (item := changed.pop(SUBSCRIPT, "") if before == "SWAP" else item):
            accesses = (("STORE", item),)
        if one.opname == "LOAD_CONST" and loaded and isinstance(one.argval, str | int):
            item = f"{loaded}[{one.argval!r}]"
        elif one.opname != "COPY":
            item = ""
        if one.opname != "COPY":
            loaded = str(names[-1]) if kinds and kinds[-1] == "LOAD" else ""
        before = one.opname
        yield accesses


def is_jump_back(one: dis.Instruction) -> bool:
    """Whether an instruction may go back to an earlier one."""
    return (one.opcode in dis.hasjrel or one.opcode in dis.hasjabs) and one.argval < one.offset
