"""python -m tests.crash N [CLOUD[:VERB]...]: kill each verb on each cloud at N of its points; print a table.

With a verb only that one is killed, so that a long sweep can be made in parts. The points are spread over all
effects of a verb; on an emulated cloud, those around its calls come first.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.crash.emulated import CALLS, KINDS, emulated
from tests.crash.kill import Kill, Points
from tests.crash.rig import PLACES, rig
from tests.crash.sweep import SWEEPS, sweep, table, verbs_of


def main() -> int:
    wanted, clouds = max(2, int(sys.argv[1])), sys.argv[2:] or list(PLACES)
    kills: list[Kill] = []
    for cloud in clouds:
        for kill in _swept(*_parts(cloud), wanted):
            kills.append(kill)
            unsound = "" if kill.sound else f"UNSOUND {kill}"
            print(
                f"{kill.cloud} {kill.verb} {kill.point} before {kill.before[:90]} {unsound}", file=sys.stderr
            )
    print(table(kills))
    for kill in kills:
        if not kill.sound:
            print(kill)
    return int(not all(kill.sound for kill in kills))


def _parts(word: str) -> tuple[str, Sequence[str]]:
    """The cloud and the verbs that are meant by memory, or memory:down."""
    kind, _, verb = word.partition(":")
    if kind not in PLACES or (verb and verb not in SWEEPS):
        raise SystemExit(f"{word}: one of {', '.join(PLACES)}, alone or with one of :{', :'.join(SWEEPS)}")
    return kind, [verb] if verb else verbs_of(kind)


def _swept(kind: str, verbs: Sequence[str], wanted: int) -> Iterator[Kill]:
    with ExitStack() as stack:
        cloud = stack.enter_context(emulated(kind)) if kind in KINDS else None
        for verb in verbs:
            around: Points = CALLS.get((kind, verb), ())
            sets: tuple[Points, ...] = (around, wanted) if around else (wanted,)
            made = tempfile.TemporaryDirectory(prefix="orch-crash-")
            with made as folder, rig(Path(folder), kind, cloud) as project:
                for points in sets:
                    yield from sweep(project, verb, points)


if __name__ == "__main__":
    sys.exit(main())
