"""The machines of a run that several trained together."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.model import NodeFacts
from orchestrator.model.counted import counted
from orchestrator.model.plain import plain
from orchestrator.profiling.nodes import Straggler, WaitsFor, straggler
from orchestrator.report.units import duration, share

_WORDS = {
    WaitsFor.INPUT: "for {more} of the time it waited for its input, and the others for it",
    WaitsFor.COMPUTE: "for {more} of the time it computed, and the others waited for it",
}


def node_lines(nodes: Sequence[NodeFacts], *, short: bool = False) -> list[str]:
    """Return one line for each machine, and one on the machine that was slowest, unless the run was too
    `short` to tell.
    """
    lines = [_line(node) for node in nodes]
    slow = None if short else straggler(nodes)
    return [*lines, _slow(slow)] if slow else lines


def _line(node: NodeFacts) -> str:
    parts = [plain(node["exit"] or "its record is not here")]
    parts += [counted(node["steps"], "step")] if node["steps"] is not None else []
    parts += [f"waited {duration(node['waited'])} for input"] if node["waited"] is not None else []
    return f"{node['rank']} on {plain(node['machine'] or 'an unknown machine')}: {', '.join(parts)}"


def _slow(slow: Straggler) -> str:
    return f"node {slow.rank} set the pace: {_WORDS[slow.waits_for].format(more=share(slow.more))}"
