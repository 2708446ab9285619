"""What all tests share: no way out of this computer, a state folder, one environment with TensorFlow."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from orchestrator.runtime.acting import acting
from tests import account
from tests.clouds.guard import GUARD
from tests.conformance import private_sshd
from tests.nightly import NIGHTLY, is_at_night
from tests.state_home import STATE_HOME

ROOT = Path(__file__).resolve().parent.parent
DIGITS = ROOT / "examples" / "digits"


for _name in acting(os.environ):  # the suite is the same in every shell
    if not _name.startswith(("LANG", "LC_", "TZ")):
        del os.environ[_name]

SLOWEST_FIRST = (
    "tests/parity/",
    "tests/resume/",
    "tests/e2e/test_gcp.py",
    "tests/e2e/test_adverse.py",
    "tests/crash/",
    "tests/histories/test_histories.py",
    "tests/e2e/test_aws.py",
    "tests/unit/replay/test_parity_trials.py",
    "tests/unit/runs/test_runs.py",
    "tests/unit/runtime/test_sample_stepclock.py",
    "tests/e2e/",
    "tests/conformance/",
    "tests/hostile/models/",
    "tests/unit/runs/test_retrying.py",
    "tests/unit/leases/test_damaged_runs.py",
    "tests/unit/session/test_damaged_state.py",
    "tests/unit/reads/test_reference.py",
    "tests/clouds/",
    "tests/unit/runs/test_jobs.py",
    "tests/unit/replay/test_parity_trials_files.py",
    "tests/unit/stack/test_stack_install.py",
    "tests/hostile/",
    "tests/unit/",
)


for _ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_ignored) == signal.SIG_IGN:  # by a shell, for its background
        signal.signal(_ignored, lambda *_: None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes longest begins first, so that no worker is left alone with it at the end."""
    at_night = [item for item in items if item.get_closest_marker("nightly") or is_at_night(item.nodeid)]
    if at_night and not NIGHTLY:
        config.hook.pytest_deselected(items=at_night)
        left_out = {id(item) for item in at_night}
        items[:] = [item for item in items if id(item) not in left_out]

    def place(item: pytest.Item) -> int:
        return next(
            (n for n, start in enumerate(SLOWEST_FIRST) if item.nodeid.startswith(start)), len(SLOWEST_FIRST)
        )

    items.sort(key=place)


gc.disable()  # of what collecting makes, nothing is garbage


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Workers take whole files, which share machines and imports; the conformance suite goes by provider."""
    from xdist.scheduler.loadscope import LoadScopeScheduling  # type: ignore[import-untyped]

    class ByFileAndProvider(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file, _, test = nodeid.partition("::")
            if file.endswith("crash/test_kills.py"):  # each test has its own project
                return nodeid
            return f"{file}[{test.partition('[')[2]}" if file.endswith("test_providers.py") else file

    config.option.loadscopereorder = False  # our order, not the number of tests
    return ByFileAndProvider(config, log)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name a failed test at once: whoever watches a long run, or stops it, need not wait for its end."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\nfailed ({report.when}): {report.nodeid}", file=sys.__stderr__, flush=True)


def pytest_configure(config: pytest.Config) -> None:
    """Count what each file costs: where its tests run, and where they are reported."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(account.Summing())
    config.pluginmanager.register(account.Measuring())


@pytest.fixture(autouse=True)
def machines_that_are_folders_here() -> Iterator[None]:
    """They end with their test, and with them what runs there."""
    yield
    if made := sys.modules.get("tests.unit.here_cloud"):
        made.end_all()


settings.register_profile("orch", deadline=None)  # a busy computer is no failure
settings.load_profile("orch")


@pytest.fixture(scope="session")
def tf_python() -> Path:
    """Python of an environment built from the lock of examples/digits (TensorFlow, scikit-learn)."""
    given = os.environ.get("ORCH_TEST_TF_PYTHON")
    if given:
        return Path(given)
    from orchestrator import stack

    lock = stack.read_lock(DIGITS / "requirements.lock")
    return stack.local_environment(lock, DIGITS, None).python


@pytest.fixture(scope="session")
def orch_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of orch for tests whose home folder is empty: to describe all packages of .venv takes seconds.

    The workers of one run share it.
    """
    own = tmp_path_factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "orch-cache"


@pytest.fixture(scope="session")
def digits_data(tf_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prepared data of examples/digits."""
    folder = tmp_path_factory.mktemp("digits") / "data"
    subprocess.run([tf_python, "prepare.py", "--output", folder], cwd=DIGITS, check=True, timeout=280)
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[private_sshd.Sshd]:
    """An sshd of this user's own; tests of one file share it."""
    if reason := private_sshd.why_not():
        pytest.skip(reason)
    with private_sshd.sshd(tmp_path_factory.mktemp("sshd")) as running:
        yield running


GUARD.install()
STATE_HOME.install()


@pytest.fixture(autouse=True)
def stays_on_this_computer(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test in which something tried to reach another computer, even where that was swallowed."""
    packages = request.node.get_closest_marker("registry")
    with GUARD.registry() if packages else nullcontext():
        yield
    written = STATE_HOME.take()
    if written:
        pytest.fail(f"this test wrote into the user's state folder: {', '.join(written)}", pytrace=False)
    tried = GUARD.take()
    if tried:
        pytest.fail(f"this test tried to leave the computer: {', '.join(tried)}", pytrace=False)
