"""Run the benches of bench/ and write bench/RESULTS.md: each row with its goal, its figure, and pass or not.

scripts/bench [--only NAME,…] [--quick] [--rewrite]
NAME: a bench, or the key of one row. Every row that is measured is kept in bench/results.json, with the load
and the computer, as soon as its bench ends. A bench that fails, is left out or is interrupted leaves the
earlier figures of the rows that it did not measure; its machines and processes are ended. --quick: few
rounds. --rewrite: run nothing. Opponents that are missing here are installed with apt-get where that asks
nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench_guard import TOO_LONG
from bench_profiles import WHERE
from bench_rows import BENCHES, ROWS, Bench, Row

ROOT = Path(__file__).resolve().parents[1]
KEPT, PAGE = ROOT / "bench" / "results.json", ROOT / "bench" / "RESULTS.md"
OPPONENTS = {"rsync": "rsync", "rclone": "rclone", "nginx": "nginx-light", "scp": "openssh-client"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    names = ",".join(each.name for each in BENCHES)
    parser.add_argument(
        "--only", default="", metavar="NAME,…", help=f"{names}, or keys of bench/results.json"
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rewrite", action="store_true")
    parser.add_argument("--enforce", action="store_true", help="exit 1 if a measured row misses its goal")
    given = parser.parse_args()
    wanted = chosen([each for each in given.only.split(",") if each])
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background ignores the first
        signal.signal(number, _interrupted)
    if not given.rewrite:
        install_opponents()
        for bench, keys in wanted:
            run_bench(bench, bench.quick if given.quick else bench.usual, keys)
            write_page()
    write_page()
    missed = [row for row in ROWS if verdict(row, kept().get(row.key)) == "no"]
    return int(given.enforce and bool(missed))


def _interrupted(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def chosen(names: Sequence[str]) -> list[tuple[Bench, tuple[str, ...]]]:
    """Return the benches that measure what `names` names, each with the keys of its rows that are wanted."""
    known = {each.name for each in BENCHES} | {row.key for row in ROWS}
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"bench: nothing is called {', '.join(unknown)}. There are: {' '.join(sorted(known))}")
    rows = [row for row in ROWS if not names or row.key in names or row.bench in names]
    found = [(bench, tuple(row.key for row in rows if row.bench == bench.name)) for bench in BENCHES]
    return [(bench, keys) for bench, keys in found if keys]


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


def run_bench(bench: Bench, arguments: tuple[str, ...], keys: tuple[str, ...]) -> None:
    """Run one bench for the rows `keys`, and keep what it reported, also if it failed or was interrupted."""
    print(f"$ bench/{bench.name} {' '.join(arguments)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="orch-bench-", ignore_cleanup_errors=True) as folder:
        rows, temporary = Path(folder) / "rows.jsonl", Path(folder) / "t"
        temporary.mkdir()
        own = {"ORCH_BENCH_ROWS": rows, "ORCH_STATE_HOME": Path(folder) / "state", "TMPDIR": temporary}
        environ = {**os.environ, "ORCH_BENCH_ONLY": ",".join(keys), **{key: str(own[key]) for key in own}}
        load, problem = os.getloadavg()[0], "was interrupted"
        try:
            problem = ended(bench, arguments, Path(folder), environ)
        finally:
            if problem:
                print(f"bench/{bench.name}: {problem}; the rows that it reported are kept", flush=True)
            lines = rows.read_text().splitlines() if rows.exists() else []
            keep({each["key"]: each for each in map(json.loads, lines)}, keys, problem, load)


def ended(bench: Bench, arguments: Sequence[str], folder: Path, environ: dict[str, str]) -> str:
    """Run the bench, and return why it failed; "" if it did not. Nothing of it is left, whatever happens."""
    guard = [sys.executable, str(Path(__file__).with_name("bench_guard.py")), str(folder), str(bench.limit)]
    command = [*guard, sys.executable, str(ROOT / "bench" / bench.name), *arguments]
    process = subprocess.Popen(
        command, env=environ, cwd=ROOT, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        status = process.wait()
    except BaseException:
        process.send_signal(signal.SIGINT)
        process.wait()
        raise
    if status == TOO_LONG:
        return f"took longer than {bench.limit} s"
    return f"exit status {status}" if status else ""


def kept() -> dict[str, Any]:
    return dict(json.loads(KEPT.read_text())) if KEPT.exists() else {}


def keep(found: dict[str, Any], keys: Sequence[str], problem: str, load: float) -> None:
    """Put what one bench found with what is kept. Rows of `keys` without figures keep the earlier ones, and
    get the reason: `problem`, or what the bench said.
    """
    rows = kept()
    facts = {"at": time.strftime("%Y-%m-%d %H:%M", time.gmtime()), "machine": machine()}
    facts["load"] = f"{max(load, os.getloadavg()[0]):.1f}"
    for key in (row.key for row in ROWS):
        said = found.get(key, {"values": [], "detail": ""})
        if said["values"]:
            rows[key] = {**said, **facts}
        elif key in keys and (why := said["detail"] or (f"Its bench: {problem}." if problem else "")):
            rows[key] = {**rows.get(key, {"values": [], "detail": ""}), "problem": why}
    text = json.dumps({row.key: rows[row.key] for row in ROWS if row.key in rows}, indent=1, sort_keys=True)
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
    """Why a row is not measured, was not measured again, or misses its goal, as far as its bench says so."""
    lines = []
    for row in ROWS:
        found = rows.get(row.key) or {}
        said = verdict(row, found)
        profiled = WHERE.get(row.key, "") if said == "no" else ""
        why = " ".join(part for part in (found.get("detail", ""), found.get("problem", ""), profiled) if part)
        if why and (said in ("no", "not measured") or found.get("problem")):
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
        "`scripts/bench --only sync,loop.first` measures some benches or rows again and leaves the others.",
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
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        write_page()
        sys.exit("bench: interrupted; what was measured is kept, and nothing was left running")
