"""Register import hooks for TensorFlow and Keras, then chain to the next sitecustomize.

The folder of this file is first on PYTHONPATH, so that every Python that the job starts finds it. It
does nothing unless the run asks for observation or for a trace, takes itself off sys.path, and then
runs the sitecustomize that it hides.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location

_HERE = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 (pathlib would slow every start)


def _add_package() -> None:
    """Make the package around this folder importable as orch_runtime, without an entry in sys.path."""
    if "orch_runtime" in sys.modules:
        return
    root = os.path.dirname(_HERE)  # noqa: PTH120
    spec = spec_from_file_location("orch_runtime", f"{root}/__init__.py", submodule_search_locations=[root])
    if spec is None or spec.loader is None:
        raise ImportError("orch_runtime")
    package = module_from_spec(spec)
    sys.modules["orch_runtime"] = package
    spec.loader.exec_module(package)


def _listeners() -> list[object]:
    """Return the listeners for frameworks: the observation and the step clock, each if requested; or sizing,
    which makes steps of its own.
    """
    if os.environ.get("ORCH_SIZE"):
        names = ("orch_runtime.sizing.sizing", "orch_runtime.observe.opened")
        return [found for name in names if (found := import_module(name).from_environment(os.environ))]
    found = []
    if os.environ.get("ORCH_RESUME"):
        found.append(import_module("orch_runtime.resume.watch").install(os.environ))
    if os.environ.get("ORCH_OBSERVE_STEPS"):
        found.append(import_module("orch_runtime.observe").observation(os.environ))
    if os.environ.get("ORCH_TRACE"):
        try:
            found.append(import_module("orch_runtime.steps.clock"))
        except ImportError:
            pass
    return [listener for listener in found if listener is not None]


def _install() -> None:
    _add_package()
    if os.environ.get("ORCH_IMPOSE"):
        interventions = import_module("orch_runtime.replay.interventions")
        interventions.install(interventions.from_environment(os.environ), now=False)
    listeners = _listeners()
    if listeners:
        imports = import_module("orch_runtime.observe.imports")
        imports.ImportHook(imports.FRAMEWORKS, imports.notifier(listeners)).install()


def _chain() -> None:
    """Run the sitecustomize that this one hides, as if it were imported itself."""
    sys.path[:] = [entry for entry in sys.path if not entry or os.path.realpath(entry) != _HERE]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get("ORCH_OBSERVE_STEPS") or os.environ.get("ORCH_TRACE"):
    try:
        _install()
    except Exception:
        pass  # a hook that fails is a missing fact, never a failed job
_chain()
