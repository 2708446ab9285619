"""A lock in a store, for several computers: built from conditional writes, with an expiry.

No two clocks are compared. A waiting client measures by its own clock how long the object has not changed;
the holder measures by its own how long ago it last wrote. The holder stops before a waiting client may start,
as long as the rates of their clocks differ by less than a quarter. The object stays when the lock is free, so
that `fence` grows with every holder.
"""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from orchestrator.errors import Changed, Corrupt, LockHeld, LockLost, Missing, OrchError
from orchestrator.model.stores import Store

_PATIENCE = 1.25
"""A waiting client takes over after `lasts_s` times this factor without a renewal."""
_MOST_BYTES = 4096
_MOST_SECONDS = 3600.0
_POLL_SECONDS = 1.0
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)  # Linux: counts while the computer sleeps


def elapsed() -> float:
    """Return seconds by a monotonic clock of this computer."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


@dataclass(frozen=True)
class Holding:
    """The object of a lock. `nonce` is "" if it is free. `beat` counts the renewals.

    `fence` grows with every holder: a write with a smaller one is outdated.
    """

    owner: str
    nonce: str
    fence: int
    beat: int
    lasts_s: float

    def as_bytes(self) -> bytes:
        return json.dumps({"v": 1, **asdict(self)}, sort_keys=True).encode()


class StoreLock:
    """The exclusive right to work on `key`, until `lasts_s` seconds after the last renewal.

    `owner`: the name of this client in messages of waiting clients. Raises LockHeld and LockLost, and what
    the store raises. After an error of the store the lock is still held until its expiry: see `require`.
    """

    def __init__(
        self,
        store: Store,
        key: str,
        owner: str,
        lasts_s: float = 60.0,
        *,
        clock: Callable[[], float] = elapsed,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not 0 < lasts_s <= _MOST_SECONDS:
            raise ValueError(f"a lock lasts up to {_MOST_SECONDS:.0f} s, not {lasts_s}")
        self._store, self._key, self._owner, self._lasts = store, key, owner[:200], lasts_s
        self._name = f"{key} in {store.url}"
        self._clock, self._sleep = clock, sleep
        self._mutex = threading.RLock()
        self._seen: tuple[str, float] | None = None
        self._tried = ""
        self._held: Holding | None = None
        self._version = ""
        self._until = -math.inf

    @property
    def fence(self) -> int:
        """Return a number that is larger than that of every earlier holder. Raises LockLost if the lock is
        not held.
        """
        self.require()
        assert self._held
        return self._held.fence

    def acquire(self, wait_s: float = 0.0, waiting: Callable[[str], None] | None = None) -> None:
        """Take the lock. Raises LockHeld if it is not free within `wait_s` seconds.

        `waiting` is called once, with the owner, if the lock is held. If its holder was killed, this waits
        until the lock expires.
        """
        limit = self._clock() + wait_s
        while (holder := self._try()) is not None:
            if waiting:
                waiting(holder.owner)
                waiting = None
            left = limit - self._clock()
            if left <= 0:
                raise LockHeld(self._name, holder.owner)
            self._sleep(min(left, _POLL_SECONDS, holder.lasts_s / 4))

    def renew(self) -> None:
        """Hold the lock for another `lasts_s` seconds. Raises LockLost."""
        with self._mutex:
            self.require()
            assert self._held
            self._write(replace(self._held, beat=self._held.beat + 1), again=True)

    def require(self) -> None:
        """Raise LockLost unless the lock is held now. Call it before each effect."""
        with self._mutex:
            if self._held is None or self._clock() >= self._until:
                self._held = None
                raise LockLost(self._name)

    def release(self) -> None:
        """Release the lock. Does nothing if it is not held any more."""
        with self._mutex:
            held, self._held = self._held, None
            if held is None:
                return
            free = replace(held, nonce="", beat=held.beat + 1).as_bytes()
            expected: str | None = self._version
            for _ in range(2):
                try:
                    self._store.put_if(self._key, free, expected)
                except Changed:
                    found = self._read()
                    if found is None or found[0].nonce != held.nonce:
                        return
                    expected = found[1]
                else:
                    return

    @contextlib.contextmanager
    def held(self, wait_s: float = 0.0, waiting: Callable[[str], None] | None = None) -> Iterator[StoreLock]:
        """Hold the lock in the block, renewed by a thread. `require` checks in the block whether it is still
        held.
        """
        self.acquire(wait_s, waiting)
        ended = threading.Event()
        beating = threading.Thread(target=self._beat, args=(ended,), daemon=True)
        beating.start()
        try:
            yield self
        finally:
            ended.set()
            beating.join()
            with contextlib.suppress(OrchError):  # it expires then
                self.release()

    def _beat(self, ended: threading.Event) -> None:
        while not ended.wait(self._lasts / 4):
            try:
                self.renew()
            except LockLost:
                return
            except OrchError:
                continue  # the store failed: retry until the lock expires

    def _try(self) -> Holding | None:
        """Take the lock if it is free or expired. Returns None on success, else the holder."""
        with self._mutex:
            found = self._read()
            if found and found[0].nonce and not self._expired(*found):
                return found[0]
            self._tried = secrets.token_hex(16)
            fence = found[0].fence + 1 if found else 1
            self._version = found[1] if found else ""
            mine = Holding(self._owner, self._tried, fence, 0, self._lasts)
            try:
                self._write(mine, again=False)
            except LockLost:
                found = self._read()
                return found[0] if found and found[0].nonce else replace(mine, owner="another client")
            return None

    def _expired(self, holding: Holding, version: str) -> bool:
        """Whether the lock was not renewed for so long that its holder has stopped, by this computer's
        clock.
        """
        if holding.nonce == self._tried:
            return True  # written by a call of this client whose reply was lost
        now = self._clock()
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, now)
        return now - self._seen[1] > holding.lasts_s * _PATIENCE

    def _write(self, holding: Holding, *, again: bool) -> None:
        """Overwrite the known version; `lasts_s` counts from before the call. Raises LockLost.

        `again`: the object may be an earlier renewal by this client whose reply was lost.
        """
        begun = self._clock()
        try:
            stored = self._store.put_if(self._key, holding.as_bytes(), self._version or None)
        except Changed:
            found = self._read()
            if not again or found is None or found[0].nonce != holding.nonce:
                self._held = None
                raise LockLost(self._name) from None
            self._version = found[1]
            self._write(replace(found[0], beat=found[0].beat + 1), again=False)
            return
        self._held, self._version, self._until = holding, stored.version, begun + self._lasts

    def _read(self) -> tuple[Holding, str] | None:
        while True:
            stored = self._store.head(self._key)
            if stored is None:
                return None
            if stored.size > _MOST_BYTES:
                raise Corrupt(self._store.url, self._key, "it is not a lock of orch.")
            try:
                content = self._store.get(self._key, stored.version)
            except (Changed, Missing):
                continue
            return self._parsed(content), stored.version

    def _parsed(self, content: bytes) -> Holding:
        holding = parse(content)
        if holding is None:
            raise Corrupt(self._store.url, self._key, "it is not a lock of orch.")
        return holding


def parse(content: bytes) -> Holding | None:
    """Parse the content of a lock's object; None if it is malformed, because others may write to the
    store.
    """
    try:
        value: Any = json.loads(content)
    except (ValueError, RecursionError):
        return None
    match value:
        case {
            "owner": str(owner),
            "nonce": str(nonce),
            "fence": int(fence),
            "beat": int(beat),
            "lasts_s": int() | float() as lasts,
        } if 0 <= fence < 1 << 53 and 0 <= beat < 1 << 53 and 0 < lasts <= _MOST_SECONDS:
            return Holding(owner[:200], nonce, fence, beat, float(lasts))
    return None
