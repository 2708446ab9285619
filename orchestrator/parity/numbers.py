"""Measure the difference of two recorded tensors: relative L2, units in the last place, number of
elements.
"""

from __future__ import annotations

import ast
import math
import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.model.files import regular_bytes
from orchestrator.parity.recording import Tensor

_MOST_BYTES = 1 << 32
"""Maximum bytes of the file of one tensor."""

MOST = 1 << 20
"""Maximum elements that are compared; of larger tensors every n-th is."""

MOST_ULPS = 999
"""Larger distances are not informative: the numbers are different, or around zero."""

_WIDTHS = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
_INFINITY = {"float64": 0x7FF << 52, "float32": 0xFF << 23, "float16": 0x1F << 10, "bfloat16": 0xFF << 7}
"""The bits of infinity; larger values, without the sign bit, are NaN."""
_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
_SIGNED = {"int8": "b", "int16": "h", "int32": "i", "int64": "q"}


@dataclass(frozen=True)
class Gap:
    """The difference of two tensors of one shape.

    `relative` is |a - b| / max(|a|, |b|) with L2 norms, None if it is not a number. `ulps` is the largest
    distance of two elements in units in the last place, None for integers. Only `compared` of the tensor's
    `elements` were compared; the squares are over those.
    """

    elements: int
    compared: int
    differing: int
    relative: float | None
    ulps: int | None
    largest: float | None
    square: float
    norm_square: float
    nans: tuple[int, int] = field(default=(0, 0), compare=False)
    """Number of NaNs on each side."""
    single: tuple[float, float] | None = field(default=None, compare=False)
    """The two numbers, if each side has only one."""


def gap(a: Tensor, b: Tensor, most: int = MOST) -> Gap | None:
    """Return the difference of two recorded tensors; None if dtype or shape differ, or no element was
    kept.
    """
    if a.dtype != b.dtype or a.shape != b.shape:
        return None
    bits_a, bits_b = _bits(a), _bits(b)
    if bits_a is None or bits_b is None or len(bits_a) != len(bits_b):
        return None
    stride = max(1, -(-len(bits_a) // most))
    return measure(bits_a[::stride], bits_b[::stride], a.dtype, math.prod(a.shape))


def gap_of_sum(whole: Tensor, parts: Sequence[Tensor], scale: float, most: int = MOST) -> Gap | None:
    """Return the difference between a tensor and `scale` times the sum of `parts`; None as for `gap`.

    Bits are not compared: `ulps` is None.
    """
    if any((part.dtype, part.shape) != (whole.dtype, whole.shape) for part in parts):
        return None
    kept = [_bits(tensor) for tensor in (whole, *parts)]
    if any(bits is None or len(bits) != len(kept[0] or ()) for bits in kept):
        return None
    stride = max(1, -(-len(kept[0] or ()) // most))
    numbers, *terms = (values(bits[::stride], whole.dtype) for bits in kept if bits is not None)
    sums = [scale * math.fsum(each) for each in zip(*terms, strict=True)] if _finite(terms) else None
    if sums is None or not _finite([numbers]):
        return unmeasured(whole)
    square = math.fsum((x - y) * (x - y) for x, y in zip(numbers, sums, strict=True))
    norm = max(math.fsum(x * x for x in numbers), math.fsum(y * y for y in sums))
    largest = max((abs(x - y) for x, y in zip(numbers, sums, strict=True)), default=0.0)
    differing = sum(x != y for x, y in zip(numbers, sums, strict=True))
    relative = math.sqrt(square / norm) if norm else 0.0
    return Gap(math.prod(whole.shape), len(numbers), differing, relative, None, largest, square, norm)


def _finite(lists: Sequence[Sequence[float]]) -> bool:
    return all(math.isfinite(number) for numbers in lists for number in numbers)


def unmeasured(tensor: Tensor) -> Gap:
    """Return the gap to a tensor that differs in a way that has no size: another shape, or no numbers."""
    elements = math.prod(tensor.shape)
    return Gap(elements, 0, elements, None, None, None, math.inf, math.inf)


def measure(bits_a: Sequence[int], bits_b: Sequence[int], dtype: str, elements: int) -> Gap:
    """Return the difference of two sequences of raw bit patterns of `dtype`."""
    pairs = [(x, y) for x, y in zip(bits_a, bits_b, strict=True) if x != y]
    a, b = values(bits_a, dtype), values(bits_b, dtype)
    square = math.fsum((x - y) * (x - y) for x, y in zip(a, b, strict=True) if x != y)
    norms = max(math.fsum(x * x for x in a), math.fsum(y * y for y in b))
    finite = math.isfinite(square) and math.isfinite(norms)
    largest = max((abs(x - y) for x, y in zip(a, b, strict=True) if x != y), default=0.0)
    return Gap(
        elements=elements,
        compared=len(bits_a),
        differing=len(pairs),
        relative=(math.sqrt(square / norms) if norms else 0.0) if finite else None,
        ulps=_ulps(pairs, dtype),
        largest=largest if math.isfinite(largest) else None,
        square=square if finite else math.inf,
        norm_square=norms if finite else math.inf,
        nans=(_nans(bits_a, dtype), _nans(bits_b, dtype)),
        single=(a[0], b[0]) if elements == 1 and finite else None,
    )


def values(bits: Sequence[int], dtype: str) -> Sequence[float]:
    """Return the numbers of raw bit patterns of `dtype`. NaN becomes infinity, which counts as different
    from everything.
    """
    if dtype in _WIDTHS:
        return [math.inf if number != number else number for number in _floats(bits, dtype)]
    if dtype in _SIGNED:
        width = struct.calcsize(_SIGNED[dtype]) * 8
        return [float(bit - (1 << width) if bit >> (width - 1) else bit) for bit in bits]
    return [float(bit) for bit in bits]


def _floats(bits: Sequence[int], dtype: str) -> Sequence[float]:
    if dtype == "bfloat16":
        return _floats([bit << 16 for bit in bits], "float32")
    code = {"float64": "d", "float32": "f", "float16": "e"}[dtype]
    packed = struct.pack(f"<{len(bits)}{_CODES[_WIDTHS[dtype]]}", *bits)
    return struct.unpack(f"<{len(bits)}{code}", packed)


def _nans(bits: Sequence[int], dtype: str) -> int:
    """Count the NaNs among raw bit patterns: all exponent bits set, and at least one mantissa bit."""
    if dtype not in _WIDTHS:
        return 0
    width = _WIDTHS[dtype] * 8
    infinity = _INFINITY[dtype]
    return sum((bit & ((1 << (width - 1)) - 1)) > infinity for bit in bits)


def _ulps(pairs: Sequence[tuple[int, int]], dtype: str) -> int | None:
    if dtype not in _WIDTHS:
        return None
    width = _WIDTHS[dtype] * 8
    return max((abs(_rank(x, width) - _rank(y, width)) for x, y in pairs), default=0)


def _rank(bits: int, width: int) -> int:
    """Return the position of a float of `width` bits in the order of all floats; both zeros have the same
    one.
    """
    sign = 1 << (width - 1)
    return -(bits & (sign - 1)) if bits & sign else bits


def _bits(tensor: Tensor) -> Sequence[int] | None:
    path = tensor.file or tensor.sample
    if path is None:
        return None
    try:
        return read_npy(path)
    except (OSError, ValueError):
        return None


def read_npy(path: Path) -> Sequence[int]:
    """Return the elements of a .npy file as raw bit patterns, in C order. Complex numbers count as two.

    Raises FileNotFoundError, and ValueError unless it is a complete version 1 file of little-endian numbers
    in C order.
    """
    content = regular_bytes(path, _MOST_BYTES)
    if content[:8] != b"\x93NUMPY\x01\x00":
        raise ValueError(f"{path.name} is not a version 1 .npy file")
    start = 10 + int.from_bytes(content[8:10], "little")
    descr, shape, fortran = _header(content[10:start].decode("latin-1").strip())
    width = int(descr[2:])
    if descr[1] == "c":
        width, shape = width // 2, (*shape, 2)
    if descr[0] not in "<|" or fortran or width not in _CODES:
        raise ValueError(f"{path.name} has the unsupported type {descr}")
    bits = array(_CODES[width])
    bits.frombytes(content[start:])
    if bits.itemsize != width or len(bits) != math.prod(shape):
        raise ValueError(f"{path.name} is incomplete")
    if sys.byteorder == "big":
        bits.byteswap()
    return bits


def _header(text: str) -> tuple[str, tuple[int, ...], bool]:
    """Return kind, shape, and whether the order is Fortran's. Raises ValueError."""
    try:
        found = ast.literal_eval(text)
        descr, shape, fortran = found["descr"], found["shape"], found["fortran_order"]
    except (ValueError, SyntaxError, TypeError, LookupError, MemoryError, RecursionError) as error:
        raise ValueError("its header is invalid") from error
    whole = isinstance(shape, tuple) and all(type(size) is int and 0 <= size < 1 << 48 for size in shape)
    if not isinstance(descr, str) or len(descr) < 3 or len(descr) > 16 or not whole or len(shape) > 64:
        raise ValueError("its header is invalid")
    return descr, shape, bool(fortran)
