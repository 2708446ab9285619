"""Run the benches of bench/ and write bench/RESULTS.md: each row with its goal, its figure, and pass or not.

scripts/bench [--only NAME,…] [--quick] [--rewrite]
Every row that is measured is kept in bench/results.json at once, with the load and the computer. A bench that
fails, is left out or is interrupted leaves the earlier figures of its rows. --quick: few rounds. --rewrite:
run nothing. Opponents that are missing here are installed with apt-get where that asks nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KEPT, PAGE = ROOT / "bench" / "results.json", ROOT / "bench" / "RESULTS.md"
OPPONENTS = {"rsync": "rsync", "rclone": "rclone", "nginx": "nginx-light", "scp": "openssh-client"}


@dataclass(frozen=True)
class Bench:
    """A program of bench/, with its arguments, those of a quick run, and the seconds it may take."""

    name: str
    usual: tuple[str, ...]
    quick: tuple[str, ...]
    limit: int


@dataclass(frozen=True)
class Row:
    """`goal`: the most that passes; None if there is no goal. `bench`: who measures it, "" if nobody does."""

    key: str
    what: str
    unit: str
    goal: float | None
    bench: str
    why: str = ""


BENCHES = (
    Bench("startup", ("--runs", "11"), ("--runs", "3"), 120),
    Bench("many", ("--rounds", "3"), ("--rounds", "1"), 180),
    Bench("sync", ("--runs", "3", "--all"), ("--runs", "1"), 420),
    Bench(
        "loop",
        ("--rounds", "3", "--local-parity"),
        (
            "--rounds",
            "1",
        ),
        480,
    ),
    Bench("parity", ("--verbs",), ("--verbs",), 240),
    Bench("launch", ("--runs", "2", "aws", "gcp"), ("--runs", "1", "aws"), 180),
)
CONNECTED = "of rsync with a new connection; ours on an open one"
NO_PROXY = "No bench: bench/sync has no proxy that delays or limits the connection."
NO_BOOTSTRAP = "No bench installs by hand beside `orch up` yet."
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
    Row("sync.20ms", "at 20 ms round trip", "× rsync", 0.5, "", NO_PROXY),
    Row("sync.100ms", "at 100 ms round trip", "× rsync", 0.5, "", NO_PROXY),
    Row("sync.50mbit", "at 50 Mbit/s", "× rsync", 0.7, "", NO_PROXY),
    Row("loop.digits", "digits, 3 epochs: edit → `orch train` → record", "× by hand", 1.4, "loop"),
    Row("loop.parity", "the same with --local-parity", "× by hand", None, "loop"),
    Row("loop.first", "command → first line", "× `rsync && ssh host python`", 1.15, "loop"),
    Row("loop.own", "command → first line: our own", "s", 0.5, "loop"),
    Row("loop.long", "a job of minutes, beyond 2 s", "× by hand", 1.1, "", "No bench runs a long job."),
    Row("loop.ray", "the whole loop by Ray's launcher", "×", None, "", "Not installed by scripts/bench."),
    Row("start.help", "`orch --help`, CPU", "× `import typer`", 1.5, "startup"),
    Row("start.status", "`orch status --json`, CPU", "× `import typer`", 2.5, "startup"),
    Row("boot.warm", "warm install", "× `uv pip sync`", 1.1, "", NO_BOOTSTRAP),
    Row("boot.skip", "the same lock again, beyond the connection", "s", 0.2, "", NO_BOOTSTRAP),
    Row("boot.one", "a lock that changes by one package", "packages", 1, "", NO_BOOTSTRAP),
    Row("boot.bake", "`orch image bake`", "", None, "", "There is no such command."),
    Row("parity.record", "`orch record` of 3 steps, beyond the plain run", "s", 2.0, "parity"),
    Row("parity.confirm", "`compare --confirm`, one likely cause", "× plain first steps", 3.0, "parity"),
    Row("many.plan", "`plan` over 10,000 offers, CPU", "s", 1.0, "many"),
    Row("many.status", "`status --live` of 1,000 machines, CPU", "s", 1.0, "many"),
    Row("many.costs", "`costs` of 1,000 leases, CPU", "s", 1.0, "many"),
    Row("many.gc", "`gc` of 1,000 machines, CPU", "s", 1.0, "many"),
    Row("many.ledger", "a ledger of 100,000 events, CPU", "s", 1.0, "many"),
    Row("many.trains", "20 `orch train` at once", "interfere", 0, "", "No bench and no test starts 20."),
    Row("launch.aws", "emulated AWS: command → first ssh command", "× a plain script", None, "launch"),
    Row("launch.gcp", "emulated GCE: command → first ssh command", "× a plain script", None, "launch"),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--only", default="", metavar="NAME,…", help=",".join(each.name for each in BENCHES))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rewrite", action="store_true")
    parser.add_argument("--enforce", action="store_true", help="exit 1 if a measured row misses its goal")
    given = parser.parse_args()
    wanted = [each for each in BENCHES if not given.only or each.name in given.only.split(",")]
    if not given.rewrite:
        install_opponents()
        for bench in wanted:
            run_bench(bench, bench.quick if given.quick else bench.usual)
            write_page()
    write_page()
    missed = [row for row in ROWS if verdict(row, kept().get(row.key)) == "no"]
    return int(given.enforce and bool(missed))


def install_opponents() -> None:
    """Install what is missing. What cannot be installed is left out by the benches."""
    missing = [package for program, package in OPPONENTS.items() if not shutil.which(program)]
    if not missing:
        return
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    command = [*root, "apt-get", "install", "-y", "-q", "--no-install-recommends", *missing]
    try:
        done = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL).returncode
    except OSError:
        done = 1
    if done:
        print(f"bench: {' '.join(missing)} cannot be installed here; their rows are left out", flush=True)


def run_bench(bench: Bench, arguments: tuple[str, ...]) -> None:
    """Run one bench, and keep the rows that it reported, also if it failed after them."""
    print(f"$ bench/{bench.name} {' '.join(arguments)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="orch-bench-") as folder:
        rows = Path(folder) / "rows.jsonl"
        environ = {**os.environ, "ORCH_BENCH_ROWS": str(rows)}
        command = [sys.executable, str(ROOT / "bench" / bench.name), *arguments]
        load = os.getloadavg()[0]
        problem = ended(command, environ, bench.limit)
        if problem:
            print(f"bench/{bench.name}: {problem}; the rows that it reported are kept", flush=True)
        lines = rows.read_text().splitlines() if rows.exists() else []
        keep({each["key"]: each for each in map(json.loads, lines)}, bench, problem, load)


def ended(command: list[str], environ: dict[str, str], limit: int) -> str:
    """Run the command, and return why it failed; "" if it did not. After `limit` seconds it is interrupted,
    as by Ctrl-C, so that it ends its machine.
    """
    with subprocess.Popen(command, env=environ, cwd=ROOT, stdin=subprocess.DEVNULL) as process:
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            process.send_signal(2)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
            return f"took longer than {limit} s"
    return f"exit status {status}" if status else ""


def kept() -> dict[str, Any]:
    return dict(json.loads(KEPT.read_text())) if KEPT.exists() else {}


def keep(found: dict[str, Any], bench: Bench, problem: str, load: float) -> None:
    """Put the rows of one bench with those that are kept. `problem` is noted for its other rows."""
    rows = kept()
    facts = {"at": time.strftime("%Y-%m-%d %H:%M", time.gmtime()), "machine": machine()}
    facts["load"] = f"{max(load, os.getloadavg()[0]):.1f}"
    for row in ROWS:
        if row.key in found:
            rows[row.key] = {**found[row.key], **facts}
        elif row.bench == bench.name and problem:
            rows[row.key] = {**rows.get(row.key, {"values": [], "detail": ""}), "problem": problem}
    text = json.dumps(rows, indent=1, sort_keys=True)
    KEPT.with_suffix(".part").write_text(text + "\n")
    KEPT.with_suffix(".part").replace(KEPT)


def machine() -> str:
    """The computer: processor, cores, memory, kernel, Python."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        name = platform.processor()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return f"{name or platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB, {system}"


# ---------------------------------------------------------------- the page


def verdict(row: Row, found: dict[str, Any] | None) -> str:
    if not found or not found["values"]:
        return "not measured"
    if row.goal is None:
        return "no goal"
    return "yes" if statistics.median(found["values"]) <= row.goal else "no"


def line(row: Row, found: dict[str, Any] | None) -> str:
    goal = "–" if row.goal is None else f"≤ {row.goal:g}"
    values = (found or {}).get("values") or []
    measured = f"**{statistics.median(values):.2f}**" if values else "–"
    spread = f"{min(values):.2f} – {max(values):.2f}, n={len(values)}" if values else "–"
    load = found["load"] if found and values else "–"
    return f"| {row.what} | {row.unit} | {goal} | {measured} | {spread} | {load} | {verdict(row, found)} |"


def reasons(rows: dict[str, Any]) -> list[str]:
    """Why a row is not measured or misses its goal, as far as its bench says so."""
    lines = []
    for row in ROWS:
        found = rows.get(row.key) or {}
        said = verdict(row, found)
        parts = [found.get("detail", ""), f"Its bench: {found['problem']}." if found.get("problem") else ""]
        why = " ".join(part for part in (row.why, *parts) if part)
        if why and said in ("no", "not measured"):
            lines.append(f"- {row.what}: {why}")
    return lines


def write_page() -> None:
    rows = kept()
    computers = sorted({f"{each['at']} UTC: {each['machine']}" for each in rows.values() if each.get("at")})
    parts = [
        "# What orch costs beside what one would type by hand",
        "",
        "`scripts/bench` writes this page: ours and the opponent in turns on the same sshd and files, the",
        "median of the rounds, the least and the most. `load` is this computer's at that time: above the",
        "number of its cores, absolute times are too long and ratios less certain.",
        "`scripts/bench --only sync,loop` measures some rows again and leaves the others.",
        "",
        "| what | unit | goal | measured | spread | load | passes |",
        "|---|---|---|---|---|---|---|",
        *(line(row, rows.get(row.key)) for row in ROWS),
        "",
        "Not reached or not measured:",
        "",
        *reasons(rows),
        "",
        "Measured on:",
        "",
        *(f"- {each}" for each in computers),
    ]
    PAGE.write_text("\n".join(parts) + "\n")


if __name__ == "__main__":
    sys.exit(main())
