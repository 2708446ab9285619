"""A training without a framework that several machines do together: exact sums, so that any split is equal.

Rank 0 adds up what each machine computed of its share of the batch, in whole numbers, and sends the sum back.
"""

import json
import os
import pathlib
import socket
import time

STEPS, BATCH = 12, 12
config = json.loads(os.environ.get("TF_CONFIG", '{"cluster": {"worker": [""]}, "task": {"index": 0}}'))
workers, rank = config["cluster"]["worker"], config["task"]["index"]
saved = pathlib.Path("ckpt/state.json")
state = json.loads(saved.read_text()) if saved.exists() else {"step": 0, "weight": 1}
print(f"rank {rank} of {len(workers)} begins at step {state['step']}", flush=True)


def receive(connection):
    found = b""
    while not found.endswith(b"\n"):
        more = connection.recv(1)
        if not more:
            raise ConnectionResetError(f"rank {rank} lost its peer")
        found += more
    return int(found)


def send(connection, value):
    connection.sendall(f"{value}\n".encode())


host, _, port = workers[rank].rpartition(":")
peers = []
if rank == 0 and len(workers) > 1:
    listener = socket.create_server(("", int(port)))
    listener.settimeout(60)
    peers = [listener.accept()[0] for _ in workers[1:]]
elif rank:
    host, _, port = workers[0].rpartition(":")
    for _ in range(600):
        try:
            peers = [socket.create_connection((host, int(port)), 5)]
            break
        except OSError:
            time.sleep(0.1)
for peer in peers:
    peer.settimeout(5)
pace = float(os.environ.get("ORCH_PARAM_PACE", "0.1"))
while state["step"] < STEPS:
    share = range(rank, BATCH, len(workers))
    gradient = sum((state["weight"] * (item + 1) + state["step"]) % 1009 for item in share)
    if rank:
        send(peers[0], gradient)
        total = receive(peers[0])
    else:
        total = gradient + sum(receive(peer) for peer in peers)
        for peer in peers:
            send(peer, total)
    state = {"step": state["step"] + 1, "weight": (state["weight"] * 31 + total) % 1_000_003}
    if rank == 0:
        saved.parent.mkdir(exist_ok=True)
        part = saved.with_suffix(".part")
        part.write_text(json.dumps(state))
        part.rename(saved)
    print(f"step {state['step']} weight {state['weight']}", flush=True)
    time.sleep(pace)
if rank == 0:
    pathlib.Path("out").mkdir(exist_ok=True)
    pathlib.Path("out/weight").write_text(str(state["weight"]))
