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
_PYTHONS = struct.Struct(f"i{_KEY_WORDS}I")
_HEADER = object.__basicsize__


@dataclass(slots=True)
class RngState:
    """States of the generators: Python's and NumPy's raw MT19937 with their cached normals, torch's tensor, CUDA's."""

    python: bytes
    python_normal: float | None
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
            self.memory.raw = raw
        self.known_raw, self.known_normal = raw, normal

    def seed(self, seed: int) -> None:
        """Seed the generator, which also forgets the cached normal."""
        np.random.seed(seed & 0xFFFFFFFF)
        self.known_raw, self.known_normal = self.find_memory().raw, None


class PythonRng:
    """Python's global generator, read and written where CPython has its raw struct, if that is known to be there.

    getstate costs 30 us and setstate 13, two percent of a small step with all its switches, for they make and read 625
    numbers; a copy of the struct costs 0.2 us. The cached second normal is an attribute.
    """

    def __init__(self) -> None:
        self.generator: Any = random._inst  # the one behind the functions of `random`
        self.memory = find_struct(self.generator)

    def read(self) -> tuple[bytes, float | None]:
        """The raw struct and the cached normal, if there is one."""
        if self.memory is None:
            return read_slowly(self.generator)
        return self.memory.raw, self.generator.gauss_next

    def write(self, raw: bytes, normal: float | None) -> None:
        """Put the struct and the cached normal back."""
        if self.memory is None:
            write_slowly(self.generator, raw, normal)
        else:
            self.memory.raw = raw
            self.generator.gauss_next = normal


def read_slowly(generator: Any) -> tuple[bytes, float | None]:
    """What a generator of Python's says of its state, as its struct has it."""
    _, (*words, position), normal = generator.getstate()
    return _PYTHONS.pack(position, *words), normal


def write_slowly(generator: Any, raw: bytes, normal: float | None) -> None:
    """Tell a generator of Python's its state."""
    position, *words = _PYTHONS.unpack(raw)
    generator.setstate((random.Random.VERSION, (*words, position), normal))


def find_struct(generator: Any) -> ctypes.Array[ctypes.c_char] | None:
    """The struct of a generator of Python's, if it lies where CPython has it: behind the object's header."""
    is_there = sys.implementation.name == "cpython" and random.Random.__mro__[1].__basicsize__ >= _HEADER + _RAW_BYTES
    return map_struct(generator) if is_there and goes_by_struct(random.Random(1)) else None


def goes_by_struct(trial: random.Random) -> bool:
    """Whether a generator has its state there, and draws by what is written there."""
    memory, other = map_struct(trial), random.Random(2)
    if (memory.raw, None) != read_slowly(trial):
        return False
    memory.raw, _ = read_slowly(other)
    return trial.getstate() == other.getstate() and trial.random() == other.random()


def map_struct(generator: Any) -> ctypes.Array[ctypes.c_char]:
    """The bytes behind an object's header."""
    return (ctypes.c_char * _RAW_BYTES).from_address(id(generator) + _HEADER)


_numpy = NumpyRng()
_python = PythonRng()


def capture() -> RngState:
    """The present state of every generator."""
    return RngState(*_python.read(), *_numpy.read(), torch.default_generator.get_state(), cuda.capture_rng())


def restore(state: RngState) -> None:
    """Put every generator back into this state."""
    _python.write(state.python, state.python_normal)
    _numpy.write(state.numpy, state.numpy_normal)
    torch.default_generator.set_state(state.cpu)
    cuda.restore_rng(state.cuda)


def is_at(state: RngState) -> bool:
    """Whether nothing was drawn on the CPU since this state was taken."""
    # As bytes, not by torch.equal, which level D2 would find among the model's operators.
    if torch.default_generator.get_state().numpy().tobytes() != state.cpu.numpy().tobytes():
        return False
    found = (*_python.read(), *_numpy.read())
    return found == (state.python, state.python_normal, state.numpy, state.numpy_normal)


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
    position, *words = _PYTHONS.unpack(state.python)
    return {
        "python": torch.tensor([*words, position], dtype=torch.int64),
        "python_version": random.Random.VERSION,
        "python_normal": state.python_normal,
        "numpy": torch.frombuffer(bytearray(state.numpy), dtype=torch.uint8),
        "numpy_normal": state.numpy_normal,
        "cpu": state.cpu.clone(),
        "cuda": state.cuda,
    }


def from_plain(plain: dict[str, Any]) -> RngState:
    """The state that `to_plain` wrote."""
    checked = random.Random()  # a struct is written as it is, and the place in it must lie within it
    checked.setstate((plain["python_version"], tuple(plain["python"].tolist()), plain["python_normal"]))
    numpy = plain["numpy"].numpy().tobytes()
    return RngState(*read_slowly(checked), numpy, plain["numpy_normal"], plain["cpu"].clone(), plain["cuda"])
