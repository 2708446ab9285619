"""The rows of bench/RESULTS.md with their goals, and the benches that measure them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bench:
    """A program of bench/, with its arguments, those of a quick run, and the seconds it may take."""

    name: str
    usual: tuple[str, ...]
    quick: tuple[str, ...]
    limit: int


@dataclass(frozen=True)
class Row:
    """`goal`: the most that passes; None if there is no goal. `bench`: who measures it."""

    key: str
    what: str
    unit: str
    goal: float | None
    bench: str


BENCHES = (
    Bench("startup", ("--runs", "11"), ("--runs", "3"), 120),
    Bench("many", ("--rounds", "3"), ("--rounds", "1"), 180),
    Bench("sync", ("--runs", "3", "--all"), ("--runs", "1", "--all"), 480),
    Bench("link", ("--rounds", "3"), ("--rounds", "1"), 480),
    Bench("loop", ("--rounds", "3", "--local-parity"), ("--rounds", "1", "--local-parity"), 600),
    Bench("long", (), ("--seconds", "20"), 480),
    Bench("boot", ("--rounds", "2"), ("--rounds", "1"), 420),
    Bench("image", ("--rounds", "2"), ("--rounds", "1"), 420),
    Bench("trains", (), ("--projects", "4"), 420),
    Bench("ray", ("--rounds", "2"), ("--rounds", "1"), 420),
    Bench("parity", ("--verbs",), ("--verbs",), 300),
    Bench("store", ("--rounds", "3"), ("--rounds", "1"), 420),
    Bench("launch", ("--runs", "2", "aws", "gcp"), ("--runs", "1", "aws", "gcp"), 300),
)
CONNECTED = "of rsync with a new connection; ours on an open one"
ROWS = (
    Row("sync.open.full", "10,000 files, 106 MB: full copy", f"× {CONNECTED}", 0.7, "sync"),
    Row("sync.open.same", "nothing changed", f"× {CONNECTED}", 0.6, "sync"),
    Row("sync.open.changed", "1% changed", f"× {CONNECTED}", 0.65, "sync"),
    Row("sync.new.full", "full copy, both on a new connection", "× rsync", None, "sync"),
    Row("sync.new.same", "nothing changed, both on a new connection", "× rsync", None, "sync"),
    Row("sync.new.changed", "1% changed, both on a new connection", "× rsync", None, "sync"),
    Row("sync.tar.full", "the opponent tar over ssh: full copy", "× rsync", None, "sync"),
    Row("sync.scp.full", "the opponent scp: full copy", "× rsync", None, "sync"),
    Row("sync.rclone.full", "the opponent rclone: full copy", "× rsync", None, "sync"),
    Row("sync.pull", "10,000 files back from there", f"× {CONNECTED}", 0.7, "sync"),
    Row("sync.large", "1 GiB that does not compress", f"× {CONNECTED}", 0.7, "sync"),
    Row(
        "link.20ms.full",
        "20 ms round trip, 2,000 files, half of them text: full copy",
        f"× {CONNECTED}",
        0.5,
        "link",
    ),
    Row("link.20ms.same", "20 ms round trip: nothing changed", f"× {CONNECTED}", 0.5, "link"),
    Row("link.20ms.changed", "20 ms round trip: 1% changed", f"× {CONNECTED}", 0.5, "link"),
    Row("link.100ms.full", "100 ms round trip: full copy", f"× {CONNECTED}", 0.5, "link"),
    Row("link.100ms.same", "100 ms round trip: nothing changed", f"× {CONNECTED}", 0.5, "link"),
    Row("link.100ms.changed", "100 ms round trip: 1% changed", f"× {CONNECTED}", 0.5, "link"),
    Row("link.50mbit.full", "50 Mbit/s: full copy", f"× {CONNECTED}", 0.7, "link"),
    Row("link.50mbit.same", "50 Mbit/s: nothing changed", f"× {CONNECTED}", 0.7, "link"),
    Row("link.50mbit.changed", "50 Mbit/s: 1% changed", f"× {CONNECTED}", 0.7, "link"),
    Row("loop.digits", "digits, 3 epochs: edit → `orch train` → record", "× by hand", 1.4, "loop"),
    Row("loop.parity", "the same with --local-parity", "× by hand", None, "loop"),
    Row("loop.first", "command → first line", "× `rsync && ssh host python`", 1.15, "loop"),
    Row("loop.own", "command → first line: our own", "s", 0.5, "loop"),
    Row("loop.long", "a job of minutes, beyond 2 s", "× by hand", 1.1, "long"),
    Row(
        "loop.ray",
        "machine, job, results, no machine: `orch up`, `train`, `down`",
        "× Ray's launcher on a machine that is there",
        None,
        "ray",
    ),
    Row(
        "loop.ray_job",
        "edit → job → results, machine and cluster up: `orch train`",
        "× Ray's launcher",
        None,
        "ray",
    ),
    Row("start.help", "`orch --help`, CPU", "× `import typer`", 1.5, "startup"),
    Row("start.status", "`orch status --json`, CPU", "× `import typer`", 2.5, "startup"),
    Row(
        "boot.warm",
        "warm install of digits' lock, with bytecode",
        "× `uv pip sync`, which compiles none",
        1.1,
        "boot",
    ),
    Row("boot.compiled", "the same", "× `uv pip sync --compile-bytecode`", 1.1, "boot"),
    Row("boot.skip", "the same lock again, beyond the connection", "s", 0.2, "boot"),
    Row("boot.one", "a lock that changes by one package", "packages sent or unpacked", 1, "boot"),
    Row(
        "boot.one_time",
        "a lock that changes by one package",
        "× `uv pip sync` into what is there",
        None,
        "boot",
    ),
    Row("boot.bake", "`up` after `orch image bake`", "× `up` without an image", 0.5, "image"),
    Row("parity.record", "`orch record` of 3 steps, beyond the plain run", "s", 2.0, "parity"),
    Row("parity.confirm", "`compare --confirm`, one likely cause", "× plain first steps", 3.0, "parity"),
    Row("many.plan", "`plan` over 10,000 offers, CPU", "s", 1.0, "many"),
    Row("many.status", "`status --live` of 1,000 machines, CPU", "s", 1.0, "many"),
    Row("many.costs", "`costs` of 1,000 leases, CPU", "s", 1.0, "many"),
    Row("many.gc", "`gc` of 1,000 machines, CPU", "s", 1.0, "many"),
    Row("many.ledger", "a ledger of 100,000 events, CPU", "s", 1.0, "many"),
    Row("many.trains", "20 `orch train` at once", "interfere", 0, "trains"),
    Row("store.large", "a bucket's 2 GiB in 4 objects, pulled by the machine", "× rclone copy", 1.0, "store"),
    Row(
        "store.small", "a bucket's 10,000 small objects, pulled by the machine", "× rclone copy", 1.0, "store"
    ),
    Row("launch.aws", "emulated AWS: command → first ssh command", "× a plain script", None, "launch"),
    Row("launch.gcp", "emulated GCE: command → first ssh command", "× a plain script", None, "launch"),
)
