"""Innocent differences: nothing may be accused."""

from __future__ import annotations

from tests.parity.scenarios.model import Scenario, Side, edit, innocent
from tests.parity.scenarios.projects import config, payments, shards

_AWAY = {f"elsewhere/{name}": content for name, content in shards().items()}


def _variable(name: str, project: str, **environ: str) -> Scenario:
    return Scenario(name, project, innocent("IDENTICAL"), b=Side(environ=environ))


_PARALLEL = (
    "data = data.shuffle(96, seed=3)",
    "data = data.map(lambda *record: record, num_parallel_calls=tf.data.AUTOTUNE).shuffle(96, seed=3)",
)
_PATIENT = ("shards = [load(path)", "time.sleep(float(os.environ.get('WAIT', '0')))\nshards = [load(path)")


SCENARIOS = (
    Scenario("the same twice", "images.py", innocent("IDENTICAL"), b=Side(environ={"RUN": "2"})),
    _variable("threads between operations", "images.py", TF_NUM_INTEROP_THREADS="1"),
    _variable("one thread, where sums are short", "table.py", TF_NUM_INTRAOP_THREADS="1"),
    _variable("another log level", "images.py", TF_CPP_MIN_LOG_LEVEL="0"),
    _variable("unrelated variables", "loop.py", EDITOR="vi", PROJECT_OWNER="someone", COLUMNS="80"),
    _variable("another user", "images.py", USER="somebody", LOGNAME="somebody", MAIL="/dev/null"),
    _variable("another clock that nobody reads", "images.py", TZ="JST-9"),
    _variable("another hash seed that nobody needs", "images.py", PYTHONHASHSEED="1"),
    _variable("another language", "table.py", LANG="en_US.UTF-8", LC_MESSAGES="C"),
    _variable("variables for devices that are not there", "images.py", CUDA_VISIBLE_DEVICES="0,1"),
    _variable("threads of a library that is not used", "loop.py", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1"),
    Scenario(
        "a loader in double precision",
        "images.py",
        innocent(),
        b=Side(edits=edit("prepare.py", ('.astype("float32")', ""))),
    ),
    Scenario("fewer cores, a fixed cycle_length", "reading.py", innocent("IDENTICAL"), b=Side(cpus=1)),
    Scenario(
        "started from another folder",
        "images.py",
        innocent("IDENTICAL"),
        b=Side(start="..", arguments=("--data", "project/data")),
    ),
    Scenario(
        "data in another place",
        "images.py",
        innocent("IDENTICAL"),
        b=Side(files=_AWAY, arguments=("--data", "elsewhere/data")),
    ),
    Scenario(
        "data in another place, by a variable",
        "reading.py",
        innocent("IDENTICAL"),
        b=Side(files=_AWAY, environ={"SHARDS": "elsewhere/data"}),
    ),
    Scenario("another name of the folder", "loop.py", innocent("IDENTICAL"), b=Side(folder="renamed")),
    Scenario(
        "files copied in another order, listed sorted",
        "images.py",
        innocent("IDENTICAL"),
        b=Side(reversed_files=True),
    ),
    Scenario(
        "a file that nobody reads",
        "images.py",
        innocent("IDENTICAL"),
        b=Side(files={"data/notes.txt": "checked"}),
    ),
    Scenario(
        "a header line that is skipped",
        "table.py",
        innocent("IDENTICAL"),
        b=Side(files={"payments.csv": payments().replace("when;amount;city;kind", "time;sum;town;kind")}),
    ),
    Scenario(
        "a comment in the code",
        "images.py",
        innocent("IDENTICAL"),
        b=Side(edits=edit("prepare.py", ("def images_of", "# To grey values.\ndef images_of"))),
    ),
    Scenario(
        "more epochs than are compared",
        "images.py",
        innocent("IDENTICAL"),
        b=Side(arguments=("--epochs", "3")),
    ),
    Scenario(
        "another place for the result",
        "images.py",
        innocent("IDENTICAL"),
        b=Side(arguments=("--output", "other.keras")),
    ),
    Scenario("another computer's name", "images.py", innocent("IDENTICAL"), b=Side(host="elsewhere")),
    Scenario("the project in memory", "images.py", innocent("IDENTICAL"), b=Side(memory=True)),
    Scenario(
        "another user's home folder",
        "images.py",
        innocent("IDENTICAL"),
        b=Side(environ={"HOME": "{folder}/home"}, files={"home/.profile": "\n"}),
    ),
    Scenario(
        "a slower disk",
        "images.py",
        innocent("IDENTICAL"),
        both=Side(
            edits=edit("images.py", ("import glob\n", "import glob\nimport os\nimport time\n"), _PATIENT)
        ),
        b=Side(environ={"WAIT": "1"}),
    ),
    Scenario(
        "a configuration written otherwise",
        "loop.py",
        innocent("IDENTICAL"),
        b=Side(files={"config.json": config().replace(", ", ",\n  ")}),
    ),
    Scenario(
        "a parallel map that keeps the order",
        "images.py",
        innocent("IDENTICAL"),
        b=Side(edits=edit("images.py", _PARALLEL)),
    ),
    Scenario(
        "a shuffle that the global seed fixes",
        "images.py",
        innocent("IDENTICAL"),
        both=Side(edits=edit("images.py", ("shuffle(96, seed=3)", "shuffle(96)"))),
    ),
    Scenario(
        "an edit in a module that is not used",
        "styles.py",
        innocent("IDENTICAL"),
        both=Side(files={"spare.py": "LIMIT = 1\n"}, arguments=("fit",)),
        b=Side(files={"spare.py": "LIMIT = 2\n"}),
    ),
    Scenario(
        "the same noise in two models", "styles.py", innocent("IDENTICAL"), both=Side(arguments=("pair",))
    ),
    Scenario(
        "labels in 32 bits",
        "images.py",
        innocent(),
        b=Side(edits=edit("images.py", ('.astype("int64")', '.astype("int32")'))),
    ),
    Scenario(
        "batches made by two threads, in order",
        "workers.py",
        innocent("IDENTICAL"),
        b=Side(edits=edit("workers.py", ("workers=1", "workers=2"))),
    ),
    Scenario(
        "the same program started by another",
        "styles.py",
        innocent("IDENTICAL"),
        a=Side(arguments=("fit",)),
        b=Side(
            files={
                "launch.py": "import subprocess, sys\n\nsubprocess.run([sys.executable, *sys.argv[1:]])\n"
            },
            command=("{interpreter}", "launch.py", "{script}"),
            arguments=("fit",),
        ),
    ),
)
