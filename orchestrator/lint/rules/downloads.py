"""ORC521: data, models and weights that are downloaded during the run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from orchestrator.lint.module import Module
from orchestrator.lint.registry import module_check
from orchestrator.lint.rule import Hit, Rule, Severity, hit
from orchestrator.lint.values import argument, is_none, texts, unclear

UNCHECKED = Rule(
    "ORC521",
    "unchecked-download",
    Severity.WARNING,
    "a download at run time without a checksum or a fixed revision",
    "Two machines download at different times: other bytes, an old copy from a cache, or no network.",
    "Give file_hash= (or revision=), or download the file once and declare it as data.",
)

_FETCH = frozenset(
    [
        "urllib.request.urlretrieve",
        "urllib.request.urlopen",
        "wget.download",
        "gdown.download",
        "gdown.cached_download",
        "tensorflow_hub.load",
        "tensorflow_hub.KerasLayer",
        "torch.hub.load",
    ]
)
_BY_COMMAND = re.compile(r"\b(wget|curl|gdown|kaggle datasets download|git clone|aws s3 cp|gsutil cp)\b")
_REQUESTS = {"requests.get", "httpx.get"}
_URL = re.compile(r"^(https?|ftp)://", re.IGNORECASE)
_WITH_URL = re.compile(r"pandas\.read_\w+$|numpy\.(loadtxt|genfromtxt)$|skimage\.io\.imread$")


@module_check(UNCHECKED)
def check_downloads(module: Module) -> Iterator[Hit]:
    verified = any(name.startswith("hashlib.") for name in map(module.called, module.calls))
    for call in module.calls:
        what = _unchecked(module, call)
        if what and not verified:
            yield hit(UNCHECKED, module.snippet, call, what)


def _command(module: Module, call: ast.Call) -> str:
    """Return the command that a call passes to the shell or to a program, on one line."""
    given = module.value(argument(call, 0, "args", "command", "cmd"))
    if isinstance(given, ast.List | ast.Tuple):
        return " ".join(text for each in given.elts for text in texts(module, each))
    return next(iter(texts(module, given)), "")


def _unchecked(module: Module, call: ast.Call) -> str:
    name = module.called(call)
    if name == "os.system" or name.startswith("subprocess."):
        found = _BY_COMMAND.search(_command(module, call))
        return f"{found[1]} downloads whatever the server has" if found else ""
    if name == "keras.utils.get_file":
        given = [argument(call, -1, each) for each in ("file_hash", "md5_hash")]
        if not unclear(call) and all(each is None or is_none(each) for each in given):
            return "get_file without file_hash accepts any content from the server or ~/.keras"
    elif name == "urllib.request.urlopen" and _sends(module, call):
        return ""
    elif name in _FETCH or (name in _REQUESTS and _stored(module, call)):
        return f"{name} downloads whatever the server has"
    elif _WITH_URL.match(name) and any(_URL.match(text) for text in texts(module, argument(call, 0))):
        return f"{name} reads from the network at run time"
    elif name == "tensorflow_datasets.load":
        given_names = texts(module, argument(call, 0, "name"))
        if given_names and not any(re.search(r":\d", text) for text in given_names):
            return "tfds.load without a version uses the newest one: write 'name:1.0.0'"
    elif (
        name.startswith(("transformers.", "datasets."))
        and name.endswith((".from_pretrained", ".load_dataset"))
        and argument(call, -1, "revision") is None
        and not unclear(call)
    ):
        return f"{name.rpartition('.')[2]} without revision= uses the newest one"
    return ""


def _sends(module: Module, call: ast.Call) -> bool:
    """Whether a request sends data: the response is then an answer, not a file."""
    request = module.value(argument(call, 0, "url"))
    asked = [call, request] if isinstance(request, ast.Call) else [call]
    methods = [text for each in asked for text in texts(module, argument(each, -1, "method"))]
    given = [argument(each, 1, "data") for each in asked]
    return any(each is not None and not is_none(each) for each in given) or bool(
        {"POST", "PUT", "PATCH", "DELETE", "HEAD"} & set(methods)
    )


def _stored(module: Module, call: ast.Call) -> bool:
    """Whether the downloaded content is kept, or written to a file."""
    parent = module.parent(call)
    if isinstance(parent, ast.Attribute):
        return parent.attr in ("content", "raw", "text")
    return isinstance(parent, ast.Assign | ast.withitem) and any(
        isinstance(node, ast.Attribute) and node.attr in ("content", "iter_content") for node in module.nodes
    )
