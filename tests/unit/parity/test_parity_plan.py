"""What is imposed for each difference, and what is said where nothing can be."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model.outcomes import Stage
from orchestrator.parity.changes import changes
from orchestrator.parity.intervention import Candidate, Intervention, Other
from orchestrator.parity.ladder import Finding
from orchestrator.parity.places import named_by_variables
from orchestrator.parity.plan import brings_about, candidates
from tests.unit.parity_runs import ENVIRONMENT

FACTS: dict[str, Any] = {
    **ENVIRONMENT,
    "cpu": {"count": 2, "flags": ["sse4_1", "avx", "avx2", "avx512f"]},
    "locale": {"decimal_point": ".", "categories": {}},
    "timezone": {"utc_offsets": [0, 0]},
    "cwd": "/a",
}


def facts(**changed: Any) -> dict[str, Any]:
    """The usual facts with section__name=value put in."""
    found = copy.deepcopy(FACTS)
    for key, value in changed.items():
        section, _, name = key.partition("__")
        found.setdefault(section, {})
        if name:
            found[section][name] = value
        else:
            found[section] = value
    return found


def at(stage: str, kind: str = "value", *, rounding: bool = False) -> Finding:
    return Finding(1, stage, "x", kind, "float32", None, 0, None, rounding, None)


def planned(theirs: dict[str, Any], stage: str = "activation", **other: Any) -> tuple[Candidate, ...]:
    """For side A with the usual facts, to resemble `theirs`."""
    found = changes(FACTS, theirs)
    return candidates(at(stage), found, "A", FACTS, Other(theirs, cores=4, **other))


def only(listed: tuple[Candidate, ...]) -> Candidate:
    differences = [each for each in listed if each.kind == "difference"]
    assert len(differences) == 1, [each.words for each in differences]
    return differences[0]


IMPOSABLE = {
    "a variable": ({"environment__TF_X": "1"}, Intervention(env={"TF_X": "1"})),
    "a variable that B lacks": ({"environment": {}}, Intervention(env={"LANG": None})),
    "oneDNN by its variable": (
        {"environment__TF_ENABLE_ONEDNN_OPTS": "0", "tensorflow__onednn": False},
        Intervention(env={"TF_ENABLE_ONEDNN_OPTS": "0"}),
    ),
    "oneDNN, wherever it comes from": (
        {"tensorflow__onednn": False},
        Intervention(env={"TF_ENABLE_ONEDNN_OPTS": "0"}),
    ),
    "threads": ({"tensorflow__intra_op_threads": 1}, Intervention(plan={"intra_op": 1})),
    "a processor of less": (
        {"cpu__flags": ["sse4_1", "avx", "avx2"]},
        Intervention(env={"ONEDNN_MAX_CPU_ISA": "AVX2", "OPENBLAS_CORETYPE": "Haswell"}),
    ),
    "a processor of much less": (
        {"cpu__flags": ["sse4_1"]},
        Intervention(env={"ONEDNN_MAX_CPU_ISA": "SSE41", "OPENBLAS_CORETYPE": "Nehalem"}),
    ),
    "determinism": ({"tensorflow__deterministic_ops": True}, Intervention(plan={"deterministic": True})),
    "precision": ({"keras__policy": "mixed_bfloat16"}, Intervention(plan={"policy": "mixed_bfloat16"})),
    "numbers of another width": ({"keras__floatx": "float64"}, Intervention(plan={"floatx": "float64"})),
    "TF32": ({"tensorflow__tf32": True}, Intervention(plan={"tf32": True})),
    "no graph": (
        {"models": [{**ENVIRONMENT["models"][0], "run_eagerly": True}]},
        Intervention(plan={"compile": {"run_eagerly": True}}),
    ),
    "a clock": ({"environment__TZ": "JST-9"}, Intervention(env={"TZ": "JST-9"})),
    "a clock that no variable sets": (
        {"timezone__utc_offsets": [32400, 32400]},
        Intervention(env={"TZ": "ORCH-9:00"}),
    ),
    "hashes": ({"environment__PYTHONHASHSEED": "7"}, Intervention(env={"PYTHONHASHSEED": "7"})),
    "arguments": ({"argv": ["--epochs", "3"]}, Intervention(arguments=("--epochs", "3"))),
}


@pytest.mark.parametrize("what", IMPOSABLE)
def test_a_difference_is_imposed(what: str) -> None:
    changed, wanted = IMPOSABLE[what]
    assert only(planned(facts(**changed))).imposed == wanted


def test_fewer_cores_are_imposed_with_the_threads_that_they_bring() -> None:
    found = {each.topic: each.imposed for each in planned(facts(cpu__count=1), "batch")}
    assert found["cores"] == Intervention(plan={"cpus": 1})


def test_a_language_is_imposed_by_all_variables_that_make_it() -> None:
    theirs = facts(locale__decimal_point=",", variables={"LC_ALL": "de_DE.UTF-8"})
    imposed = [each.imposed for each in planned(theirs, "batch") if each.topic == "locale"]
    assert imposed and all(each and each.env["LC_ALL"] == "de_DE.UTF-8" for each in imposed)


@pytest.mark.parametrize("stage", list(Stage))
def test_a_variable_of_a_library_of_numbers_is_tried_at_every_stage(stage: Stage) -> None:
    """NumPy prepares batches with it, before any step."""
    candidate = only(planned(facts(environment__OPENBLAS_CORETYPE="Nehalem"), stage))
    assert candidate.imposed == Intervention(env={"OPENBLAS_CORETYPE": "Nehalem"})


IMPOSSIBLE = {
    "more of a processor": ({"cpu__flags": [*FACTS["cpu"]["flags"], "avx512_vnni"]}, "can only use fewer"),
    "more cores": ({"cpu__count": 64}, "has 64 cores, and this computer has 4"),
    "a GPU": ({"tensorflow__devices": ["CPU:0", "GPU:0"]}, "does not have the other side's devices"),
    "code that is gone": ({"modules": {"train.py": "b" * 64}}, "code is not on this computer"),
    "packages": ({"versions__keras": "3.0.0"}, "packages are not on this computer"),
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_what_cannot_be_imposed_is_listed_with_the_reason(what: str) -> None:
    changed, why = IMPOSSIBLE[what]
    assert any(each.imposed is None and why in each.why for each in planned(facts(**changed), "batch"))


def test_other_packages_are_those_of_the_other_interpreter() -> None:
    found = only(planned(facts(versions__keras="3.0.0"), python="/b/bin/python"))
    assert found.imposed == Intervention(python="/b/bin/python")
    assert "keras 3.15.1 in A and 3.0.0 in B" in found.words


def test_other_packages_come_last_for_they_cost_most() -> None:
    theirs = facts(versions__keras="3.0.0", environment__TF_X="1", cwd="/b")
    topics = [
        each.topic for each in planned(theirs, "batch", python="/b/bin/python") if each.kind == "difference"
    ]
    assert topics == ["environment", "folder", "versions"]


def test_code_is_taken_from_the_other_folder_where_it_is_still_the_same(tmp_path: Path) -> None:
    module = tmp_path / "train.py"
    module.write_text("x = 1\n")
    digest = hashlib.sha256(module.read_bytes()).hexdigest()
    found = only(planned(facts(modules={"train.py": digest}), folder=tmp_path))
    assert found.imposed == Intervention(files={"train.py": module})
    module.write_text("x = 2\n")
    found = only(planned(facts(modules={"train.py": digest}), folder=tmp_path))
    assert found.imposed is None and "not on this computer any more" in found.why


def test_what_was_kept_of_a_run_stands_for_what_was_edited_since(tmp_path: Path) -> None:
    code, data = b"x = 1", b"theirs"
    for content in (code, data):
        kept(tmp_path, hashlib.sha256(content).hexdigest(), content)
    digest = hashlib.sha256(code).hexdigest()
    found = only(planned(facts(modules={"train.py": digest}), kept=tmp_path))
    assert found.imposed == Intervention(files={"train.py": tmp_path / digest})
    mine, theirs = (reading(file("1.csv", "/gone/1.csv", content)) for content in (b"mine", data))
    (change,) = changes(mine, theirs)
    (candidate,) = (
        each
        for each in candidates(at("files", "content"), [change], "A", mine, Other(theirs, kept=tmp_path))
        if each.kind == "difference"
    )
    assert candidate.imposed == Intervention(files={"1.csv": tmp_path / hashlib.sha256(data).hexdigest()})


def test_the_path_of_a_folder_is_imposed_without_what_is_in_it(tmp_path: Path) -> None:
    assert only(planned(facts(cwd=str(tmp_path)), "batch", folder=tmp_path)).imposed == Intervention(
        path=tmp_path
    )


def test_the_computers_name_is_a_difference_where_the_code_asks_for_it() -> None:
    mine, theirs = ({**FACTS, "host": {"name": name, "asked": False}} for name in ("one", "two"))
    assert changes(mine, theirs) == ()
    (change,) = changes(mine, {**theirs, "host": {"name": "two", "asked": True}})
    (candidate,) = (
        each
        for each in candidates(at("batch"), [change], "A", mine, Other(theirs))
        if each.kind == "difference"
    )
    assert candidate.imposed == Intervention(plan={"host": "two"})
    assert "one in A and two in B" in candidate.words


def test_threads_of_tensorflow_are_no_difference_on_jax() -> None:
    mine, theirs = ({**FACTS, "keras": {"backend": "jax"}, "cpu": {"count": count}} for count in (2, 4))
    assert [change.topic for change in changes(mine, theirs)] == ["cores"]


def file(name: str, path: Path | str, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    return {"name": name, "path": str(path), "bytes": len(content), "sha256": digest, "whole": True}


def reading(*entries: dict[str, Any]) -> dict[str, Any]:
    return facts(files={"list": list(entries)})


def of_files(mine: dict[str, Any], theirs: dict[str, Any]) -> list[Candidate]:
    found = candidates(at("files", "content"), changes(mine, theirs), "A", mine, Other(theirs))
    return [each for each in found if each.kind == "difference"]


def kept(folder: Path, name: str, content: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    return folder / name


@pytest.mark.parametrize(
    ("name", "place"),
    [("data/1.csv", "data/1.csv"), ("--data/1.csv", "/mine/1.csv"), ("/mine/1.csv", "/mine/1.csv")],
)
def test_a_file_goes_where_this_side_reads_it(tmp_path: Path, name: str, place: str) -> None:
    theirs = kept(tmp_path, "1.csv", b"theirs")
    found = of_files(reading(file(name, "/mine/1.csv", b"mine")), reading(file(name, theirs, b"theirs")))
    assert [each.imposed for each in found] == [Intervention(files={place: theirs})]


def test_a_file_of_the_other_side_alone_goes_beside_its_neighbours(tmp_path: Path) -> None:
    both = file("--data/1.csv", "/mine/1.csv", b"same")
    theirs = kept(tmp_path, "2.csv", b"more")
    found = of_files(reading(both), reading(both, file("--data/2.csv", theirs, b"more")))
    assert [each.imposed for each in found] == [Intervention(files={"/mine/2.csv": theirs})]
    found = of_files(reading(both, file("--data/2.csv", theirs, b"more")), reading(both))
    assert [each.imposed for each in found] == [Intervention(files={str(theirs): None})]


def test_what_lies_where_variables_lead_comes_before_them(tmp_path: Path) -> None:
    def side(folder: Path, *names: str) -> dict[str, Any]:
        entries = [file(str(kept(folder, name, b"x")), folder / name, folder.name.encode()) for name in names]
        for entry in entries:
            kept(folder, Path(entry["name"]).name, folder.name.encode())
        return named_by_variables({**reading(*entries), "variables": {"DATA": str(folder)}})

    mine, theirs = side(tmp_path / "one", "1.csv", "2.csv"), side(tmp_path / "two", "1.csv", "2.csv")
    assert [entry["name"] for entry in mine["files"]["list"]] == ["$DATA/1.csv", "$DATA/2.csv"]
    found = of_files(mine, theirs)
    assert [each.topic for each in found] == ["data", "data", "paths"]
    assert found[0].imposed == Intervention(files={str(tmp_path / "one/1.csv"): tmp_path / "two/1.csv"})
    assert found[2].imposed == Intervention(env={"DATA": str(tmp_path / "two")})


def test_a_file_that_changed_since_is_not_imposed(tmp_path: Path) -> None:
    theirs = kept(tmp_path, "1.csv", b"newer!")
    found = of_files(
        reading(file("1.csv", "/mine/1.csv", b"mine")), reading(file("1.csv", theirs, b"theirs"))
    )
    assert [each.why for each in found] == [
        "the file as the other side had it is not on this computer any more"
    ]


def test_many_files_are_tried_as_one_and_told_apart_afterwards(tmp_path: Path) -> None:
    mine = reading(*(file(f"{n}.csv", f"/mine/{n}.csv", b"mine") for n in range(9)))
    theirs = reading(*(file(f"{n}.csv", kept(tmp_path, f"{n}.csv", b"theirs"), b"theirs") for n in range(9)))
    (found,) = of_files(mine, theirs)
    assert len(found.parts) == 9 and found.imposed is not None and len(found.imposed.files) == 9


def test_an_order_is_imposed_by_listing_and_by_time(tmp_path: Path) -> None:
    one, two = kept(tmp_path, "1.csv", b"1"), kept(tmp_path, "2.csv", b"2")
    os.utime(one, (1000, 1000))
    os.utime(two, (500, 500))
    first, second = file("d/1.csv", one, b"1"), file("d/2.csv", two, b"2")
    (found,) = of_files(reading(first, second), reading(second, first))
    assert found.imposed == Intervention(
        plan={"listing": ["2.csv", "1.csv"]}, times={"d/2.csv": 500.0, "d/1.csv": 1000.0}
    )


@pytest.mark.parametrize(
    ("stage", "names"),
    [
        ("batch", [{"ORCH_IMPOSE_BATCH"}, {"ORCH_IMPOSE_BATCH", "ORCH_IMPOSE_WEIGHTS"}]),
        ("initial", [{"ORCH_IMPOSE_WEIGHTS"}, {"ORCH_IMPOSE_BATCH", "ORCH_IMPOSE_WEIGHTS"}]),
        ("gradient", []),
    ],
)
def test_the_other_sides_tensors_are_replayed_where_they_come_in(
    stage: str, names: list[set[str]], tmp_path: Path
) -> None:
    replays = [each for each in planned(facts(), stage, observe=tmp_path) if each.kind == "replay"]
    assert [set(each.imposed.env) for each in replays if each.imposed] == names


def test_a_rounding_difference_that_nothing_explains_is_probed() -> None:
    found = candidates(at("gradient", rounding=True), (), "A", FACTS, Other(FACTS))
    assert [each.kind for each in found] == ["probe"] * len(found)
    assert {each.topic for each in found} >= {"threads", "isa"}


def test_what_seldom_acts_on_records_is_tried_all_the_same() -> None:
    found = only(planned(facts(environment__TF_NUM_INTRAOP_THREADS="1"), "batch"))
    assert found.imposed


def test_a_path_that_is_not_written_out_names_its_files_all_the_same() -> None:
    files = {"list": [{"name": "/data/v1/x.npy", "path": "/data/v1/x.npy"}]}
    found = named_by_variables({"variables": {"DATA": "/home/me/../../data/v1"}, "files": files})
    assert found["files"]["list"][0]["name"] == "$DATA/x.npy"


def test_files_are_given_the_other_sides_times_as_they_were_recorded() -> None:
    entry = {"name": "x.npy", "path": "/gone/x.npy", "bytes": 1, "sha256": "1", "changed": 1000.0}
    mine, theirs = facts(files__list=[{**entry, "changed": 0.5}]), facts(files__list=[entry])
    (probe,) = [e for e in candidates(at("initial"), (), "B", mine, Other(theirs)) if e.topic == "times"]
    assert probe.kind == "probe" and probe.imposed == Intervention(times={"x.npy": 1000.0})
    assert probe.words == (
        "when x.npy was last changed: 1970-01-01 00:16:40.000 in A and 1970-01-01 00:00:00.500 in B"
    )
    assert not [e for e in candidates(at("initial"), (), "B", mine, Other(mine)) if e.topic == "times"]


def test_a_file_that_is_missing_is_put_where_the_other_side_has_it(tmp_path: Path) -> None:
    """In the working folder, not in the program's, which may be another."""
    (tmp_path / "x.npy").write_bytes(b"1")
    entry = {"name": "x.npy", "path": str(tmp_path / "x.npy"), "bytes": 1, "whole": False}
    found = only(planned(facts(files__list=[entry]), "initial", folder=tmp_path))
    assert found.imposed == Intervention(files={"/a/x.npy": tmp_path / "x.npy"})


@pytest.mark.parametrize(("had", "imposed"), [("float64", {"floatx": "float64"}), ("float32", None)])
def test_what_a_file_of_keras_sets_is_imposed_where_it_acted(
    tmp_path: Path, had: str, imposed: dict[str, str] | None
) -> None:
    """Keras reads the file while it is imported, before anything can be put in its place."""

    def side(name: str, floatx: str, acts: str) -> dict[str, Any]:
        path = tmp_path / name / "keras.json"
        path.parent.mkdir()
        path.write_text(json.dumps({"floatx": floatx, "epsilon": 1e-07}))
        entry = {
            "name": "~/.keras/keras.json",
            "path": str(path),
            "bytes": path.stat().st_size,
            "way": "python",
        }
        return {
            **facts(),
            "keras": {"floatx": acts, "image_data_format": "channels_last"},
            "files": {"list": [{**entry, "sha256": name}]},
        }

    a, b = side("a", "float32", "float32"), side("b", "float64", had)
    found = candidates(at("batch"), changes(a, b), "A", a, Other(b))
    file = next(each for each in found if each.topic == "keras_json")
    assert (file.imposed.plan if file.imposed else None) == imposed


def test_a_file_of_keras_on_one_side_alone_keeps_no_other_cause_from_being_confirmed() -> None:
    """Keras writes the file where there is none: a new machine reads none the first time."""
    entry = {"name": "~/.keras/keras.json", "path": "/gone/keras.json", "bytes": 9, "sha256": "a"}
    a, b = {**facts(), "files": {"list": [entry]}}, facts()
    found = candidates(at("gradient"), changes(a, b), "A", a, Other(b))
    file = next(each for each in found if each.topic == "keras_json")
    threads = Candidate("threads", "", "", Intervention())
    assert file.imposed is None and not brings_about(file, threads)
    assert brings_about(file, replace(threads, topic="policy"))
