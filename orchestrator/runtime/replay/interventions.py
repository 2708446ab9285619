"""What a counterfactual run imposes beyond its environment: seeds, precision, compilation, order of files.

A plan is a JSON object with any of

    env              {name: value or null}: variables to set, or unset, even if a shell script set others
    seed             number with which every generator is seeded before the program begins
    seed_forced      true: the program's own seeding is ignored
    reseed           [from, to]: if the program seeds with the first number, the second is used
    generators       true: numpy.random.default_rng() and random.Random() without a seed get one
    unseeded         file to which is written where the program's own code created such generators
    host             name that Python reports for the computer
    cpus             how many of the usable cores
    intra_op         threads within one operation, whatever the program sets
    deterministic    true or false: deterministic operations, whatever the program sets
    policy           Keras' dtype policy, whatever the program sets; floatx, image_data_format likewise
    tf32             true or false
    compile          {jit_compile, run_eagerly, steps_per_execution}: for every Model.compile()
    listing          "sorted", or names in the order in which folders list them (others follow, sorted)
    mirror           [[copy, original], …]: a copied folder lists its entries in the order of the original
    guard            {kept, free, refusals}: see guard
    feed             give the training other inputs, to measure the cost of its own: see stalls.substitution
"""

# ruff: noqa: PTH100, PTH119, PTH120

from __future__ import annotations

import functools
import json
import os
import random
import sys
import types
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..guard import Guard, watch_hdf5, watch_tensorflow
from ..observe.imports import FRAMEWORKS, ImportHook, notifier
from ..observe.project import of_environment
from . import listing

Plan = Mapping[str, Any]

_MODULES = ("numpy", *FRAMEWORKS)


def from_environment(environ: Mapping[str, str]) -> Plan:
    """Return the plan in ORCH_IMPOSE; empty if there is none."""
    text = environ.get("ORCH_IMPOSE", "")
    return json.loads(text) if text else {}


def install(plan: Plan, *, now: bool) -> None:
    """Impose the plan on this process. `now`: a parent of this process has imported frameworks already."""
    if not plan:
        return
    for name, value in (plan.get("env") or {}).items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if plan.get("cpus"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(plan["cpus"])])
    if plan.get("host"):
        _call_host(str(plan["host"]))
    if plan.get("guard"):
        Guard(**plan["guard"]).install()
    if "listing" in plan or "mirror" in plan:
        listing.install(plan.get("listing"), plan.get("mirror") or [])
    listeners: List[Any] = [ActiveIntervention(plan)]
    if plan.get("feed"):
        from ..stalls import substitution

        listeners.append(substitution.install(plan["feed"]))
    if "seed" in plan:
        random.seed(plan["seed"])
        if plan.get("seed_forced"):
            silence(random, "seed")
    if plan.get("reseed"):
        reseeded(random, "seed", plan["reseed"])
    if plan.get("generators"):
        _seed_unseeded(random.Random, _Heard(plan.get("unseeded")))
    announcer = ImportHook(_MODULES, _teller(listeners))
    announcer.install()
    for name in _MODULES if now else ():
        if name in sys.modules:
            announcer.imported(sys.modules[name])


def _teller(listeners: List[Any]) -> Callable[[Any], None]:
    """Return a function that informs the listeners, and the first of them also of NumPy."""
    tell = notifier(listeners)

    def told(module: Any) -> None:
        if module.__name__ == "numpy":
            listeners[0].on_numpy(module)
        else:
            tell(module)

    return told


def _call_host(name: str) -> None:
    """Make Python report this name for the computer."""
    import platform
    import socket

    about = list(os.uname())
    about[1] = name
    named = os.uname_result(about)
    os.uname = lambda: named
    socket.gethostname = lambda: name
    socket.getfqdn = lambda name=name: name
    platform._uname_cache = None  # type: ignore[attr-defined]


class ActiveIntervention:
    """A plan, carried out on each framework when it is there."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def on_numpy(self, numpy: Any) -> None:
        """Seed NumPy's generators."""
        if "seed" in self._plan:
            numpy.random.seed(self._plan["seed"] % (1 << 32))
            if self._plan.get("seed_forced"):
                silence(numpy.random, "seed")
        for name in ("seed", "default_rng") if self._plan.get("reseed") else ():
            reseeded(numpy.random, name, self._plan["reseed"])
        if self._plan.get("generators"):
            heard = _Heard(self._plan.get("unseeded"))
            numpy.random.default_rng = _seeded(numpy.random.default_rng, heard)

    def on_tensorflow(self, tf: Any) -> None:
        """Impose seeds, threads, determinism and precision of TensorFlow; guard what it writes."""
        plan = self._plan
        watch_tensorflow()
        if "seed" in plan:
            tf.random.set_seed(plan["seed"])
            if plan.get("seed_forced"):
                silence(tf.random, "set_seed")
        if plan.get("reseed"):
            reseeded(tf.random, "set_seed", plan["reseed"])
        if "intra_op" in plan:
            tf.config.threading.set_intra_op_parallelism_threads(int(plan["intra_op"]))
            silence(tf.config.threading, "set_intra_op_parallelism_threads")
        if "deterministic" in plan:
            wanted = "enable_op_determinism" if plan["deterministic"] else "disable_op_determinism"
            getattr(tf.config.experimental, wanted, lambda: None)()
            silence(tf.config.experimental, "enable_op_determinism")
        if "tf32" in plan:
            tf.config.experimental.enable_tensor_float_32_execution(bool(plan["tf32"]))
            silence(tf.config.experimental, "enable_tensor_float_32_execution")
        if "listing" in plan or "mirror" in plan:
            listing.on_tensorflow(tf, plan.get("listing"), plan.get("mirror") or [])

    def on_keras(self, keras: Any) -> None:
        """Impose seeds, policy and compilation of one Keras; guard what h5py writes for it."""
        plan = self._plan
        watch_hdf5()
        if "seed" in plan:
            keras.utils.set_random_seed(plan["seed"])
            if plan.get("seed_forced"):
                silence(keras.utils, "set_random_seed")
        if plan.get("reseed"):
            reseeded(keras.utils, "set_random_seed", plan["reseed"])
        if plan.get("policy"):
            keras.mixed_precision.set_global_policy(plan["policy"])
            for owner, name in _policy_setters(keras):
                silence(owner, name)
        for name in ("floatx", "image_data_format"):
            if plan.get(name):
                getattr(keras.backend, f"set_{name}")(plan[name])
                silence(keras.backend, f"set_{name}")
        if plan.get("compile"):
            _compile_with(keras, plan["compile"])


def silence(owner: Any, name: str) -> None:
    """Make owner.name() do nothing, because the plan has decided the setting; if possible, also for code that
    imported the function."""
    function = getattr(owner, name)
    if getattr(function, "__code__", None) is not None and not function.__code__.co_freevars:
        function.__code__ = _unheard.__code__
    setattr(owner, name, _unheard)


def reseeded(owner: Any, name: str, numbers: Sequence[int]) -> None:
    """Make owner.name() use the second of two seeds when it is given the first; if possible, also for code
    that imported the function."""
    function = getattr(owner, name)
    code = getattr(function, "__code__", None)
    if code is None or code.co_freevars:
        setattr(owner, name, _Reseeding(function, numbers))
        return
    original = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    original.__kwdefaults__ = function.__kwdefaults__
    function.__globals__["_orch_reseeding"] = _Reseeding(original, numbers)
    function.__defaults__ = function.__kwdefaults__ = None
    function.__code__ = _reseeding.__code__


class _Reseeding:
    """A seeding function that replaces one seed by another."""

    def __init__(self, function: Callable[..., Any], numbers: Sequence[int]) -> None:
        self._function = function
        self._from, self._to = numbers

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if "seed" in kwargs:
            kwargs["seed"] = self._other(kwargs["seed"])
        return self._function(*(self._other(value) for value in args[:1]), *args[1:], **kwargs)

    def _other(self, value: Any) -> Any:
        return self._to if isinstance(value, int) and value == self._from else value


def _reseeding(*args: Any, **kwargs: Any) -> Any:
    """The code that replaces that of a seeding function, whose module then has `_orch_reseeding`."""
    return _orch_reseeding(*args, **kwargs)  # type: ignore[name-defined]  # noqa: F821


def _unheard(*_args: Any, **_kwargs: Any) -> None:
    """Ignore a call of a setter, because the plan has decided the setting."""


def _policy_setters(keras: Any) -> Iterator[Tuple[Any, str]]:
    for owner in (keras.mixed_precision, getattr(keras, "config", None)):
        for name in ("set_global_policy", "set_dtype_policy"):
            if hasattr(owner, name):
                yield owner, name


def _compile_with(keras: Any, options: Dict[str, Any]) -> None:
    original = keras.Model.compile

    @functools.wraps(original)
    def compile_(model: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs.update(options)
        return original(model, *args, **kwargs)

    keras.Model.compile = compile_


class _Heard:
    """Record which line of the program created a generator without a seed."""

    def __init__(self, path: Optional[str]) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if path else None

    def __call__(self, what: str) -> None:
        frame = sys._getframe(2)
        while frame is not None and (of_environment(frame.f_code.co_filename) or _frozen(frame)):
            frame = frame.f_back  # type: ignore[assignment]
        if self._file is not None and frame is not None:
            place = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
            os.write(self._file, f"{what}\t{place}\n".encode())


def _frozen(frame: Any) -> bool:
    """Whether a frame belongs to the interpreter (runpy, importlib) or to this package, which started the
    program.
    """
    name = frame.f_code.co_filename
    return bool(name.startswith(("<", _LIBRARY, _OURS)))


_LIBRARY = os.path.dirname(os.__file__) + os.sep
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def _seed_unseeded(generator: Any, heard: Callable[[str], None]) -> None:
    """Let random.Random() without a seed count up from 1 instead of asking the system."""
    original, made = generator.seed, [0]

    @functools.wraps(original)
    def seed(self: Any, a: Any = None, version: int = 2) -> None:
        if a is None:
            made[0] += 1
            heard("random.Random")
        original(self, made[0] if a is None else a, version)

    generator.seed = seed


def _seeded(original: Callable[..., Any], heard: Callable[[str], None]) -> Callable[..., Any]:
    """Wrap a constructor of generators so that each one without a seed gets another fixed number."""
    made = [0]

    @functools.wraps(original)
    def default_rng(seed: Any = None) -> Any:
        if seed is None:
            made[0] += 1
            heard("numpy.random.default_rng")
        return original(made[0] if seed is None else seed)

    return default_rng
