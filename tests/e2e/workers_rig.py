"""Runs under a Python with TensorFlow: records trainings of one process and of several, each in a fork.

`workers_rig.py ROOT TRAININGS`: ROOT holds orch_runtime; TRAININGS is a JSON file, a list of trainings, each
a list of processes {script, folder, arguments, environment} that run at once. TensorFlow is imported once.
Prints what went wrong, if anything.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, sys.argv[1])

import keras  # noqa: F401
import tensorflow as tf  # noqa: F401

STEPS = 3


def child(process: dict[str, Any]) -> None:
    """One process of a training, which ends after the recorded steps if it is told to."""
    from orch_runtime.observe import Settings, install_now

    folder = Path(process["folder"])
    folder.mkdir(parents=True)
    os.chdir(folder)
    log = os.open("output.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(process["environment"])
    if process["record"]:
        install_now(Settings(folder / "observe", STEPS, stop=process["stop"]))
    sys.argv = [process["script"], *process["arguments"]]
    sys.path.insert(0, str(Path(process["script"]).parent))
    runpy.run_path(process["script"], run_name="__main__")


def main() -> None:
    for training in json.loads(Path(sys.argv[2]).read_text()):
        pids = []
        for process in training:
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    child(process)
                    code = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(code)
            pids.append((pid, process["folder"]))
        for pid, folder in pids:
            if os.waitpid(pid, 0)[1]:
                print(folder, Path(folder, "output.log").read_text()[-3000:], flush=True)


if __name__ == "__main__":
    main()
