"""The measurement of a scratch run, window by window: the differential, then each fix that can be applied."""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from .. import cgroups
from ..steps.inputs import mark, works_along
from ..steps.pipeline import describe_nodes
from . import data
from . import fixes as feeding_fixes
from .calls import chain, operations
from .files import Known, another_disk, chill, copied, read_rate, warm
from .fixes import Fix, Wishes
from .parity import Parity
from .windows import Feed, Mode, window

FORMAT = 1

PILOT = 6
"""Steps that tell how long a window must be."""

LEAST, MOST = 8, 200
"""Minimum and maximum steps of a window; half of that if steps are SLOW (seconds)."""

SLOW = 0.5

ENOUGH = 3
"""Rounds that are made whatever the budget is: fewer tell nothing of their noise."""

CACHED_BYTES = 512 << 20
"""Maximum bytes of the batches in memory for cached windows."""

WORTH = 1.05
"""Least ratio of a step to one that never waits: below this, no fix of the input is tried."""

SIGNIFICANT = 1.1
"""Cold over warm: from here on, fixes are tried with cold files."""

Say = Callable[[str], None]


class Measurement:
    """The measurement of one training's input. `result` is filled while it runs.

    `plan`: seconds of a window, rounds, try, trace (steps), trace_folder, staging (folder), budget.
    """

    def __init__(self, plan: Mapping[str, Any], dataset: Any, known: Known, say: Say) -> None:
        self._plan = plan
        self._dataset = dataset
        self._known = known
        self._say = say
        self._until = perf_counter() + float(plan.get("budget", 300.0))
        self._windows: List[Dict[str, Any]] = []
        self._steps = LEAST
        self._nodes: Optional[Dict[str, Any]] = None
        self._batch: Any = None
        self.result: Dict[str, Any] = {"v": FORMAT, "windows": self._windows, "notes": []}

    def steps(self) -> Feed:
        """Run the whole measurement."""
        yield from self._pilot()
        self.result["calls"] = [_told(one, call) for one, call in chain(self._dataset)]
        yield from self._differential()
        self.result["pipeline"] = self._nodes
        if self._plan.get("trace"):
            yield from self._trace()
        if self._plan.get("try"):
            yield from self._trials()
        self._finish()
        return None

    # ------------------------------------------------------------ the differential

    def _pilot(self) -> Feed:
        """Measure how long a step takes and which files are read; this also fills the page cache."""
        line = yield from window(self._warm(), PILOT, self._sync, self._look)
        self._known.look()
        each = line.get("wall", 0.0) / max(1, line["steps"])
        wanted = float(self._plan.get("seconds", 0.8)) / max(each, 1e-4)
        least = LEAST if each < SLOW else LEAST // 2
        self._steps = int(self._plan.get("steps") or min(MOST, max(least, wanted)))
        self._batch = next(iter(self._dataset), None)
        if self._batch is None:
            self.result["notes"].append(
                "The input cannot be started anew: only its first pass gives batches."
            )
        files = self._known.list()
        self.result.update(
            steps=self._steps,
            batch_bytes=data.size(self._batch),
            batch=data.leading(self._batch),
            files=len(files),
            file_bytes=sum(size for _, size in files),
        )

    def _differential(self) -> Feed:
        modes = [
            self._synthetic(),
            self._cached(),
            self._warm(),
            self._cold(),
            self._pull(),
            self._pull(cold=True),
        ]
        rounds = int(self._plan.get("rounds", 5))
        for number in range(rounds):
            self._say(f"round {number + 1} of {rounds}")
            for mode in modes if number % 2 == 0 else modes[::-1]:
                if perf_counter() > self._until and number >= ENOUGH:
                    self.result["notes"].append(f"The budget was used up after {number} rounds.")
                    return
                yield from self._time(mode, number)

    def _time(self, mode: Mode, number: int) -> Feed:
        look = self._look if mode.name == "warm" else None
        steps = self._steps * self.result["steps_per_call"] if mode.pull else self._steps
        line = yield from window(mode, steps, self._sync, look)
        self._windows.append({"round": number, **line})

    # ------------------------------------------------------------ kinds of input

    def _synthetic(self) -> Mode:
        """Feed one batch from memory repeatedly."""
        dataset = data.repeated(self._dataset, self._batch)
        return Mode("synthetic", lambda: iter(dataset))

    def _cached(self) -> Mode:
        """Feed as many batches as a window takes from memory: no file is read and nothing is prepared."""
        room = min(CACHED_BYTES, _available() // 4)
        most = max(2, room // max(1, data.size(self._batch)))
        dataset = data.lean(self._dataset.take(min(self._steps + 4, most))).cache()
        for _ in dataset:
            pass
        again = dataset.repeat()
        return Mode("cached", lambda: iter(again))

    def _warm(self) -> Mode:
        return Mode("warm", lambda: iter(self._dataset), self._heat)

    def _cold(self) -> Mode:
        return Mode("cold", lambda: iter(self._dataset), self._chill)

    def _pull(self, *, cold: bool = False) -> Mode:
        """Pull batches without a step: the rate of the preparation."""
        name, before = ("pull cold", self._chill) if cold else ("pull", self._heat)
        return Mode(name, lambda: iter(self._dataset), before, pull=True)

    def _heat(self) -> None:
        warm(self._known.list())

    def _chill(self) -> None:
        chill(path for path, _ in self._known.list())

    # ------------------------------------------------------------ fixes

    def _trials(self) -> Feed:
        """Time each fix beside the unchanged pipeline, in rounds; then check its effect on the batches."""
        cold = self._device("cold") and self._median("cold") > SIGNIFICANT * self._median("warm")
        before = self._chill if cold else self._heat
        fixes = self._fixes(cold)
        if not self._stalls(cold):
            self.result["stalls"] = False
            fixes = [fix for fix in fixes if fix.cores or fix.name == "fewer threads"]
            if not fixes:
                self.result["fixes"] = []
                return
        base = Mode("base", lambda: iter(self._dataset), before)
        tried: List[Tuple[Fix, Mode]] = []
        for fix in fixes:
            mode = self._trial(fix, before)
            if mode is not None:
                tried.append((fix, mode))
        rounds = int(self._plan.get("rounds", 5))
        for number in range(rounds):
            self._say(f"trying, round {number + 1} of {rounds}")
            modes = [base, *(mode for _, mode in tried)]
            for mode in modes if number % 2 == 0 else modes[::-1]:
                if perf_counter() > self._until and number >= ENOUGH:
                    rounds = number
                    break
                yield from self._time(mode, number)
            if rounds == number:
                self.result["notes"].append(f"The budget was used up after {number} rounds of trying.")
                break
        self._say("comparing batches")
        parity = Parity(self._dataset)
        self.result["base"] = "cold" if cold else "warm"
        self.result["fixes"] = [
            {"name": fix.name, "edits": fix.edits, **fix.facts, "parity": parity.of(fix)} for fix, _ in tried
        ]

    def _stalls(self, cold: bool) -> bool:
        """Whether steps wait for input in a way that a fix of the pipeline could improve."""
        ideal = min(self._median(mode) or float("inf") for mode in ("synthetic", "cached"))
        return self._median("cold" if cold else "warm") > WORTH * ideal

    def _fixes(self, cold: bool) -> List[Fix]:
        pulled = [line for line in self._windows if line["mode"] == "pull" and line.get("wall")]
        busy = sum(line["cpu"] + line["waited"] for line in pulled) / max(
            1e-9, sum(line["wall"] for line in pulled)
        )
        step, input_ = self._median("synthetic"), self._median("pull cold" if cold else "pull")
        wishes = Wishes(
            cores=_cores(),
            waits=busy < 0.5 or cold,
            parallel=min(feeding_fixes.MOST_CALLS, max(2, round(1.5 * input_ / max(step, 1e-4)) + 1)),
            batches=self._steps,
            room=int(0.7 * _available()),
        )
        elsewhere = self._plan.get("staging") and another_disk(self._known.list(), self._plan["staging"])
        staged = self._stage() if cold and elsewhere else {}
        return feeding_fixes.fixes(self._dataset, wishes, staged, read_rate(staged.values()))

    def _stage(self) -> Dict[str, str]:
        try:
            most = int(self._plan.get("staging_bytes", 4 << 30))
            return copied(self._known.list(), str(self._plan["staging"]), most)
        except OSError as error:
            self.result["notes"].append(f"The data could not be staged: {error.strerror}.")
            return {}

    def _trial(self, fix: Fix, before: Callable[[], None]) -> Optional[Mode]:
        """Return the fixed pipeline as a mode; None, and a note, if it cannot be built."""
        try:
            dataset = fix.build(self._dataset)
            if fix.name == "cache":
                data.primed(dataset, self._steps + 6)
        except Exception as error:
            self.result["notes"].append(f"{fix.name} could not be tried: {_plainly(error)}")
            return None
        widened = _Affinity() if fix.cores else None
        staged = fix.name == "staging"

        def ready() -> None:
            before()
            if staged:
                self._known.look()
            if widened:
                widened.widen()

        return Mode(
            f"fix {fix.name}", lambda: iter(dataset), ready, widened.narrow if widened else lambda: None
        )

    # ------------------------------------------------------------ a window of tf.profiler

    def _trace(self) -> Feed:
        """Run some steps of the unchanged pipeline under tf.profiler, with step markers."""
        import tensorflow as tf

        profiler, iterator = tf.profiler.experimental, iter(self._dataset)
        made = yield iterator
        profiler.start(str(self._plan["trace_folder"]))
        try:
            for number in range(int(self._plan["trace"])):
                if not made:
                    iterator = iter(self._dataset)
                with profiler.Trace("train", step_num=number, _r=1):
                    made = yield iterator
            self._sync()
        finally:
            profiler.stop()
        self.result["trace"] = str(self._plan["trace_folder"])

    # ------------------------------------------------------------ inside

    def _median(self, mode: str) -> float:
        times = sorted(
            line["wall"] / line["steps"] for line in self._windows if line["mode"] == mode and line["steps"]
        )
        return times[len(times) // 2] if times else 0.0

    def _device(self, mode: str) -> bool:
        """Whether a disk had to be read in most windows of a kind."""
        reads = sorted(line["device"] for line in self._windows if line["mode"] == mode and line["steps"])
        return bool(reads and reads[len(reads) // 2])

    def _look(self, iterator: Any, given: int) -> None:
        """Read tf.data's own model after a window."""
        try:
            import tensorflow as tf

            nodes = describe_nodes(tf.data.experimental.get_model_proto(iterator))
            mark(nodes, works_along(self._dataset))
            self._nodes = {"batches": given, "nodes": nodes}
        except Exception:  # autotuning is off, or the version differs: the fact is missing
            self._nodes = None

    @staticmethod
    def _sync() -> None:
        import tensorflow as tf

        devices = getattr(tf.test.experimental, "sync_devices", None)
        if devices is not None:
            devices()

    def _finish(self) -> None:
        files = self._known.list()
        self.result.update(files=len(files), file_bytes=sum(size for _, size in files))
        self.result["cardinality"] = int(self._dataset.cardinality())


class _Affinity:
    """Give all threads all cores of the computer, for the time of a window."""

    def __init__(self) -> None:
        import os

        self._os = os
        self._own = os.sched_getaffinity(0)

    def widen(self) -> None:
        self._set(range(self._os.cpu_count() or 1))

    def narrow(self) -> None:
        self._set(self._own)

    def _set(self, cores: Any) -> None:
        for task in self._os.listdir("/proc/self/task"):
            try:
                self._os.sched_setaffinity(int(task), cores)
            except OSError:  # it has ended, or a cpuset does not allow it
                continue


def _plainly(error: Exception) -> str:
    """Return the first line of an error, without the names that TensorFlow puts before it."""
    said = str(error).split("}} ")[-1].strip().split("\n")[0]
    return f"{type(error).__name__}: {said}"[:200]


def _cores() -> int:
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _available() -> int:
    """Return the bytes of available memory, within the control group's limit."""
    own = cgroups.own()
    limit, held = own.memory_limit(), own.memory_held()
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return 0
    return free if limit is None or held is None else max(0, min(free, limit - held))


def _told(dataset: Any, call: Any) -> Dict[str, Any]:
    """Return a call as the report shows it."""
    numbers = {}
    for name, place in (
        ("num_parallel_calls", {"map": 2, "interleave": 4}.get(call.name)),
        ("buffer_size", 1),
    ):
        if place is not None and (name != "buffer_size" or call.name in ("shuffle", "prefetch")):
            try:
                value = call.given(place, name)
                numbers[name] = None if value is None else int(value)
            except (TypeError, ValueError):
                continue
    return {
        "call": call.name,
        **numbers,
        "operations": [name for name in operations(dataset) if name not in _PLAIN],
        "elements": int(dataset.cardinality()),
        "site": list(call.site) if call.site else None,
    }


_PLAIN = ("Placeholder", "Const", "Identity", "NoOp", "Reshape", "Cast")


def unmeasured(why: str) -> Dict[str, Any]:
    """Return a result that says why nothing was measured."""
    return {"v": FORMAT, "windows": [], "notes": [], "unmeasured": why, "python": sys.version.split()[0]}
