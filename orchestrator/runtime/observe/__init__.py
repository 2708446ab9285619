"""Record what a training script does in its first steps, from outside and without changing it."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, Mapping, Optional

from .files import Files
from .imports import FRAMEWORKS, ImportHook, notifier
from .opened import Opened
from .settings import Settings, from_environment

_OUTSIDE = "only what goes into a step of fit and what comes out of it is observed"

__all__ = ["Observation", "Settings", "install_now", "observation"]


class Observation:
    """One process's observation. The import hook tells it which frameworks were imported."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.RLock()
        self._known_recorder: Any = None
        self._hooks: Any = None
        self._kerases: set[str] = set()
        self._files = Files(str(settings.directory))

    def listen(self) -> None:
        """Note opened files from now on; they are written at the end too, with or without a step."""
        self._files.listen()
        Opened(self._files, str(self._settings.directory)).install()

    def on_tensorflow(self, tf: Any) -> None:
        """Called when TensorFlow has been imported."""
        with self._lock:
            self._start(tf)

    def on_keras(self, keras: Any) -> None:
        """Called when a Keras has been imported: `keras` or `tf_keras`."""
        with self._lock:
            if keras.__name__ in self._kerases:
                return
            self._kerases.add(keras.__name__)
            if self._backend(keras) != "tensorflow":
                self._outside(keras)
                return
            import tensorflow as tf

            self._start(tf)
            if self._hooks is None:
                return
            try:
                self._hooks.on_keras(keras)
                self._hooks.facts.set_keras(keras)
            except Exception as error:
                self._hooks.recorder.fail(f"hooking {keras.__name__} {keras.__version__}", error)

    def _outside(self, keras: Any) -> None:
        recorder, backend = self._recorder(), self._backend(keras)
        try:
            from .facts import Facts
            from .outside import Outside

            facts = self._hooks.facts if self._hooks else Facts(None, self._files)
            facts.set_keras(keras)
            recorder.environment = facts.gather
            if Outside(keras, recorder, facts).install():
                recorder.note(f"layers and gradients of Keras on {backend}", _OUTSIDE)
            else:
                recorder.note(f"Keras {keras.__version__} on {backend}", "its steps are not observed")
        except Exception as error:
            recorder.fail(f"hooking {keras.__name__} {keras.__version__} on {backend}", error)

    def _start(self, tf: Any) -> None:
        if self._hooks is not None:
            return
        recorder = self._recorder()
        try:
            from .channel import Channel
            from .facts import Facts
            from .hooks import Hooks
            from .impose import Override
            from .replicas import wait_for_all

            recorder.before_stop = lambda: wait_for_all(os.environ)
            facts = Facts(tf, self._files)
            recorder.environment = facts.gather
            imposed = Override(tf, self._settings, recorder.note)
            recorder.imposed = imposed.summary
            self._hooks = Hooks(Channel(tf, recorder, imposed), facts, self._files)
            self._hooks.on_tensorflow(tf)
            recorder.announce()
        except Exception as error:
            recorder.fail(f"hooking TensorFlow {getattr(tf, '__version__', '')}", error)

    def _recorder(self) -> Any:
        if self._known_recorder is None:
            from .recorder import Recorder

            self._known_recorder = Recorder(self._settings)
        return self._known_recorder

    @staticmethod
    def _backend(keras: Any) -> str:
        read = getattr(getattr(keras, "backend", None), "backend", None)
        return str(read()) if callable(read) else "tensorflow"


def observation(environ: Mapping[str, str]) -> Optional[Observation]:
    """Return the observation that the environment requests; None if it requests none."""
    settings = from_environment(environ)
    if settings is None:
        return None
    found = Observation(settings)
    found.listen()
    return found


def install_now(settings: Settings) -> None:
    """Observe this process from now on, whether or not TensorFlow and Keras are imported already.

    For a process forked from one that has imported the frameworks but trained and traced nothing; it reads
    arguments, environment and files of this process. Call it once, in the process that trains, after the
    fork. Never raises: failures are in status.json of `settings.directory`, under not_compared.
    """
    found = Observation(settings)
    found.listen()
    announcer = ImportHook(FRAMEWORKS, notifier([found]))
    announcer.install()
    for name in FRAMEWORKS:
        if name in sys.modules:
            announcer.imported(sys.modules[name])
