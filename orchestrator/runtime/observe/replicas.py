"""tf.distribute with one replica in each process: its share of a batch, and its own copies of variables.

Values of several processes are never read as one: that would be a collective operation, which the other
processes do not make.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping

from .channel import Channel
from .facts import Facts
from .surroundings import worker

SHARE = "share"
"""Name of the batch of one replica: the arguments of its step."""

LONGEST = 60.0
"""Seconds that a worker waits for the others before it ends."""


class Replicas:
    """Observe `Strategy.run`. `keep` receives the share of an eager call, for the step that follows."""

    def __init__(self, channel: Channel, facts: Facts, keep: Callable[[Any], None]) -> None:
        self._channel = channel
        self._facts = facts
        self._keep = keep
        self._default = channel.tf.distribute.get_strategy()

    def run(self, original: Any, strategy: Any, *args: Any, **kwargs: Any) -> Any:
        """Offer the share of this process before its step is traced; forget it if the call was no step."""
        if strategy is self._default:
            return original(*args, **kwargs)
        before = self._channel.turns
        try:
            self._facts.before_first_step(strategy)  # seeds are of this thread, not of the replica's
            self._show(strategy, args[1] if len(args) > 1 else kwargs.get("args", ()))
        except Exception as error:
            self._channel.recorder.fail("reading a replica's batch", error)
        result = original(*args, **kwargs)
        if self._channel.turns == before:
            self._channel.retract(SHARE)
        return result

    def _show(self, strategy: Any, given: Any) -> None:
        with strategy.scope():
            leaves = [pair for pair in self._channel.leaves(SHARE, given) if pair[1].shape.rank != 0]
            if self._channel.tf.executing_eagerly():
                self._keep([value for _, value in leaves])
            else:
                self._channel.offer_named("batch", leaves)


def wait_for_all(environ: Mapping[str, str]) -> None:
    """Wait until every worker of TF_CONFIG has recorded its last step, LONGEST at most.

    A worker that ends takes the collective operations of the others with it, also those that their own last
    step still waits for.
    """
    if worker(environ).get("world", 1) == 1:
        return
    from tensorflow.python.eager import context

    try:
        context.context().wait_at_barrier("orch-observed", int(LONGEST * 1000))
    except Exception:
        pass  # another worker failed; this one's recording is complete all the same
