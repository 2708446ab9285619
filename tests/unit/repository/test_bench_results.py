"""scripts/bench keeps what each bench reported, whatever happens to that bench or the next."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
REPORTS = f"""import sys, time
sys.path.insert(0, {str(ROOT / "bench")!r})
from rows import note
note("many.plan", [0.1, 0.3, 0.2])
note("many.gc", [2.0], "The list is long.")
"""
KEYS = ("many.plan", "many.gc", "many.ledger")


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, with the benches and the page in a folder of their own."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    spec = importlib.util.spec_from_file_location("bench_results", ROOT / "scripts" / "bench_results.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bench_results", module)
    spec.loader.exec_module(module)
    (tmp_path / "bench").mkdir()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "KEPT", tmp_path / "results.json")
    monkeypatch.setattr(module, "PAGE", tmp_path / "RESULTS.md")
    return module


def measured(results: ModuleType, then: str, limit: int = 60) -> dict[str, str]:
    """The rows of the page, by what they measure, after a bench that reports two and goes on so."""
    (results.ROOT / "bench" / "many").write_text(REPORTS + then)
    results.run_bench(results.Bench("many", (), (), limit), (), KEYS)
    results.write_page()
    lines = results.PAGE.read_text().splitlines()
    return {each.split(" | ")[0].removeprefix("| "): each for each in lines if each.startswith("| `")}


@pytest.mark.parametrize("then", ["", "sys.exit(3)", "raise ValueError"])
def test_rows_that_were_reported_stay_whatever_comes_of_their_bench(results: ModuleType, then: str) -> None:
    rows = measured(results, then)
    assert "**0.20** | 0.10 – 0.30, n=3" in rows["`plan` over 10,000 offers, CPU"]
    assert rows["`plan` over 10,000 offers, CPU"].endswith("| yes |")
    assert rows["`gc` of 1,000 machines, CPU"].endswith("| no |")
    assert "The list is long." in results.PAGE.read_text()


def test_a_bench_that_does_not_end_is_interrupted_and_said(results: ModuleType) -> None:
    measured(results, "time.sleep(600)", limit=3)
    page = results.PAGE.read_text()
    assert "a ledger of 100,000 events, CPU: Its bench: took longer than 3 s." in page
    assert "**0.20**" in page


def test_rows_of_an_earlier_call_stay_until_they_are_measured_again(results: ModuleType) -> None:
    measured(results, "")
    (results.ROOT / "bench" / "many").write_text("raise SystemExit(1)")
    results.run_bench(results.Bench("many", (), (), 60), (), KEYS)
    kept = json.loads(results.KEPT.read_text())
    assert kept["many.plan"]["values"] == [0.1, 0.3, 0.2]


def test_a_row_that_was_not_wanted_keeps_its_figure_and_gets_no_reason(results: ModuleType) -> None:
    measured(results, "")
    (results.ROOT / "bench" / "many").write_text("raise SystemExit(1)")
    results.run_bench(results.Bench("many", (), (), 60), (), ("many.plan",))
    kept = json.loads(results.KEPT.read_text())
    assert "exit status 1" in kept["many.plan"]["problem"]
    assert "problem" not in kept["many.gc"] and kept["many.gc"]["values"] == [2.0]


def test_a_bench_says_why_a_row_has_no_figure(results: ModuleType) -> None:
    measured(results, 'from rows import absent\nabsent("many.ledger", "Not installed here.")\n')
    assert "- a ledger of 100,000 events, CPU: Not installed here." in results.PAGE.read_text()


@pytest.mark.parametrize(
    "then",
    [
        "sys.exit(1)",
        "time.sleep(600)",
    ],
)
def test_no_process_of_a_bench_outlives_it(results: ModuleType, tmp_path: Path, then: str) -> None:
    daemon = f"echo $$ >{tmp_path}/pid; exec sleep 600"
    starts = f"import subprocess\nsubprocess.Popen(['setsid', 'sh', '-c', {daemon!r}])\ntime.sleep(1)\n"
    measured(results, starts + then, limit=4)
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_names_choose_benches_and_rows(results: ModuleType) -> None:
    found = {bench.name: keys for bench, keys in results.chosen(["startup", "many.gc"])}
    assert found == {"startup": ("start.help", "start.status"), "many": ("many.gc",)}
    assert {row.key for row in results.ROWS} == {key for _, keys in results.chosen([]) for key in keys}
    with pytest.raises(SystemExit, match=r"no\.such"):
        results.chosen(["no.such"])


def test_every_row_is_of_a_bench_and_is_named_there(results: ModuleType) -> None:
    for row in results.ROWS:
        assert (ROOT / "bench" / row.bench).is_file()
    names = {bench.name for bench in results.BENCHES}
    assert {row.bench for row in results.ROWS} == names
    assert len({row.key for row in results.ROWS}) == len(results.ROWS)
