"""Runs under a Python with TensorFlow: imports it once, then runs scripts in forks.

`waiting.py SOCKET`: listens there, prints "ready", and serves until standard input ends. A fork takes the
caller's variables, folder, processors and standard streams, then does what starting Python and importing
the frameworks would have done: runs sitecustomize, and tells the hooks that the frameworks are there.
"""

# Thin over the kernel: descriptors and processes are said in os calls.
# ruff: noqa: PTH120

import array
import ctypes
import json
import locale
import os
import runpy
import select
import signal
import socket
import sys
import time
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
HERE = os.path.dirname(os.path.realpath(__file__))
HOST = "PARITY_HOST"  # as in kind.py
sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry or ".") != HERE]

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

if os.environ.get("TF_USE_LEGACY_KERAS") == "1":
    import tf_keras as keras


def serve(path):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen(16)
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([door, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            connection, _ = door.accept()
            if os.fork() == 0:
                door.close()
                attend(connection)
            connection.close()


def attend(connection):
    """Fork once more for the script, wait for it, and tell how it ended. If the asker goes, it is ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    wish, streams = receive(connection)
    script = os.fork()
    if script == 0:
        connection.close()
        become(wish, streams)
    watch = os.pidfd_open(script)
    ready, _, _ = select.select([connection, watch], [], [])
    if connection in ready:
        os.kill(script, signal.SIGKILL)
    _, status = os.waitpid(script, 0)
    connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def receive(connection):
    header, ancillary, _, _ = connection.recvmsg(8, socket.CMSG_LEN(12))
    streams = array.array("i")
    for _, _, data in ancillary:
        streams.frombytes(data[:12])
    length, body = int.from_bytes(header, "little"), b""
    while len(body) < length:
        body += connection.recv(length - len(body))
    return json.loads(body), list(streams)


def become(wish, streams):
    """Be the script. Never returns."""
    status = 1
    try:
        for target, source in enumerate(streams):
            os.dup2(source, target)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        settle(wish)
        runpy.run_path(wish["argv"][0], run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def rename(host):
    """Give this process alone another host name, where the kernel lets us."""
    new_names = 0x04000000
    if ctypes.CDLL(None).unshare(new_names) == 0:
        socket.sethostname(host)


def settle(wish):
    host = wish["environ"].pop(HOST, "")
    if host:
        rename(host)
    np.random.seed()  # anew in each process; Python sees to its own generator
    os.sched_setaffinity(0, wish["cpus"])
    os.environ.clear()
    os.environ.update(wish["environ"])
    os.chdir(wish["cwd"])
    time.tzset()
    locale.setlocale(locale.LC_CTYPE, "")
    sys.argv = wish["argv"]
    folders = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    sys.modules.pop("sitecustomize", None)
    import sitecustomize  # noqa: F401

    sys.path.insert(0, os.path.dirname(os.path.realpath(wish["argv"][0])))
    for finder in sys.meta_path:
        if type(finder).__name__ == "ImportHook":
            finder.imported(tf)
            finder.imported(keras)


if __name__ == "__main__":
    serve(sys.argv[1])
