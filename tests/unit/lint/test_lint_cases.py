"""What the five cases call a hazard is found where it stands."""

from __future__ import annotations

import pytest

from orchestrator.lint import check
from tests.unit.lint_blocks import FOLDER, Block, blocks_of

# (case and example, rule, the code of the line, what the text says of it)
TABLE = [
    ("000 example 1", "ORC202", "tf.device('/CPU:0')", "placement that other hardware lacks"),
    ("000 example 1", "ORC301", "model = tf.keras.Sequential", "nothing is seeded: weights and input differ"),
    ("000 example 2", "ORC703", "activation=tf.nn.relu", "TensorFlow 1's spelling of the activation"),
    ("000 example 2", "ORC703", "activation=tf.nn.softmax", "its weights do not load into the newer form"),
    ("000 example 3", "ORC101", 'cloud_data_path = "/data/', "a path that only the cloud has"),
    ("000 example 3", "ORC102", 'local_data_path = "C:/', "a path that only Windows has"),
    ("000 example 3", "ORC108", "if is_local == False", "one branch here, another one there"),
    ("000 example 3", "ORC512", "tf.data.TFRecordDataset(file_path)", "the try sees no missing file"),
    ("000 example 3", "ORC513", "except:", "the failure is printed, and the program goes on"),
    ("001 example 1", "ORC802", "tensorflow==2.9.0", "another version of TensorFlow"),
    ("001 example 1", "ORC802", "numpy==1.22.0", "another version of NumPy"),
    ("001 example 1", "ORC802", "scikit-learn==1.1.3", "another version of scikit-learn"),
    ("001 example 1", "ORC711", "load_model('my_cloud_trained_model')", "a SavedModel folder, by load_model"),
    ("001 example 2", "ORC502", "scaled_data = scaler.fit_transform", "the scaler is kept nowhere"),
    ("001 example 2", "ORC501", "scaled_data = scaler.fit_transform", "each side fits its own scaler"),
    ("001 example 2", "ORC503", "scaled_data = scaler.fit_transform", "Standard there, MinMax here"),
    ("001 example 3", "ORC201", "tf.device('/GPU:0')", "a literal device"),
    ("001 example 3", "ORC206", "tf.device('/GPU:0')", "a CPU computes without a word"),
    ("001 example 3", "ORC204", "tf.device('/GPU:0')", "memory handled differently: no memory growth"),
    ("001 example 3", "ORC301", "model.fit", "unseeded training is never the same twice"),
    ("002 example 1", "ORC206", "if device_name:", "the device decides the numbers, and nothing stops"),
    ("002 example 1", "ORC303", "tf.random.set_seed(42)", "a seed alone does not guarantee equality"),
    ("002 example 1", "ORC602", "a_64 = tf.cast(a, dtype=tf.float64)", "two widths side by side"),
    ("002 example 2", "ORC601", "data = np.random.rand(100", "float64 in the data"),
    ("002 example 3", "ORC821", 'os.environ["TF_DETERMINISTIC_OPS"]', "set after TensorFlow was imported"),
    ("002 example 3", "ORC903", 'os.environ["TF_DETERMINISTIC_OPS"]', "os is not imported: it never runs"),
    ("002 example 3", "ORC302", "model = tf.keras.Sequential", "Python's random is not seeded"),
    ("003 example 1", "ORC206", "if gpu_devices:", "without a GPU it is printed, and the training goes on"),
    ("003 example 1", "ORC205", "set_memory_growth(gpu_devices[0]", "memory growth for the first GPU alone"),
    ("003 example 1", "ORC513", "except tf.errors.InternalError", "the failing GPU is printed, exit code 0"),
    ("003 example 1", "ORC301", "model = tf.keras.models.Sequential", "nothing is seeded"),
    ("003 example 1", "ORC601", "x_train = np.random.rand", "float64 in the data"),
    ("003 example 2", "ORC511", "if os.path.exists('./my_data')", "mock data where the data are missing"),
    ("003 example 2", "ORC514", "if os.path.exists('./my_data')", "it trains on what happens to be there"),
    ("003 example 2", "ORC513", "except Exception as e", "errors of data and training are printed"),
    ("003 example 2", "ORC408", "local_ds = tf.data.Dataset", "input that the accelerator waits for"),
    ("003 example 3", "ORC721", "loss, accuracy = model.train_on_batch", "numbers by their place"),
    ("003 example 3", "ORC513", "except Exception as e", "and the error that this makes is printed only"),
    ("003 example 3", "ORC301", "model = tf.keras.models.Sequential", "nothing is seeded"),
    ("004 example 1", "ORC106", "source_image='centos-cloud/centos-7'", "an image by its name"),
    ("004 example 1", "ORC106", "diskTypes/pd-standard", "the slowest disk"),
    ("004 example 1", "ORC106", "create_vm(project_id=", "machine type and zone by name"),
    ("004 example 2", "ORC811", "nvcc --version", "the toolkit's version, not the driver's"),
    ("004 example 2", "ORC811", "pip show tensorflow", "versions compared by eye"),
    ("004 example 3", "ORC403", "cycle_length=tf.data.AUTOTUNE", "order and errors by the number of cores"),
]  # fmt: skip

EXAMPLES = {block.heading: block for block in blocks_of("lint_cases/cases.md")}
ORIGINALS = FOLDER.parents[2] / "shared" / "cases"


def _lines(block: Block, code: str) -> set[int]:
    return {number for number, line in enumerate(block.code.split("\n"), 1) if code in line}


@pytest.mark.parametrize(("example", "rule", "code", "said"), TABLE)
def test_what_a_case_warns_of_is_found(example: str, rule: str, code: str, said: str) -> None:
    block = EXAMPLES[example]
    wanted = _lines(block, code)
    assert wanted, f"{example} has no line with {code!r}"
    findings = block.shown().findings
    met = {each.line - 1 for each in findings if each.rule == rule}  # the fence is the text's first line
    assert met & wanted, f"{said}: {[(each.rule, each.line - 1) for each in findings]}"


def test_every_example_has_its_rows() -> None:
    assert {example for example, *_ in TABLE} == set(EXAMPLES)


@pytest.mark.skipif(not ORIGINALS.is_dir(), reason="the texts of the cases are not beside this checkout")
def test_the_examples_are_those_of_the_texts() -> None:
    for heading, block in EXAMPLES.items():
        assert block.code in (ORIGINALS / f"{heading[:3]}.md").read_text(encoding="utf-8")


@pytest.mark.skipif(not ORIGINALS.is_dir(), reason="the texts of the cases are not beside this checkout")
@pytest.mark.parametrize("number", range(5))
def test_the_whole_text_says_the_same(number: int) -> None:
    path = ORIGINALS / f"{number:03}.md"
    found = {each.rule for each in check({path.name: path.read_text(encoding="utf-8")}).findings}
    assert {rule for example, rule, *_ in TABLE if example.startswith(path.stem)} <= found
