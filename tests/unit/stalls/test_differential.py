"""Stalls from windows: recorded ones of planted bottlenecks, and made ones whose answer is known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.report.profile import profile_text
from orchestrator.stalls import scratch_run
from orchestrator.stalls.bottleneck import name
from orchestrator.stalls.differential import Differential, differential
from orchestrator.stalls.file_reads import ROW, reads_of
from orchestrator.stalls.fixes import judge_fixes, untried_fixes, winner
from orchestrator.stalls.scratch_folder import Scratch

RECORDED: dict[str, Any] = json.loads(
    Path(__file__).parent.with_name("differential_recorded.json").read_text()
)
EXPECTED = {
    "none": "none",
    "none_busy": "none",  # while fifteen others wanted two cores
    "tiny_shuffle": "none",
    "no_prefetch": "no prefetch",
    "serial_map": "serial map",
    "serial_wait": "serial map",
    "generator": "generator",
    "remote": "remote",
    "decode": "decode",
    "few_cores": "cores",
    "many_threads": "threads",
    "slow_disk": "storage",
    "small_files": "small files",
    "memory": "memory",
}


def window(mode: str, number: int, seconds: float, **more: float) -> dict[str, Any]:
    """Ten steps of `seconds` each on a quiet computer; `more` are totals of them."""
    line = {"mode": mode, "round": number, "steps": 10, "wall": 10 * seconds, "first": 0.1, "threads": 20}
    counters = dict.fromkeys(
        ("cpu", "waited", "device", "asked", "calls", "faults", "network", "machine"), 0.0
    )
    return {**line, **counters, **more}


def result(times: Mapping[str, Sequence[float]], device: float = 0.0, **more: Any) -> dict[str, Any]:
    """What a scratch run writes; cold windows read `device` bytes a step."""
    windows = [
        window(mode, number, seconds, device=10 * device if "cold" in mode else 0.0)
        for mode, rounds in times.items()
        for number, seconds in enumerate(rounds)
    ]
    return {"v": 1, "windows": windows, "steps_per_call": 1, "cores": 4, "batch": 32, **more}


def read(*args: Any, **more: Any) -> Differential:
    found = differential(result(*args, **more))
    assert found is not None
    return found


STEADY = {"synthetic": [0.010, 0.011, 0.010], "warm": [0.020, 0.021, 0.020], "pull": [0.010] * 3}


@pytest.mark.parametrize("case", sorted(RECORDED))
def test_what_was_planted_is_named(case: str) -> None:
    """Windows recorded by bench/stalls on two cores that others used too."""
    found = differential(RECORDED[case])
    assert found is not None
    named = name(found)
    assert named.kind == EXPECTED[case], named.words
    assert [kind for kind, _ in named.findings] == (["shuffle"] if case == "tiny_shuffle" else [])


def test_every_planted_bottleneck_was_recorded() -> None:
    assert set(RECORDED) == set(EXPECTED)


def test_stalls_are_shares_of_the_slower_step() -> None:
    times = {**STEADY, "cold": [0.040, 0.042, 0.040], "pull cold": [0.030] * 3}
    found = read(times, device=3e6)
    assert found.ideal == 0.010
    assert found.prep.share == pytest.approx(0.5) and found.prep.significant
    assert found.fetch and found.fetch.share == pytest.approx(0.5) and found.fetch.significant
    assert found.stall.share == pytest.approx(0.75) and found.cold
    assert found.rate("synthetic") == pytest.approx(3200)
    assert found.rate("pull") == pytest.approx(3200) and found.rate("pull cold") == pytest.approx(32 / 0.03)
    assert found.storage_bytes == pytest.approx(1e8)


def test_what_no_disk_gave_was_no_fetch() -> None:
    found = read({**STEADY, "cold": [0.040] * 3}, device=0.0)
    assert found.fetch is None and not found.cold


def test_a_difference_within_the_noise_is_not_significant() -> None:
    found = read(
        {"synthetic": [0.010, 0.030, 0.012, 0.035, 0.011], "warm": [0.013, 0.012, 0.034, 0.036, 0.012]}
    )
    assert not found.prep.significant
    assert name(found).kind == "none"


def test_one_disturbed_round_decides_nothing() -> None:
    steady = [0.010] * 5
    found = read({"synthetic": steady, "warm": [0.010, 0.010, 0.500, 0.010, 0.010]})
    assert not found.prep.significant


def test_on_a_busy_computer_quicker_rounds_are_compared() -> None:
    """Strangers keep all cores busy: they can only have made a round longer."""
    made = result(
        {"synthetic": [0.010, 0.010, 0.010, 0.080, 0.090], "warm": [0.030, 0.031, 0.030, 0.030, 0.200]}
    )
    for line in made["windows"]:
        line["machine"] = 4 * line["wall"]
    found = differential(made)
    assert found is not None and found.prep.significant
    assert found.prep.seconds == pytest.approx(0.020)
    assert "Other programs" in " ".join(found.notes)


def test_steps_of_one_call_are_counted() -> None:
    found = read(STEADY, steps_per_call=10)
    assert found.ideal == pytest.approx(0.001)
    assert found.timings["pull"].seconds == pytest.approx(0.010)  # batches, not calls


@pytest.mark.parametrize("missing", ["synthetic", "warm"])
def test_without_a_kind_that_is_needed_nothing_is_told(missing: str) -> None:
    assert differential(result({mode: rounds for mode, rounds in STEADY.items() if mode != missing})) is None


def test_steps_that_were_never_made_are_left_out() -> None:
    made = result(STEADY)
    made["windows"].append({"mode": "cold", "round": 0, "steps": 0, "first": 0.0})
    found = differential(made)
    assert found is not None and "cold" not in found.timings


# ---------------------------------------------------------------- fixes


def attempted(fixes: list[dict[str, Any]], times: Mapping[str, Sequence[float]], **more: Any) -> list[Any]:
    made = result({**STEADY, "cached": [0.011] * 3, **times}, fixes=fixes, base="warm", **more)
    found = differential(made)
    assert found is not None
    return judge_fixes(found, made)


def fix(name_: str, same: str | None = "order", **more: Any) -> dict[str, Any]:
    return {"name": name_, "edits": [], "parity": {"same": same, "batches": 4, "why": ""}, **more}


def test_prefetch_overlaps_step_and_preparation() -> None:
    """Ten milliseconds each, one after the other: side by side it takes ten."""
    (each,) = attempted([fix("prefetch")], {"base": [0.020] * 3, "fix prefetch": [0.011] * 3})
    assert each.predicted == pytest.approx(2.0)
    assert each.achieved == pytest.approx(0.020 / 0.011) and each.helped


def test_a_prediction_never_exceeds_what_the_cores_give() -> None:
    made = result({**STEADY, "base": [0.020] * 3}, fixes=[fix("prefetch")], base="warm", cores=1)
    for line in made["windows"]:
        line["cpu"] = line["machine"] = line["wall"] * 0.9
    found = differential(made)
    assert found is not None
    (each,) = judge_fixes(found, made)
    assert each.predicted == pytest.approx(1 / 0.9, rel=1e-3)


def test_mapping_is_divided_by_the_calls_at_once() -> None:
    nodes = [
        {"name": "Map", "s": 0.8, "n": 1, "inputs": []},
        {"name": "Batch", "s": 0.1, "n": 1, "inputs": []},
    ]
    times = {"pull": [0.090] * 3, "warm": [0.1] * 3, "base": [0.1] * 3, "fix parallel map": [0.030] * 3}
    pipeline = {"batches": 10, "nodes": nodes}
    (each,) = attempted([fix("parallel map", parallel=8)], times, pipeline=pipeline)
    assert each.predicted == pytest.approx(0.1 / 0.020)  # the step and ten milliseconds of all else


def test_nothing_is_claimed_of_what_was_not_measured() -> None:
    fixes = [fix("parallel map", parallel=8), fix("fewer threads"), fix("cache", above=["map", "batch"])]
    times = {"base": [0.020] * 3, **{f"fix {each['name']}": [0.020] * 3 for each in fixes}}
    assert [each.predicted for each in attempted(fixes, times)] == [None, None, None]


def test_a_cache_gives_what_batches_in_memory_gave() -> None:
    (each,) = attempted([fix("cache", above=["prefetch"])], {"base": [0.022] * 3, "fix cache": [0.011] * 3})
    assert each.predicted == pytest.approx(2.0) and each.achieved == pytest.approx(2.0)


def test_the_winner_leaves_the_batches_alone_and_is_the_simplest() -> None:
    fixes = [
        fix("quickest", "none"),
        fix("reordered", "examples"),
        {**fix("both"), "edits": [{"file": "a", "line": 1}, {"file": "a", "line": 2}]},
        {**fix("one"), "edits": [{"file": "a", "line": 1}]},
        fix("useless"),
    ]
    speeds = {"quickest": 0.002, "reordered": 0.005, "both": 0.0100, "one": 0.0101, "useless": 0.0199}
    times = {"base": [0.020] * 3, **{f"fix {key}": [value] * 3 for key, value in speeds.items()}}
    judged = attempted(fixes, times)
    assert [each.name for each in judged if not each.helped] == ["useless"]
    best = winner(judged)
    assert best is not None and best.name == "one"
    only = winner([each for each in judged if each.name in ("quickest", "useless")])
    assert only is None  # other batches are another training


# ---------------------------------------------------------------- files


CALLS_OF_ARRAYS = [
    {"call": "map", "num_parallel_calls": -1, "operations": ["GatherV2"], "elements": -2, "site": None},
    {"call": "zip", "operations": [], "elements": -2, "site": None},
]
"""Of `fit(x, y)`."""
OWN_CALL = {"call": "map", "num_parallel_calls": -1, "operations": [], "elements": 9, "site": ["a.py", 3]}


@pytest.mark.parametrize(
    ("calls", "why"),
    [(CALLS_OF_ARRAYS, "Keras makes"), (CALLS_OF_ARRAYS[1:], "in a library"), ([OWN_CALL], "parallel")],
)
def test_the_screen_says_why_nothing_could_be_tried(
    calls: list[dict[str, Any]], why: str, tmp_path: Path
) -> None:
    asked = result(STEADY, calls=calls, fixes=[])
    assert why in (untried_fixes(asked) or "")
    (tmp_path / "feeding.json").write_text(json.dumps(asked))
    same = Scratch(tmp_path, tmp_path)
    text = profile_text(scratch_run.read(tmp_path, "r", ("python",), {"reason": "completed"}, same).as_json())
    assert f"tried: nothing, because {untried_fixes(asked)}." in " ".join(text.split())


def test_a_command_that_failed_shows_its_last_lines(tmp_path: Path) -> None:
    (tmp_path / "output.log").write_text(
        "fine\norch: round 1 of 5\n\nTraceback\nValueError: no such column\n"
    )
    failed = {"reason": "failed", "detail": "The command ended with status 1."}
    found = scratch_run.read(tmp_path, "r", ("python",), failed, Scratch(tmp_path, tmp_path))
    assert found.failed and found.last_lines == ("fine", "Traceback", "ValueError: no such column")
    assert profile_text(found.as_json()).endswith("    Traceback\n    ValueError: no such column")


def test_a_fix_of_what_is_no_stall_helped_by_chance(tmp_path: Path) -> None:
    """Steps are as fast as those that never wait; what is quicker yet, unrest made."""
    even = {"synthetic": [0.020] * 3, "warm": [0.020] * 3, "pull": [0.001] * 3}
    times = {"base": [0.020] * 3, "fix cache": [0.015] * 3, "fix more cores": [0.010] * 3}
    asked = result({**even, **times}, fixes=[fix("cache"), {**fix("more cores"), "cores": 8}])
    found = differential(asked)
    assert found is not None
    judged = {each.name: each for each in judge_fixes(found, asked)}
    assert not judged["cache"].helped and judged["cache"].predicted == 1.0
    assert judged["more cores"].helped
    (tmp_path / "feeding.json").write_text(json.dumps(asked))
    same = Scratch(tmp_path, tmp_path)
    text = profile_text(scratch_run.read(tmp_path, "r", ("python",), {"reason": "completed"}, same).as_json())
    assert "1.33x: no stall to remove" in text


def test_input_holds_up_no_more_than_making_a_batch_takes() -> None:
    """A tenth of a second between two kinds of windows, and batches that take a millisecond: unrest."""
    found = read({"synthetic": [0.020] * 3, "warm": [0.120] * 3, "pull": [0.001] * 3})
    assert found.prep.seconds == pytest.approx(0.0015) and not found.stall.significant
    assert name(found).kind == "none" and name(found).remedy is None


def test_a_stall_that_is_hardly_more_than_its_noise_accuses_nobody() -> None:
    """About a seventh of a step, and nearly as much of unrest."""
    rounds = {"synthetic": [0.0100, 0.0100, 0.0100, 0.0100], "warm": [0.0109, 0.0109, 0.0123, 0.0123]}
    found = read({**rounds, "pull": [0.01] * 4})
    assert found.stall.significant and found.stall.share > 0.1
    assert name(found).kind == "none"
    sure = read({**rounds, "warm": [0.0116] * 4, "pull": [0.01] * 4})
    assert name(sure).kind != "none"


def test_what_keras_makes_of_python_objects_is_named_with_what_to_do() -> None:
    slow = {"synthetic": [0.002] * 3, "warm": [0.050] * 3, "pull": [0.050] * 3}
    given = {"source": "PyDataset", "source_name": "Pictures", "workers": 1, "processes": False}
    named = name(read(slow, source=given))
    assert named.kind == "generator" and "Pictures, a PyDataset, makes them in one thread" in named.words
    assert named.remedy and named.remedy.startswith("give Pictures workers")
    assert "Pictures" in (untried_fixes(result(slow, source=given, fixes=[])) or "")
    handed = {"source": "generator"}
    assert "generator that `fit` was given" in (untried_fixes(result(slow, source=handed, fixes=[])) or "")
    assert "do not wait" in (untried_fixes(result(slow, stalls=False, fixes=[])) or "")


def test_a_long_first_batch_and_cheap_calls_are_told_beside() -> None:
    nodes = [
        {"name": "Root", "n": 100, "s": 0.0, "inputs": [1]},
        {"name": "MapAndBatch", "n": 100, "s": 2.0, "inputs": [2]},
        {"name": "TensorSlice", "n": 51200, "s": 0.1, "inputs": []},
    ]
    calls = [{"call": "shuffle", "buffer_size": 5000, "elements": 5120, "operations": [], "site": None}]
    slow = {"synthetic": [0.002] * 3, "warm": [0.022] * 3, "pull": [0.022] * 3}
    made = result(slow, pipeline={"nodes": nodes, "batches": 100}, calls=calls, cardinality=10)
    for line in made["windows"]:
        line["first"] = 2.0
    found = differential(made)
    assert found is not None
    told = dict(name(found).findings)
    assert "90% of an epoch of 10 steps: shuffle(5,000) fills first" in told["first batch"]
    assert "called 512 times a batch, for 39 µs" in told["batch first"]
    nodes[1]["python"] = True
    assert "batch first" not in dict(name(read(slow, pipeline={"nodes": nodes, "batches": 100})).findings)


def test_what_keras_makes_of_arrays_is_named_by_what_it_does() -> None:
    """A map of the script's own that gathers is named as the map that it is."""
    slow = {**STEADY, "pull": [0.020] * 3}
    own = {**CALLS_OF_ARRAYS[0], "site": ["a.py", 3]}
    assert "Keras' own gathering of batches waits" in name(read(slow, calls=CALLS_OF_ARRAYS)).words
    assert "map(GatherV2) (a.py:3) waits" in name(read(slow, calls=[own, CALLS_OF_ARRAYS[1]])).words


def test_nothing_is_said_of_tries_that_nobody_asked_for_or_that_were_made() -> None:
    assert untried_fixes(result(STEADY, calls=CALLS_OF_ARRAYS)) is None
    assert untried_fixes(result(STEADY, calls=[OWN_CALL], fixes=[fix("prefetch")])) is None


def test_many_files_are_told_by_folder(tmp_path: Path) -> None:
    (tmp_path / "feeding.json").write_text(json.dumps(result(STEADY)))
    same = Scratch(tmp_path, tmp_path)
    told = scratch_run.read(tmp_path, "r", ("python",), {"reason": "completed"}, same).as_json()
    one = {"opens": 1, "reads": 2, "bytes": 1 << 20, "seconds": 0.5}
    few = [{**one, "path": f"/data/{number}"} for number in range(3)]
    assert "/data/2  1      2      1.0 MiB  0.50 s" in profile_text({**told, "files": few})
    many = [*({**one, "path": f"/data/{number}"} for number in range(40)), {**one, "path": "/more/x"}]
    text = profile_text({**told, "files": many})
    assert "/data (40 files)  40     80     40.0 MiB  20.00 s" in text and "/more (1 file)" in text
    assert "/data/3" not in text and "--json lists each file" in text


def test_reads_of_all_processes_are_added_up(tmp_path: Path) -> None:
    def table(*rows: tuple[str, int, int, int, int]) -> bytes:
        return b"".join(ROW.pack(path.encode(), *counts) for path, *counts in rows) + bytes(ROW.size)

    (tmp_path / "1.reads").write_bytes(table(("/data/a", 1, 10, 1000, 5_000_000), ("/lib/x.so", 1, 1, 9, 9)))
    (tmp_path / "2.reads").write_bytes(table(("/data/b", 2, 2, 5000, 0), ("/data/a", 1, 1, 24, 0)) + b"torn")
    packages = "/opt/env/lib/python3.12/site-packages/editable.pth"
    (tmp_path / "3.reads").write_bytes(table(("/data/net.pth", 1, 1, 7, 0), (packages, 1, 1, 9, 9)))
    found = [(each.path, each.opens, each.reads, each.bytes, each.seconds) for each in reads_of(tmp_path)]
    assert found == [
        *(("/data/b", 2, 2, 5000, 0.0), ("/data/a", 2, 11, 1024, 0.005)),
        ("/data/net.pth", 1, 1, 7, 0.0),
    ]
    assert reads_of(tmp_path / "absent") == []
