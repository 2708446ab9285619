"""An unpickler that calls nothing that the pickle chooses: exact names, checked arguments, own constructors.

It derives from the standard library's unpickler in Python, so that each instruction that creates, calls or
fills an object is a method here. It also reads joblib's files, with the arrays that lie between the
instructions; joblib itself would read an array of objects with an unrestricted unpickler.
"""

from __future__ import annotations

import bz2
import collections
import importlib
import io
import lzma
import pickle
import re
import sys
import zlib
from pathlib import Path
from typing import Any, BinaryIO, Callable, ClassVar, Dict, List, Set, Tuple

from .allowed import CALLED, NEW, VALUE
from .explain import Cause, Refusal
from .rebuild import STANDS, ArrayWrapper, Stand, broken, build, fill_array, fill_type, is_builder

MAX_UNPACKED = 2 << 30
"""Maximum bytes that a compressed pickle may unpack to."""
_NAME_IT = "If you trust what made the file, name its module in the profile, train.check_imports: [{}]. "
_PLAIN_FORM = "Or keep the fitted numbers in a plain form: numpy.savez, or JSON."
_MODULE = re.compile(r"[A-Za-z_]\w*\Z")
_STANDARD = {"__main__", *sys.builtin_module_names, *getattr(sys, "stdlib_module_names", ())}
"""Modules that no profile should name. Before Python 3.10 only those that are built in are known."""
_OLD_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}
_OLD_NAMES = {"long": "int", "unicode": "str", "xrange": "range"}
"""Names of Python 2, which protocol 2 and below use."""
_Standard: Any = vars(pickle)["_Unpickler"]
_LISTS = (list, collections.deque)
_DICTIONARIES = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)


def load(path: Path, trusted: Tuple[str, ...] = ()) -> Tuple[Any, List[str]]:
    """Return a file's object and the versions of scikit-learn that it names.

    Raises Refusal, or what unpickling raises if the file is damaged.
    """
    with path.open("rb") as file:
        unpickler = CheckedUnpickler(_unpacked(file), trusted)
        try:
            return unpickler.load(), unpickler.sklearn_versions
        except (KeyError, IndexError) as error:
            raise broken(f"an instruction that does not exist, or has nothing to work on: {error}") from error


def refused(name: str) -> Refusal:
    module = name.partition(".")[0]
    known = _MODULE.match(module) and module not in _STANDARD
    way_out = _NAME_IT.format(module) + _PLAIN_FORM if known else _PLAIN_FORM[3:].capitalize()
    return Refusal(name, way_out, Cause.WOULD_RUN_CODE)


# ---------------------------------------------------------------- compression


def _unpacked(file: BinaryIO) -> BinaryIO:
    """Return the pickle, decompressed if it is in a format of joblib: zlib, gzip, bz2, xz, lzma."""
    head = file.read(6)
    file.seek(0)
    makers: Dict[bytes, Callable[[], Any]] = {
        b"\x78": zlib.decompressobj,
        b"\x1f\x8b": lambda: zlib.decompressobj(31),
        b"BZ": bz2.BZ2Decompressor,
        b"\xfd7zXZ": lzma.LZMADecompressor,
        b"\x5d\x00": lambda: lzma.LZMADecompressor(lzma.FORMAT_ALONE),
    }
    make = next((make for magic, make in makers.items() if head.startswith(magic)), None)
    if make is None:
        if head.startswith(b"\x04\x22\x4d\x18"):
            raise Refusal("it is packed with lz4, which is not read here", "Write it with compress=3.")
        return file
    return io.BytesIO(_inflated(file, make()))


def _inflated(file: BinaryIO, decompressor: Any) -> bytes:
    total = bytearray()
    while not decompressor.eof:
        piece = getattr(decompressor, "unconsumed_tail", b"")
        if not piece and getattr(decompressor, "needs_input", True):
            piece = file.read(1 << 20)
            if not piece:
                raise EOFError("the packed data end too early")
        total += decompressor.decompress(piece, 16 << 20)
        if len(total) > MAX_UNPACKED:
            raise Refusal("it unpacks to more than 2 GiB", "Write it without compression.", Cause.TOO_LARGE)
    return bytes(total)


# ---------------------------------------------------------------- the unpickler


class CheckedUnpickler(_Standard):  # type: ignore[misc]
    """Load plain data, arrays, and classes of `allowed.NEW` and of the `trusted` modules.

    Raises Refusal for everything else, and what unpickling raises if the file is damaged.
    """

    dispatch: ClassVar[Dict[int, Any]] = dict(_Standard.dispatch)

    def __init__(self, file: BinaryIO, trusted: Tuple[str, ...] = ()) -> None:
        super().__init__(file)
        self.source = file
        self.trusted = trusted
        self.sklearn_versions: List[str] = []
        self._new: Set[type] = {ArrayWrapper}

    # ------------------------------------------------------------ names

    def find_class(self, module: str, name: str) -> Any:
        if module in _OLD_MODULES:
            module, name = _OLD_MODULES[module], _OLD_NAMES.get(name, name)
        if module == "__main__":
            raise Refusal(
                f"{name}, which is defined in the script that made it",
                "Define it in a module of its own, and name that in train.check_imports of the profile.",
                Cause.WOULD_RUN_CODE,
            )
        if name in CALLED.get(module, ()):
            return Stand(name, STANDS[name])
        if (module, name) == ("copyreg", "_reconstructor"):
            return Stand(name, self._reconstructed)
        if (module, name) == ("joblib.numpy_pickle", "NumpyArrayWrapper"):
            return ArrayWrapper
        if name in VALUE.get(module, ()):
            return getattr(importlib.import_module(module), name)
        if name in NEW.get(module, ()):
            found: type = getattr(importlib.import_module(module), name)
            self._new.add(found)
            return found
        if self._is_own(module) and "." not in name:
            value = getattr(importlib.import_module(module), name, None)
            if isinstance(value, type) and value.__module__ == module:
                return value
        raise refused(f"{module}.{name}")

    def _is_own(self, module: str) -> bool:
        return any(module == each or module.startswith(f"{each}.") for each in self.trusted)

    def get_extension(self, code: int) -> None:
        raise refused(f"the extension {code} of copyreg")

    def persistent_load(self, pid: Any) -> Any:  # noqa: ARG002
        raise broken("it refers to objects outside of the file")

    # ------------------------------------------------------------ making objects

    def _made(self, what: Any, arguments: Any) -> Any:
        if type(arguments) is not tuple:
            raise broken("arguments that are no tuple")
        if isinstance(what, Stand):
            return what.function(*arguments)
        if is_builder(what):
            return build(what, arguments)
        if isinstance(what, type) and what in self._new and not arguments:
            return what() if what is ArrayWrapper else object.__new__(what)
        raise refused(f"a call of {_called(what)}")

    def _reconstructed(self, what: Any, base: Any, state: Any) -> Any:
        if base is not object or state is not None:
            raise refused(f"a call of {_called(what)}")
        if isinstance(what, type) and self._is_own(what.__module__):
            return object.__new__(what)
        return self._made(what, ())

    def _instantiate(self, klass: Any, arguments: Any) -> None:
        self.append(self._made(klass, tuple(arguments)))

    def load_newobj(self) -> None:
        arguments = self.stack.pop()
        what = self.stack.pop()
        if isinstance(what, type) and self._is_own(what.__module__):
            self.append(what.__new__(what, *arguments))
        else:
            self.append(self._made(what, arguments))

    def load_newobj_ex(self) -> None:
        named, arguments, what = self.stack.pop(), self.stack.pop(), self.stack.pop()
        if isinstance(what, type) and self._is_own(what.__module__):
            self.append(what.__new__(what, *arguments, **named))
        elif named:
            raise refused(f"a call of {_called(what)}")
        else:
            self.append(self._made(what, arguments))

    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        what = self.stack[-1]
        if isinstance(what, type) and self._is_own(what.__module__):
            self.stack[-1] = what(*arguments)
        else:
            self.stack[-1] = self._made(what, arguments)

    dispatch[pickle.NEWOBJ[0]] = load_newobj
    dispatch[pickle.NEWOBJ_EX[0]] = load_newobj_ex
    dispatch[pickle.REDUCE[0]] = load_reduce

    # ------------------------------------------------------------ filling objects

    def load_build(self) -> None:
        instance = self.stack[-2]
        if self._is_own(type(instance).__module__):
            super().load_build()
            return
        state = self.stack.pop()
        if isinstance(instance, ArrayWrapper):
            instance.fill(state)
            self.stack[-1] = instance.read(self.source, self._nested)
        else:
            self._fill(instance, state)

    def _nested(self) -> Any:
        inner = type(self)(self.source, self.trusted)
        found = inner.load()
        self.sklearn_versions += inner.sklearn_versions
        return found

    def _fill(self, instance: Any, state: Any) -> None:
        import numpy as np

        if isinstance(instance, np.dtype):
            fill_type(instance, state)
        elif type(instance) is np.ndarray:
            fill_array(instance, state)
        elif type(instance) in self._new:
            version = state.pop("_sklearn_version", None) if type(state) is dict else None
            if type(version) is str:
                self.sklearn_versions.append(version)
            _set_attributes(instance, state)
        else:
            raise refused(f"a state for {_called(type(instance))}")

    def load_appends(self) -> None:
        items = self.pop_mark()
        _expect(self.stack[-1], _LISTS).extend(items)

    def load_append(self) -> None:
        item = self.stack.pop()
        _expect(self.stack[-1], _LISTS).append(item)

    def load_setitems(self) -> None:
        items = self.pop_mark()
        target = _expect(self.stack[-1], _DICTIONARIES)
        target.update(zip(items[::2], items[1::2]))  # noqa: B905

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        _expect(self.stack[-1], _DICTIONARIES)[key] = value

    def load_additems(self) -> None:
        items = self.pop_mark()
        _expect(self.stack[-1], (set,)).update(items)

    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.APPENDS[0]] = load_appends
    dispatch[pickle.APPEND[0]] = load_append
    dispatch[pickle.SETITEMS[0]] = load_setitems
    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.ADDITEMS[0]] = load_additems


def _expect(target: Any, kinds: Tuple[type, ...]) -> Any:
    """Return `target`. Raises UnpicklingError unless it is exactly of one of these classes: a subclass could
    have methods of its own."""
    if type(target) not in kinds:
        raise broken(f"items for {type(target).__name__}")
    return target


def _called(what: Any) -> str:
    if isinstance(what, Stand):
        return what.name
    named = what if hasattr(what, "__name__") else type(what)
    return f"{getattr(named, '__module__', None) or 'numpy'}.{named.__name__}"


# ---------------------------------------------------------------- attributes of allowed classes


def _set_attributes(instance: Any, state: Any) -> None:
    """Set the fitted attributes. Raises Refusal if one would replace a method, or if the object would read
    files."""
    kind = type(instance)
    if type(state) is not dict or any(type(name) is not str for name in state):
        raise broken(f"a state of {kind.__name__} that is no dictionary")
    covered = [name for name in state if callable(getattr(kind, name, None))]
    if covered:
        raise refused(f"{_called(kind)} with a {covered[0]} of its own")
    if state.get("input", "content") != "content":
        raise Refusal(
            f"{_called(kind)} whose input is file names",
            "Save it with input='content'.",
            Cause.WOULD_USE_FILES,
        )
    if "vocabulary_" in state:
        _check_vocabulary(state["vocabulary_"])
    vars(instance).update(state)
    if kind.__module__.startswith("scipy."):
        _check_sparse(instance)


def _check_vocabulary(vocabulary: Any) -> None:
    """Raise UnpicklingError unless columns are numbered 0 to n-1: compiled code writes to them without
    checking."""
    if type(vocabulary) is not dict or sorted(map(int, vocabulary.values())) != list(range(len(vocabulary))):
        raise broken("a vocabulary whose columns are not numbered from 0")


def _check_sparse(matrix: Any) -> None:
    """Raise an error unless indices lie within the shape: compiled code reads there without checking."""
    import numpy as np

    parts = [vars(matrix).get(name) for name in ("data", "indices", "indptr")]
    if any(type(part) is not np.ndarray or part.ndim != 1 or part.dtype.hasobject for part in parts):
        raise broken("a sparse matrix whose parts are no arrays")
    matrix.check_format(full_check=True)
