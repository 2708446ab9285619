"""Call listeners when a module's import is complete, without leaving a trace in the module."""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable, Iterable, List, Optional, Sequence

FRAMEWORKS = ("tensorflow", "keras", "tf_keras")
"""Modules whose import is announced."""


def notifier(listeners: Sequence[Any]) -> Callable[[ModuleType], None]:
    """Return a function that calls each listener's on_tensorflow or on_keras; one that fails does not affect
    others."""

    def tell(module: ModuleType) -> None:
        method = "on_tensorflow" if module.__name__ == "tensorflow" else "on_keras"
        for listener in listeners:
            try:
                getattr(listener, method)(module)
            except Exception:
                pass  # a failing hook is a missing fact; it must not fail the job

    return tell


class ImportHook(MetaPathFinder):
    """Call `tell(module)` once after each module named in `names` was imported.

    Searching for a module without importing it (importlib.util.find_spec) does not call it. Exceptions of
    `tell` are ignored, so that an import does not fail because of them.
    """

    def __init__(self, names: Iterable[str], tell: Callable[[ModuleType], None]) -> None:
        self._names = frozenset(names)
        self._tell = tell
        self._told: set[str] = set()

    def install(self) -> None:
        """Insert this finder before all others."""
        sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        """Return the other finders' spec with its loader wrapped; None for all other modules."""
        if fullname not in self._names or fullname in self._told:
            return None
        for finder in self._after():
            if hasattr(finder, "find_spec"):
                spec: Optional[ModuleSpec] = finder.find_spec(fullname, path, target)
                if spec is not None:
                    if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                        spec.loader = _Announcing(spec.loader, self)
                    return spec
        return None

    def _after(self) -> List[Any]:
        """Return the finders after this one. Asking only these prevents several hooks from asking each other
        forever."""
        finders = list(sys.meta_path)
        return finders[finders.index(self) + 1 :] if self in finders else finders

    def imported(self, module: ModuleType) -> None:
        """Call `tell`, once for each name."""
        if module.__name__ in self._told:
            return
        self._told.add(module.__name__)
        try:
            self._tell(module)
        except Exception:
            pass


class _Announcing(Loader):
    """Wraps a module's own loader, and announces the module afterwards. It removes itself before the module
    runs."""

    def __init__(self, loader: Any, announcer: ImportHook) -> None:
        self._loader = loader
        self._announcer = announcer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> Optional[ModuleType]:
        spec.loader = self._loader
        try:
            made: Optional[ModuleType] = self._loader.create_module(spec)
        finally:
            spec.loader = self
        return made

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._announcer.imported(sys.modules.get(module.__name__, module))
