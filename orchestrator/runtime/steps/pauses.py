"""Time the parts of a training that are no steps: validation, and callbacks."""

from __future__ import annotations

import functools
import sys
import threading
from time import perf_counter
from typing import Any, Callable

Tell = Callable[[str, float], None]
"""(kind, seconds)"""

_HOOKS = ("on_epoch_begin", "on_epoch_end", "on_train_batch_begin", "on_train_batch_end")


class _Pause(threading.local):
    """Whether this thread is in a pause, and how long it waited in it for results of an earlier step."""

    now: bool = False
    waited: float = 0.0


_pause = _Pause()


def time_pauses(keras: Any, tell: Tell) -> None:
    """Time pauses of the training thread only: callbacks that Keras runs beside the steps delay nothing."""
    trainer = next((base for base in keras.Model.__mro__ if "evaluate" in vars(base)), None)
    if trainer is not None:
        trainer.evaluate = _timed("validation", trainer.evaluate, tell)
    listed = getattr(sys.modules.get(f"{keras.__name__}.src.callbacks.callback_list"), "CallbackList", None)
    for name in _HOOKS:
        if name in vars(listed or object):
            setattr(listed, name, _timed("callbacks", vars(listed)[name], tell))
    numbers = sys.modules.get(f"{keras.__name__}.src.utils.python_utils")
    if numbers is not None and hasattr(numbers, "pythonify_logs"):
        numbers.pythonify_logs = _waiting(numbers.pythonify_logs)  # type: ignore[attr-defined]


def _timed(kind: str, original: Callable[..., Any], tell: Tell) -> Callable[..., Any]:
    main = threading.main_thread().ident

    @functools.wraps(original)
    def timed(*args: Any, **kwargs: Any) -> Any:
        if _pause.now or threading.get_ident() != main:
            return original(*args, **kwargs)
        _pause.now, _pause.waited = True, 0.0
        began = perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            _pause.now = False
            tell(kind, max(0.0, perf_counter() - began - _pause.waited))

    return timed


def _waiting(original: Callable[..., Any]) -> Callable[..., Any]:
    """Exclude waiting for results of the step before, which Keras passes to callbacks: a GPU may still
    compute them.
    """

    @functools.wraps(original)
    def pythonify_logs(logs: Any) -> Any:
        began = perf_counter()
        try:
            return original(logs)
        finally:
            _pause.waited += perf_counter() - began

    return pythonify_logs
