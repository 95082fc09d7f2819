"""The state of every random generator a training step can draw from, taken and put back quickly.

A logical worker owns one such state. Python, NumPy and torch on the CPU always; CUDA through `devices`. Seeding per
sample is built on the same functions. It decides nothing about when to switch.
"""

import ctypes
import random
import struct
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from springtide.errors import JobError
from springtide.training.determinism import cuda

_KEY_WORDS = 624
_RAW_BYTES = 4 * _KEY_WORDS + 4  # MT19937's struct: uint32 key[624]; int pos (in Python's generator: before the key)


@dataclass(slots=True)
class RngState:
    """States of the generators: Python's tuple, NumPy's raw MT19937 with its cached normal, torch's tensor, CUDA's."""

    python: Any
    numpy: bytes
    numpy_normal: float | None
    cpu: torch.Tensor
    cuda: torch.Tensor | None


class NumpyRng:
    """NumPy's global generator, read and written through the address it documents (`ctypes.state_address`).

    get_state and set_state cost 45 us each, half a percent of a small step per switch; a copy of the raw struct
    costs 0.3 us. The one thing outside the struct, the cached second normal, can only appear when the struct changes.
    """

    def __init__(self) -> None:
        self.generator: Any = None
        self.memory = (ctypes.c_char * 0)()
        self.known_raw = b""
        self.known_normal: float | None = None

    def find_memory(self) -> ctypes.Array[ctypes.c_char]:
        """The raw struct of the global bit generator, which a user may have exchanged."""
        generator = np.random.mtrand.get_bit_generator()
        if generator is not self.generator:
            if not isinstance(generator, np.random.MT19937):
                raise JobError(
                    f"np.random draws from {type(generator).__name__}; each logical worker's state of it is kept only "
                    "for MT19937, which it has unless np.random.set_bit_generator is called"
                )
            self.generator = generator
            self.memory = (ctypes.c_char * _RAW_BYTES).from_address(generator.ctypes.state_address)
            self.known_raw = b""
        return self.memory

    def read(self) -> tuple[bytes, float | None]:
        """The raw struct and the cached normal, if there is one."""
        raw = self.find_memory().raw
        if raw != self.known_raw or self.known_normal is not None:  # the normal may have been used up meanwhile
            state: Any = np.random.get_state(legacy=True)
            self.known_raw, self.known_normal = raw, float(state[4]) if state[3] else None
        return raw, self.known_normal

    def write(self, raw: bytes, normal: float | None) -> None:
        """Put the struct and the cached normal back; if nothing was drawn since the last read, there is none now."""
        untouched = self.find_memory().raw == self.known_raw and self.known_normal is None
        if normal is not None or not untouched:
            key = np.frombuffer(raw, dtype=np.uint32, count=_KEY_WORDS)
            position = struct.unpack_from("i", raw, 4 * _KEY_WORDS)[0]
            np.random.set_state(("MT19937", key, position, int(normal is not None), normal or 0.0))
        else:
            ctypes.memmove(self.memory, raw, _RAW_BYTES)
        self.known_raw, self.known_normal = raw, normal

    def seed(self, seed: int) -> None:
        """Seed the generator, which also forgets the cached normal."""
        np.random.seed(seed & 0xFFFFFFFF)
        self.known_raw, self.known_normal = self.find_memory().raw, None


class PythonRng:
    """Python's global generator, asked for its state only where it has drawn since it was last asked or set.

    getstate costs 30 us and setstate 13, two percent of a small step with all its switches; a look at whether the raw
    struct has changed costs 0.3 us. It is only looked at: where it is not as known, each state is asked for and set.
    """

    def __init__(self) -> None:
        self.generator: Any = random._inst  # the one behind the functions of `random`
        self.memory = find_struct(self.generator)
        self.known: Any = None
        self.known_raw = b""

    def is_known(self) -> bool:
        """Whether nothing has been drawn or set since the last read or write."""
        if self.memory is None or self.known is None:
            return False
        return self.memory.raw == self.known_raw and self.generator.gauss_next == self.known[2]

    def read(self) -> Any:
        """The state as `random.getstate` gives it."""
        if not self.is_known():
            self.note(random.getstate())
        return self.known

    def write(self, state: Any) -> None:
        """Put a state back, if the generator is not there."""
        if state is not self.known or not self.is_known():
            random.setstate(state)
            self.note(state)

    def note(self, state: Any) -> None:
        """Remember where the generator is."""
        self.known = state
        self.known_raw = b"" if self.memory is None else self.memory.raw


def find_struct(generator: Any) -> ctypes.Array[ctypes.c_char] | None:
    """The struct of a generator of Python's, if it lies where CPython has it: behind the object's header."""
    offset = object.__basicsize__
    size = random.Random.__mro__[1].__basicsize__
    if sys.implementation.name != "cpython" or size < offset + _RAW_BYTES:
        return None
    memory = (ctypes.c_char * _RAW_BYTES).from_address(id(generator) + offset)
    position, *words = struct.unpack(f"i{_KEY_WORDS}I", memory.raw)
    return memory if generator.getstate()[1] == (*words, position) else None


_numpy = NumpyRng()
_python = PythonRng()


def capture() -> RngState:
    """The present state of every generator."""
    raw, normal = _numpy.read()
    return RngState(_python.read(), raw, normal, torch.default_generator.get_state(), cuda.capture_rng())


def restore(state: RngState) -> None:
    """Put every generator back into this state."""
    _python.write(state.python)
    _numpy.write(state.numpy, state.numpy_normal)
    torch.default_generator.set_state(state.cpu)
    cuda.restore_rng(state.cuda)


def is_at(state: RngState) -> bool:
    """Whether nothing was drawn on the CPU since this state was taken."""
    # As bytes, not by torch.equal, which level D2 would find among the model's operators.
    if torch.default_generator.get_state().numpy().tobytes() != state.cpu.numpy().tobytes():
        return False
    python = _python.read()  # mostly the very same object, which is equal without a look at its numbers
    return _numpy.read() == (state.numpy, state.numpy_normal) and (python is state.python or python == state.python)


def seed_all(seed: int) -> None:
    """Seed Python, NumPy and torch (CPU and CUDA) alike."""
    random.seed(seed)
    _numpy.seed(seed)
    torch.default_generator.manual_seed(seed % 2**64)
    cuda.seed_rng(seed)


def seed_sample(seed: int) -> None:
    """Seed what a dataset can draw from; CUDA is left alone, because data workers must not wake it."""
    random.seed(seed)
    _numpy.seed(seed)
    torch.default_generator.manual_seed(seed)


def mix(*parts: int) -> int:
    """A 63-bit seed from several integers; splitmix64's finaliser after each."""
    state = 0x9E3779B97F4A7C15
    for part in parts:
        state = (state + part * 0xD1342543DE82EF95) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 31
    return state >> 1


def to_plain(state: RngState) -> dict[str, Any]:
    """The state as tensors and numbers, fit for a checkpoint that is loaded with weights_only."""
    version, words, normal = state.python
    return {
        "python": torch.tensor(words, dtype=torch.int64),
        "python_version": version,
        "python_normal": normal,
        "numpy": torch.frombuffer(bytearray(state.numpy), dtype=torch.uint8),
        "numpy_normal": state.numpy_normal,
        "cpu": state.cpu.clone(),
        "cuda": state.cuda,
    }


def from_plain(plain: dict[str, Any]) -> RngState:
    """The state that `to_plain` wrote."""
    python = (plain["python_version"], tuple(plain["python"].tolist()), plain["python_normal"])
    raw = plain["numpy"].numpy().tobytes()
    return RngState(python, raw, plain["numpy_normal"], plain["cpu"].clone(), plain["cuda"])
