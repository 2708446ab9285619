"""Programs of the clouds' own names that carry bytes to an emulated machine, as their tunnels do.

Each knows the machine by its name alone and asks the emulated cloud where it is. What they are asked is
kept in `asked`, beside them.
"""

from __future__ import annotations

import sys
from pathlib import Path

_RELAY = """\
#!{python} -IB
import json, os, pathlib, select, socket, sys, urllib.request
here = pathlib.Path(__file__).parent
with open(here / "asked", "a") as asked:
    asked.write(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]) + "\\n")
def of(path):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
    with opener.open("{url}/_test/" + path, timeout=20) as answer:
        return json.load(answer)
{address}
if not address:
    sys.exit("ERROR: (tunnel) the machine is not connected")
try:
    far = socket.create_connection((address, 22), timeout=10)
except OSError as error:
    sys.exit(f"ERROR: (tunnel) {{error}}")
far.settimeout(None)
ways = {{0: lambda data: far.sendall(data), far.fileno(): lambda data: os.write(1, data)}}
while True:
    for ready in select.select(list(ways), [], [])[0]:
        data = os.read(ready, 65536)
        if not data:
            sys.exit(0)
        ways[ready](data)
"""

_OF_GOOGLE = """\
words = sys.argv[1:]
assert words[:2] == ["compute", "start-iap-tunnel"] and words[3] == "22", words
assert "--listen-on-stdin" in words, words
zone = next(word.split("=")[1] for word in words if word.startswith("--zone="))
found = [i for i in of("state")["instances"] if i["name"] == words[2] and i["zone"].endswith("/" + zone)]
address = found[0]["networkInterfaces"][0].get("networkIP", "") if found else ""
"""

_OF_AWS = """\
words = dict(word.split("=", 1) for word in sys.argv[3:])
assert sys.argv[1:3] == ["ssm", "start-session"], sys.argv
assert words["--document-name"] == "AWS-StartSSHSession", words
assert words["--parameters"] == "portNumber=22", words
found = [i for i in of("instances") if (i["id"], i["region"]) == (words["--target"], words["--region"])]
address = found[0]["address"] if found else ""
"""


def gcloud(folder: Path, url: str) -> Path:
    """`gcloud` in `folder`, for the emulated Google Cloud at `url`; returns the folder."""
    _program(folder / "gcloud", _OF_GOOGLE, url)
    return folder


def aws(folder: Path, url: str) -> Path:
    """`aws` and the plugin that it needs."""
    _program(folder / "aws", _OF_AWS, url)
    _program(folder / "session-manager-plugin", _OF_AWS, url)
    return folder


def _program(path: Path, address: str, url: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_RELAY.format(python=sys.executable, address=address, url=url))
    path.chmod(0o755)
