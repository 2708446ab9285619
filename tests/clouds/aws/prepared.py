"""What an emulated AWS imports and builds before it serves: seconds, once per process that forks them."""

from __future__ import annotations

import functools
from collections.abc import Mapping


def prepare(_environ: Mapping[str, str]) -> None:
    """For each fork; the first call does it."""
    _prepare()


@functools.cache
def _prepare() -> None:
    import gc

    from tests.clouds.aws import server

    server.load()
    gc.collect()
    gc.freeze()
