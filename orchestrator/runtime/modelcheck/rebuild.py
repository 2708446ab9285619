"""Rebuild the allowed objects of a pickle: arguments and states are checked before NumPy gets them."""

from __future__ import annotations

import collections
import datetime
import math
import pickle
import re
from typing import Any, BinaryIO, Callable, Dict, Optional, Tuple

from .explain import Cause, Refusal

_SIMPLE = re.compile(r"[<>|=]?(?:[?bBhHiIlLqQefdg]|[biufcSUVOMm]\d{1,9}|[OMm])")
"""Codes of NumPy's simple types (f8, U5, O, M8), without fields or lists of types."""
_DATA = (type(None), bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset)
_BUILDERS = (set, frozenset, complex, slice, range, bytearray, bytes, list, dict, tuple)
_FACTORIES = (None, int, float, str, list, dict, set)
_PLAIN_FORM = "Keep the fitted numbers in a plain form: numpy.savez, or JSON."


class Stand:
    """Replaces a function that a pickle may call; `function` checks the arguments and does the work."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self.function = function


def broken(what: str) -> pickle.UnpicklingError:
    return pickle.UnpicklingError(what)


def unknown_type(what: object) -> Refusal:
    return Refusal(f"NumPy's type {what} in a pickle", _PLAIN_FORM, Cause.WOULD_RUN_CODE)


def build(what: Any, arguments: Tuple[Any, ...]) -> Any:
    """Call a built-in class with plain data. Raises UnpicklingError for other arguments."""
    if what not in _BUILDERS or any(type(each) not in _DATA for each in arguments):
        raise broken(f"a call of {what.__name__} with arguments that are not plain")
    return what(*arguments)


def is_builder(what: Any) -> bool:
    return isinstance(what, type) and what in _BUILDERS


# ---------------------------------------------------------------- standard library


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    """Return bytes from the form that protocol 2 uses. Any other encoding would be imported by name."""
    if type(text) is not str or encoding not in ("latin1", "latin-1"):
        raise broken("text in an encoding other than latin1")
    return text.encode("latin1")


def _default_dictionary(factory: Any = None) -> Any:
    if not any(factory is each for each in _FACTORIES):
        raise broken("a defaultdict that calls something")
    return collections.defaultdict(factory)


def _of_plain_data(make: Callable[..., Any]) -> Callable[..., Any]:
    def made(*arguments: Any) -> Any:
        if any(type(each) not in _DATA for each in arguments):
            raise broken(f"a call of {make.__name__} with arguments that are not plain")
        return make(*arguments)

    return made


# ---------------------------------------------------------------- NumPy


def simple_type(code: Any) -> Any:
    """Return the numpy.dtype of a code such as f8, U5 or O. Raises Refusal for a type with fields or
    parts."""
    import numpy as np

    text = code.decode("latin1") if type(code) is bytes else code
    if type(text) is not str or not _SIMPLE.fullmatch(text):
        raise unknown_type(text)
    return np.dtype(text, copy=True)


def is_simple(dtype: Any) -> bool:
    import numpy as np

    return isinstance(dtype, np.dtype) and bool(_SIMPLE.fullmatch(dtype.str.partition("[")[0]))


def _type_of(code: Any, _align: Any = False, _copy: Any = True) -> Any:
    return simple_type(code)


def _empty(kind: Any, _shape: Any, _code: Any) -> Any:
    """Return an empty array, as NumPy's _reconstruct does; its state is set later."""
    import numpy as np

    if kind is not np.ndarray:
        raise broken("an array of a class of its own")
    return np.empty((0,), "b")


def _scalar(dtype: Any, raw: Any = None) -> Any:
    import numpy as np

    if not is_simple(dtype) or dtype.hasobject or type(raw) is not bytes or len(raw) != dtype.itemsize:
        raise broken("a number whose type and bytes do not fit")
    return np.frombuffer(raw, dtype, 1)[0]


def _from_buffer(raw: Any, dtype: Any, shape: Any, order: Any = "C", axes: Any = None) -> Any:
    import numpy as np

    if not is_simple(dtype) or dtype.hasobject or type(raw) not in (bytes, bytearray) or axes is not None:
        raise broken("an array whose type and bytes do not fit")
    if order not in ("C", "F"):
        raise broken("an array in an unknown order")
    return np.frombuffer(raw, dtype).reshape(_shape(shape), order=order)


def _shape(shape: Any) -> Tuple[int, ...]:
    if type(shape) is not tuple or any(type(size) is not int or size < 0 for size in shape):
        raise broken("an array whose shape is not one")
    return shape


STANDS: Dict[str, Callable[..., Any]] = {
    "OrderedDict": _of_plain_data(collections.OrderedDict),
    "Counter": _of_plain_data(collections.Counter),
    "deque": _of_plain_data(collections.deque),
    "defaultdict": _default_dictionary,
    "encode": _encode,
    "date": _of_plain_data(datetime.date),
    "datetime": _of_plain_data(datetime.datetime),
    "time": _of_plain_data(datetime.time),
    "timedelta": _of_plain_data(datetime.timedelta),
    "dtype": _type_of,
    "_reconstruct": _empty,
    "scalar": _scalar,
    "_frombuffer": _from_buffer,
}


def fill_type(dtype: Any, state: Any) -> None:
    """Set the byte order, or a date's unit. The state must be exactly what NumPy writes for that type.

    With any other state, such as flags that declare numbers to be objects, NumPy would use bytes as
    addresses.
    """
    import numpy as np

    if not is_simple(dtype) or type(state) is not tuple or len(state) not in (8, 9):
        raise unknown_type(dtype)
    genuine = dtype
    if len(state) == 9:
        genuine = np.dtype(f"{dtype.char}8[{_unit(state[8])}]")
    if state[1] not in ("<", ">", "|", "="):
        raise broken("a byte order that is not one")
    wanted = genuine.newbyteorder(state[1]).__reduce__()[2]
    if len(wanted) != len(state) or wanted[1:] != state[1:]:
        raise unknown_type(dtype)
    dtype.__setstate__(wanted)


def _unit(metadata: Any) -> str:
    """Return a unit such as "ns" or "25us" from NumPy's metadata, e.g. ({}, (b"us", 25, 1, 1))."""
    if type(metadata) is tuple and len(metadata) == 2 and type(metadata[1]) is tuple and metadata[1]:
        unit, number = metadata[1][0], metadata[1][1] if len(metadata[1]) > 1 else 1
        if type(unit) is bytes and re.fullmatch(rb"[A-Za-z]{1,7}", unit) and type(number) is int:
            return f"{number}{unit.decode()}"
    raise broken("a date without a unit")


def fill_array(array: Any, state: Any) -> None:
    """Set an array's shape, type and content. Raises UnpicklingError if they do not match, Refusal for
    another type."""
    if type(state) is not tuple or len(state) != 5 or array.shape != (0,):
        raise broken("an array whose state is not one")
    _, shape, dtype, fortran, content = state
    count = math.prod(_shape(shape))
    if not is_simple(dtype):
        raise unknown_type(dtype)
    wanted, size = (list, count) if dtype.hasobject else (bytes, count * dtype.itemsize)
    if type(content) is not wanted or len(content) != size:
        raise broken(f"an array of {count} items with content of another size")
    array.__setstate__((1, shape, dtype, bool(fortran), content))


# ---------------------------------------------------------------- joblib


class ArrayWrapper:
    """Replaces joblib.numpy_pickle.NumpyArrayWrapper: an array whose bytes follow the current instruction."""

    _KEYS = frozenset(
        {"subclass", "shape", "order", "dtype", "allow_mmap", "numpy_array_alignment_bytes"},
    )

    def __init__(self) -> None:
        self.state: Optional[Dict[str, Any]] = None

    def fill(self, state: Any) -> None:
        import numpy as np

        if (
            type(state) is not dict
            or not self._KEYS.issuperset(state)
            or state.get("subclass") is not np.ndarray
        ):
            raise broken("an array of joblib with an unknown state")
        if not is_simple(state.get("dtype")):
            raise unknown_type(state.get("dtype"))
        _shape(state.get("shape"))
        self.state = state

    def read(self, file: BinaryIO, nested: Callable[[], Any]) -> Any:
        """Return the array that follows in `file`. An array of objects is a separate pickle, read by
        `nested`."""
        import numpy as np

        state = self.state or {}
        dtype, shape = state["dtype"], state["shape"]
        if dtype.hasobject:
            return nested()
        if state.get("numpy_array_alignment_bytes") is not None:
            file.read(int.from_bytes(file.read(1), "little"))
        size = math.prod(shape) * dtype.itemsize
        raw = file.read(size)
        if len(raw) != size:
            raise broken(f"an array of {size} bytes of which {len(raw)} are there")
        return np.frombuffer(bytearray(raw), dtype).reshape(
            shape, order="F" if state.get("order") == "F" else "C"
        )
