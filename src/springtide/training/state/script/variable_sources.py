"""What the variables of a loop or a function are made of, and so which of them a backward depends on.

`loss = f(x) * w` makes `loss` of `x` and `w`; from what a backward has, one goes back over these. Items by a constant
and attributes are variables of their own: `d["n"]`, `self.rate`.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from springtide.training.state.script.flow_values import Names, Slot, find_owner, join
from springtide.training.state.script.loop_code import CodeSpan


@dataclass
class VariableSources:
    """What each variable is made of, by the instructions that make it, and what is looked for: the ends."""

    span: CodeSpan
    made_of: dict[str, dict[int, Names]] = field(default_factory=lambda: defaultdict(dict))
    #: The variables that backwards depend on at once, and the instructions of these.
    ends: set[str] = field(default_factory=set)
    ends_at: set[int] = field(default_factory=set)
    #: Variables that are made with constant keys.
    made: set[str] = field(default_factory=set)
    #: What is returned, by where.
    returns: dict[int, Slot] = field(default_factory=dict)

    def add(self, name: str, names: Names, at: int) -> None:
        """A variable is, or may be from this instruction on, made of others."""
        self.made_of[name][at] = self.made_of[name].get(at, frozenset()) | names

    def end(self, names: Names, at: int) -> None:
        """A backward, or what is returned, depends on these."""
        self.ends |= names
        self.ends_at.add(at)

    def end_with_returned(self) -> None:
        """Of a function without a backward: look for what it returns."""
        for at, slot in self.returns.items():
            self.end(slot.names, at)

    def find_all(self, ends: Iterable[str] | None = None) -> Names:
        """What the ends depend on, or those that are given, on the way of whatever variables."""
        found: set[str] = set()
        open_ = set(self.ends if ends is None else ends)
        before = self.list_before()
        while open_:
            name = open_.pop()
            found.add(name)
            owner = name.partition("[")[0]
            open_ |= self.list_sources(name, before) | self.list_sources(owner, before)
            open_ |= {item for item in self.made_of if item.startswith(f"{name}[")}
            open_ |= {owner} if name.startswith(f"{owner}[-") else set()  # an item with two names
            open_ -= found
        return frozenset(found)

    def list_before(self) -> set[int]:
        """The instructions after which a backward may still come in this turn."""
        behind = defaultdict(set)
        for index in self.span.inside:
            for place in self.span.follow(index, index) if index != self.span.here else ():
                behind[place].add(index)
        found: set[int] = set()
        open_ = set(self.ends_at)
        while open_:
            index = open_.pop()
            found.add(index)
            open_ |= behind[index] - found
        return found

    def list_sources(self, name: str, before: set[int]) -> set[str]:
        """What a variable is made of, but for what it becomes after all backwards and is not any more in the next turn.

        An item is of a container that others may have as well, if it was not made here.
        """
        root = find_owner(name)
        stores = self.made_of.get(name, {})
        is_own = name == root or (root in self.made and not self.made_of.get(root))
        if is_own and not before.issuperset(stores) and self.is_new(root, before):
            stores = {index: names for index, names in stores.items() if index in before}
        return set().union(*stores.values())

    def is_new(self, name: str, before: set[int]) -> bool:
        """Whether a variable is set in every turn before it is read, and before a backward: a function may read it."""
        is_set = not before.isdisjoint(self.span.list_accesses_of(name, "STORE"))
        return is_set and not self.span.reads_first(name, self.span.start)

    def find_items(self) -> dict[object, Names]:
        """The same for each item of what is returned, if that has the same items wherever it is."""
        nothing = [slot for slot in self.returns.values() if slot.value is None and not slot.variable]
        all_ = [self.list_items(slot) for slot in self.returns.values() if slot not in nothing]
        if not all_ or any(one.keys() != all_[0].keys() for one in all_):
            return {}
        return {key: self.find_all(join(nothing).union(*(one[key] for one in all_))) for key in all_[0]}

    def list_items(self, slot: Slot) -> dict[object, Names]:
        """What items of a value are made of, if it was made here with constant keys."""
        if slot.items is not None:
            return dict(slot.items)
        variable = slot.variable
        if variable not in self.made or self.made_of.get(variable):
            return {}
        names = [name for name in self.made_of if name.startswith(f"{variable}[")]
        return {ast.literal_eval(name.removeprefix(variable)[1:-1]): slot.names - {variable} | {name} for name in names}
