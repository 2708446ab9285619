"""Lint over files together: notebooks, lists of packages, modules of one program, silences, settings."""

from __future__ import annotations

import json

import pytest

from orchestrator.lint import RULES, Config, Severity, Surroundings, Unknown, check, from_pyproject

SEED = "import keras\nkeras.utils.set_random_seed(1)\n"
TRAIN = "import keras\nmodel = keras.Sequential([keras.layers.Dense(1)])\nmodel.fit(x, y, epochs=1)\n"
DETERMINISTIC = Surroundings(variables=frozenset({"TF_DETERMINISTIC_OPS"}))

HASH = "--hash=sha256:" + "a" * 64


def rules(texts: dict[str, str], **options: object) -> list[tuple[str, int, str]]:
    """(path, line, rule) of every finding."""
    return [(f.path, f.line, f.rule) for f in check(texts, **options).findings]  # type: ignore[arg-type]


def notebook(*cells: str | list[str]) -> str:
    listed = [{"cell_type": "code", "source": cell} for cell in cells]
    return json.dumps({"nbformat": 4, "cells": [{"cell_type": "markdown", "source": "# Title"}, *listed]})


def test_a_notebook_is_one_program_with_cells() -> None:
    cells: list[str | list[str]] = [
        ["%matplotlib inline\n", "import os\n", "!pip install numpy\n"],
        "names = os.listdir('data')\nfor name in names:\n    show(name)",
        "import numpy as np\nx = np.load('/home/ann/x.npy')",
    ]
    found = check({"a.ipynb": notebook(*cells)}).findings
    places = [(each.cell, each.line, each.column, each.rule) for each in found]
    assert places == [(2, 3, 14, "ORC801"), (3, 1, 9, "ORC401"), (4, 2, 13, "ORC101")]
    assert found[2].place == "a.ipynb:cell 4:2:13"


def test_cells_that_are_no_python_do_not_hide_the_others() -> None:
    cells: list[str | list[str]] = [
        "%%bash\nwget https://example.org/x",
        "def broken(:\n  pass",
        "import os\nfirst = os.listdir('d')[0]",
    ]
    found = rules({"a.ipynb": notebook(*cells)})
    assert {("a.ipynb", 2, "ORC401"), ("a.ipynb", 2, "ORC812")} <= set(found)
    assert [rule for *_, rule in found].count("ORC901") == 1


def test_what_ipython_alone_understands_is_no_fault() -> None:
    cells: list[str | list[str]] = [
        "names = !ls data | head -3\nwhen = %timeit -o f()\n?names\nnames??\n!pip install \\\n  keras==3.6.0",
        'share = ("%d of %d"\n  % (1, 2))\ntext = """\n%not a magic\n!nor this\n"""\nprint(share, text)',
        "import os\nfirst = os.listdir('d')[0]",
    ]
    assert rules({"a.ipynb": notebook(*cells)}) == [("a.ipynb", 2, "ORC401")]


def test_a_list_that_was_compiled_is_judged_by_what_came_of_it() -> None:
    loose = {"requirements.in": "keras\n"}
    assert rules(loose) == [("requirements.in", 1, "ORC801")]
    assert rules({**loose, "requirements.txt": "keras==3.6.0\n"}) == []


def test_a_silence_may_stand_where_a_formatter_puts_it() -> None:
    text = "import os\nnames = os.listdir(\n    'd'\n)  # orch: ignore[ORC401]\nfirst = names[0]\n"
    assert rules({"train.py": text}) == []
    assert rules({"train.py": text.replace("ORC401", "ORC101")}) == [("train.py", 2, "ORC401")]


def test_bytes_that_are_not_utf_8_are_said_where_no_encoding_is_named() -> None:
    text = b"# gr\xf6\xdfe\nimport os\nfirst = os.listdir('d')[0]\n".decode("utf-8", "surrogateescape")
    assert rules({"train.py": text}) == [("train.py", 1, "ORC902")]
    assert rules({"train.py": f"# -*- coding: latin-1 -*-\n{text}"}) == [("train.py", 4, "ORC401")]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"cells": 3}'])
def test_what_is_no_notebook_is_said(text: str) -> None:
    assert rules({"a.ipynb": text}) == [("a.ipynb", 1, "ORC902")]


def test_a_seed_in_another_module_counts() -> None:
    files = {"train.py": f"import tools.setup\n{TRAIN}", "tools/setup.py": SEED}
    assert rules(files, surroundings=DETERMINISTIC) == []
    assert [rule for *_, rule in rules({"train.py": TRAIN})] == ["ORC301"]
    apart = {"train.py": TRAIN, "other.py": SEED}
    assert ("train.py", 2, "ORC301") in rules(apart, surroundings=DETERMINISTIC)


def test_only_what_is_asked_for_is_reported() -> None:
    files = {"a.py": "import b\n", "b.py": "import os\nfor n in os.listdir('d'):\n    use(n)\n"}
    assert rules(files, only=["a.py"]) == []
    assert check(files, only=["a.py"]).files == 1


def test_two_files_that_scale_differently() -> None:
    files = {
        "train.py": "x = images / 255.0\n",
        "serve.py": "x = images / 127.5\n",
    }
    assert ("train.py", 1, "ORC504") in rules(files) or ("serve.py", 1, "ORC504") in rules(files)
    assert rules({**files, "serve.py": files["train.py"]}) == []


def test_two_files_that_scale_by_other_classes() -> None:
    fit = "from sklearn.preprocessing import {0}\nimport joblib\ns = {0}()\ns.fit(x)\njoblib.dump(s, 's')\n"
    files = {"train.py": fit.format("StandardScaler"), "serve.py": fit.format("MinMaxScaler")}
    assert {rule for *_, rule in rules(files)} == {"ORC503"}


def test_mixed_precision_in_one_of_two_scripts() -> None:
    policy = f"{SEED}keras.mixed_precision.set_global_policy('mixed_float16')\n{TRAIN}"
    found = rules({"a.py": policy, "b.py": f"{SEED}{TRAIN}"}, surroundings=DETERMINISTIC)
    assert found == [("a.py", 3, "ORC604")]


def test_one_package_at_two_versions() -> None:
    files = {"requirements.txt": "numpy==1.26.4\n", "gpu/requirements.txt": "numpy==2.1.3\n"}
    assert [rule for *_, rule in rules(files)] == ["ORC802"]
    marked = "numpy==1.26.4; python_version < '3.10'\nnumpy==2.1.3; python_version >= '3.10'\n"
    assert rules({"requirements.txt": marked}) == []


@pytest.mark.parametrize(
    ("name", "wanted", "stale"),
    [
        ("requirements.txt", "lightgbm==4.3.0\n", True),
        ("requirements.in", "lightgbm<4.6\n", True),
        ("requirements.txt", "lightgbm~=4.5\npip\n", False),
        ("requirements.txt", "LightGBM\n", False),
        ("requirements.txt", "lightgbm==4.3.0; python_version < '3.9'\n", False),
        ("requirements.txt", "pandas>=2\n", True),
        ("requirements-dev.txt", "pytest>=8\n", False),
        ("pyproject.toml", '[project]\ndependencies = ["lightgbm>=5"]\n', True),
        ("pyproject.toml", '[project]\ndependencies = ["pandas"]\n', False),
        ("other/requirements.txt", "lightgbm==4.3.0\n", False),
    ],
)
def test_a_list_that_its_lock_does_not_fit(name: str, wanted: str, stale: bool) -> None:
    found = rules({name: wanted, "requirements.lock": f"lightgbm==4.6.0 {HASH}\n"})
    assert [rule for *_, rule in found if rule == "ORC805"] == ["ORC805"] * stale


def test_a_lock_of_several_versions_fits_if_one_does() -> None:
    lock = f"numpy==1.26.4 ; python_version < '3.11' {HASH}\nnumpy==2.1.3 ; python_version >= '3.11' {HASH}\n"
    fits = {"requirements.txt": "numpy>=2\n", "requirements.lock": lock}
    assert [rule for *_, rule in rules(fits) if rule == "ORC805"] == []


def test_a_gpu_needs_cuda_from_somewhere() -> None:
    wanted = Surroundings(gpu=True)
    assert rules({"requirements.txt": "tensorflow==2.19.1\n"}) == []
    assert rules({"requirements.txt": "tensorflow==2.19.1\n"}, surroundings=wanted) == [
        ("requirements.txt", 1, "ORC803")
    ]
    assert rules({"requirements.txt": "tensorflow[and-cuda]==2.19.1\n"}, surroundings=wanted) == []


def test_locks_are_read_for_cuda_too() -> None:
    """A compiled lock has no extras: its nvidia-* pins tell."""
    wanted = Surroundings(gpu=True)
    plain, cuda = f"tensorflow==2.21.0 {HASH}\n", f"nvidia-cudnn-cu12==9.1 {HASH}\n"
    found = [("requirements.lock", 1, "ORC803")]
    assert rules({"requirements.lock": plain}, surroundings=wanted) == found
    assert rules({"requirements.lock": plain}) == []
    for name in ("requirements.lock", "requirements.txt"):
        assert rules({name: plain + cuda}, surroundings=wanted) == []
    beside = {"requirements.lock": plain, "requirements-gpu.lock": plain + cuda}
    assert rules(beside, surroundings=wanted) == []
    elsewhere = {"requirements.lock": plain, "gpu/requirements.lock": plain + cuda}
    assert rules(elsewhere, surroundings=wanted) == found
    for name, table in (("uv.lock", "package"), ("pylock.toml", "packages")):
        text = f'version = 1\n\n[[{table}]]\nname = "tensorflow-cpu"\nversion = "2.21.0"\n'
        assert rules({name: text}, surroundings=wanted) == [(name, 4, "ORC803")]


@pytest.mark.parametrize(
    ("path", "text", "lines"),
    [
        ("requirements.txt", "# tools\ntensorflow\nnumpy==2.1.3\nkeras>=3\n-r base.txt\n", [2, 4]),
        ("requirements-dev.txt", "pytest\n", [1]),
        ("requirements/gpu.txt", "keras==3.*\n", [1]),
        ("requirements.txt", "a @ git+https://a.org/a.git\nb @ git+https://a.org/b@0f0f0f0\n", [1]),
        ("environment.yml", "dependencies:\n- python=3.11\n- numpy\n- pip:\n  - keras>=3\n", [3, 5]),
        ("environment.yaml", "dependencies:\n  - numpy=1.26.4\n  - conda-forge::scipy\n", [3]),
        ("pyproject.toml", '[project]\ndependencies = [\n "numpy",\n "keras==3.5.0",\n]\n', [3]),
        ("pyproject.toml", '[project.optional-dependencies]\ngpu = [\n "numpy<3",\n]\n', [3]),
        ("pyproject.toml", '[tool.poetry.dependencies]\npython = "^3.10"\nnumpy = "^2"\na = "1.14.1"\n', [3]),
        ("setup.py", "from setuptools import setup\nsetup(install_requires=[\n 'a>=1',\n 'b==1',\n])\n", [3]),
        ("Dockerfile", "FROM a:1@sha256:0\nRUN pip install --no-cache-dir \\\n    numpy a==1\n", [2]),
        ("setup.sh", "pip3 install -r requirements.txt\npip install numpy\n", [2]),
    ],
)  # fmt: skip
def test_loose_packages_wherever_they_are_listed(path: str, text: str, lines: list[int]) -> None:
    assert [(line, rule) for _, line, rule in rules({path: text})] == [(line, "ORC801") for line in lines]


@pytest.mark.parametrize("lock", ["uv.lock", "requirements.lock", "pylock.toml"])
def test_a_lock_beside_a_list_pins_it(lock: str) -> None:
    assert rules({"pyproject.toml": '[project]\ndependencies = ["numpy"]\n'}, neighbours=[lock]) == []


# ---------------------------------------------------------------- silences and settings

LISTED = "import os\nfirst = os.listdir('d')[0]"


@pytest.mark.parametrize(
    "comment",
    [
        "# orch: ignore[ORC401]",
        "# orch: ignore[unsorted-listing] one file",
        "# orch: ignore",
        "#orch: ignore[ORC4, ORC1]",
    ],
)
def test_a_finding_is_silenced_on_its_line(comment: str) -> None:
    found = check({"a.py": f"{LISTED}  {comment}\n"})
    assert (found.findings, found.silenced) == ((), 1)


def test_a_comment_of_its_own_speaks_of_the_next_line() -> None:
    code = "import os\n# orch: ignore[ORC401] one file\n\na = os.listdir('d')[0]\nb = os.listdir('d')[-1]\n"
    assert rules({"a.py": code}) == [("a.py", 5, "ORC401")]


def test_other_rules_and_texts_silence_nothing() -> None:
    assert rules({"a.py": f"{LISTED}  # orch: ignore[ORC101]\n"}) == [("a.py", 2, "ORC401")]
    quoted = "import os\nx = '# orch: ignore'; first = os.listdir('d')[0]\n"
    assert rules({"a.py": quoted}) == [("a.py", 2, "ORC401")]


def test_a_silence_of_no_rule_is_told_and_cannot_be_silenced() -> None:
    found = rules({"a.py": "x = 1  # orch: ignore[ORC999, ORC904]\n"})
    assert found == [("a.py", 1, "ORC904")]


def test_silences_in_requirements() -> None:
    assert rules({"requirements.txt": "numpy  # orch: ignore[ORC801]\n"}) == []


def test_settings_choose_rules_and_files() -> None:
    files = {"a.py": f"{LISTED}\nopen('/home/ann/x', 'rb')\n", "old/b.py": LISTED}
    settings = from_pyproject(
        '[tool.orch.lint]\nignore = ["absolute-path"]\nexclude = ["old"]\nstrict = true\n', RULES
    )
    assert settings.strict and rules(files, config=settings) == [("a.py", 2, "ORC401")]
    assert rules(files, config=Config(select=("ORC1",))) == [("a.py", 3, "ORC101")]
    spared = Config(per_file={"old/*": ("ORC4",)})
    assert [path for path, *_ in rules(files, config=spared)] == ["a.py", "a.py"]


@pytest.mark.parametrize(
    "text",
    ["ignore = ['ORC999']", "rules = []", "ignore = 'a'", "strict = 'yes'", "per-file-ignores = 3", "["],
)
def test_settings_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(Unknown):
        from_pyproject(f"[tool.orch.lint]\n{text}", RULES)


# ---------------------------------------------------------------- whatever is given


@pytest.mark.parametrize(
    "text",
    ["", "\x00", "\ufeffx = 1\n", "def f(:\n", "(" * 500, "x = " + "-" * 3000 + "1", "# coding: latin-1\n",
     "print 'hello'\n", "match x:\n    case 1: pass\n", "async def f():\n    async for x in y: await z\n",
     "x: int\n" * 3, "f'{a!r:>{w}}'", "@a.b\nclass C(D, metaclass=E): x = y = lambda *a, **k: [*a]\n"],
)  # fmt: skip
def test_no_text_is_an_error_of_lint(text: str) -> None:
    found = check({"a.py": text})
    assert all(each.rule in ("ORC901", "ORC902") for each in found.findings)


def test_broken_python_is_an_error_at_its_line_and_the_rest_is_checked() -> None:
    found = check({"a.py": f"{LISTED}\ndef f(:\n    pass\n"}).findings
    assert [(each.line, each.rule, each.severity) for each in found] == [
        (2, "ORC401", Severity.WARNING),
        (3, "ORC901", Severity.ERROR),
    ]


def test_what_another_file_of_the_project_writes_below_tmp_is_no_hazard() -> None:
    reads = {"train.py": 'import numpy as np\nx = np.load("/tmp/walk/data/x.npy")\n'}
    assert rules(reads) == [("train.py", 2, "ORC101")]
    writes = 'import numpy as np\nnp.save("/tmp/walk/data/x.npy", np.zeros(3))\n'
    assert rules({**reads, "prepare.py": writes}) == []
    assert rules({**reads, "prepare.sh": "set -e\ncp -r data /tmp/walk/\n"}) == []
