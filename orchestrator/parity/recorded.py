"""Compare two runs without recorded tensors by their records. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.model import RecordedFact, Verdict
from orchestrator.model.counted import counted, few
from orchestrator.model.outcomes import Conclusion

Record = Mapping[str, Any]

_FACTS = (
    ("command", ("command",)),
    ("code", ("code", "digest")),
    ("data", ("data", "digest")),
    ("packages", ("stack", "digest")),
    ("Python", ("stack", "python")),
    ("machine", ("machine", "instance_type")),
    ("end", ("exit", "reason")),
)
"""Facts that are compared by value: name -> keys in the record."""

ANOTHER_JOB = frozenset(("command", "code", "data"))
"""If these differ, the runs are different jobs. Packages and machines are not among them."""

_RECORD = (
    "Record tensors to compare them, of TensorFlow and Keras: orch train --local-parity, or orch record -- "
    "python train.py on this computer."
)


def compare_records(
    a: Record,
    b: Record,
    *,
    results: Conclusion = Conclusion.NOT_COMPARED,
    same_content: Collection[str] = (),
    changed_code: Sequence[str] = (),
    changed_packages: Sequence[str] = (),
) -> Verdict:
    """Return the verdict on two `run.json` objects: DIVERGENT if command, code, data or results differ,
    IDENTICAL if two runs of the same job have the same results, else NOT COMPARED.

    `results`: what comparing their files and metrics found. Equal ones prove nothing unless command, code,
    data, packages and end are known to be the same. `same_content`: paths of results whose bytes differ and
    whose content is the same, such as models that contain the time of saving. `changed_code`: the paths in
    which the code of the two differs, and `changed_packages`: name and both versions of each package that
    differs, if they are known. `recorded` contains every fact.
    """
    facts = (*_values(a, b), *_metrics(a, b), *_results(a, b, same_content))
    differing = [fact for fact in facts if fact.equal is False]
    decisive = [fact for fact in differing if fact.name in ANOTHER_JOB or fact.decisive]
    where = f" The code differs in {few(changed_code)}." if changed_code else ""
    where += f" Packages that differ: {few(changed_packages)}." if changed_packages else ""
    said = f"No tensors of both runs were recorded. {_said(facts)}{where}"
    if decisive or results == Conclusion.DIVERGENT:
        return Verdict(Conclusion.DIVERGENT, detail=said, fix=_fix(decisive), recorded=facts)
    if results == Conclusion.IDENTICAL and _is_same_job(a, b, facts):
        return Verdict(Conclusion.IDENTICAL, detail=said, recorded=facts)
    return Verdict(Conclusion.NOT_COMPARED, detail=said, fix=_RECORD, recorded=facts)


def _is_same_job(a: Record, b: Record, facts: Sequence[RecordedFact]) -> bool:
    """Whether both records say the same of everything that a result depends on, and of how the run ended.
    Runs that had no data are equal in them, and packages are also equal if their lock is.
    """
    equal = {fact.name: fact.equal for fact in facts}
    no_data = all(_at(side, ("data", "digest")) is None for side in (a, b))
    locks = [_at(side, ("stack", "lock")) for side in (a, b)]
    packages = equal["packages"] or (locks[0] is not None and locks[0] == locks[1])
    data = equal["data"] or no_data
    return all((equal["command"], equal["code"], data, packages, equal["end"]))


def _said(facts: tuple[RecordedFact, ...]) -> str:
    groups = {
        "Equal": [fact.name for fact in facts if fact.equal],
        "Different": [fact.name for fact in facts if fact.equal is False],
        "Not recorded of both": [fact.name for fact in facts if fact.equal is None],
    }
    return " ".join(f"{words}: {', '.join(names)}." for words, names in groups.items() if names)


def _fix(decisive: list[RecordedFact]) -> str:
    job = [fact.name for fact in decisive if fact.name in ANOTHER_JOB]
    return f"Give both runs the same {' and '.join(job)}. {_RECORD}" if job else _RECORD


def _values(a: Record, b: Record) -> Iterator[RecordedFact]:
    for name, path in _FACTS:
        left, right = (_at(side, path) for side in (a, b))
        equal = left == right if left is not None and right is not None else None
        yield RecordedFact(name, _shown(left), _shown(right), equal)


def _at(record: Record, path: tuple[str, ...]) -> Any:
    value: Any = record
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _shown(value: Any) -> str | None:
    if value is None:
        return None
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text[:12] if len(text) == 64 and not text.strip("0123456789abcdef") else text


def _metrics(a: Record, b: Record) -> Iterator[RecordedFact]:
    left, right = (side.get("metrics") or {} for side in (a, b))
    if not left and not right:
        yield RecordedFact("metrics", None, None, None)
    for name in sorted({*left, *right}):
        one, other = left.get(name), right.get(name)
        equal = repr(one) == repr(other) if name in left and name in right else None
        yield RecordedFact(f"metric {name}", _number(one), _number(other), equal, decisive=True)


def _number(value: Any) -> str | None:
    return None if value is None else repr(value)


def _results(a: Record, b: Record, same_content: Collection[str]) -> Iterator[RecordedFact]:
    """Return the files that both runs wrote. Different bytes prove nothing: model files and logs contain
    times.
    """
    left, right = ({each["path"]: each["sha256"] for each in side.get("artifacts") or ()} for side in (a, b))
    shared = sorted(path for path in left if path in right)
    equal = [path for path in shared if left[path] == right[path] or path in same_content]
    if shared:
        what = "content" if any(path in same_content for path in shared) else "bytes"
        words = f"{len(equal)} of {counted(len(shared), 'file')} of the same name: the same {what}"
        yield RecordedFact("results", words, words, len(equal) == len(shared))
