"""The pinned packages: read a lock, install exactly it, verify it, compare both sides."""

from orchestrator.stack.attest import attest, attest_here
from orchestrator.stack.bootstrap import bootstrap, local_agent
from orchestrator.stack.compare import altered, differences, foreseen, read_back
from orchestrator.stack.image import prepare_image
from orchestrator.stack.install import Installed, install, lock_digest, stack_digest
from orchestrator.stack.interpreter import Interpreter, interpreter
from orchestrator.stack.local import LocalStack, existing_environment, local_environment, local_interpreter
from orchestrator.stack.lock import read_lock
from orchestrator.stack.locking import Wanted, make_lock
from orchestrator.stack.own_code import Request

__all__ = [
    "Installed",
    "Interpreter",
    "LocalStack",
    "Request",
    "Wanted",
    "altered",
    "attest",
    "attest_here",
    "bootstrap",
    "differences",
    "existing_environment",
    "foreseen",
    "install",
    "interpreter",
    "local_agent",
    "local_environment",
    "local_interpreter",
    "lock_digest",
    "make_lock",
    "prepare_image",
    "read_back",
    "read_lock",
    "stack_digest",
]
