"""A stable version and a canary behind HAProxy: a fifth of the canary's requests fail, and its agent checks, or `siskin gate`, take
it out of the traffic, before clients see failures.

    python canary.py SISKIN
"""

import json
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

from balanced import CONFIG, complete, free_ports, start_balancer, start_server, wait_until_ready
from load import Load

SISKIN = sys.argv[1]
MODEL = pathlib.Path(__file__).parents[3] / "tests/data/golden/llama"
# The token whose embedding the canary lacks.
TOKEN = 7


def copy_model(folder, is_damaged):
    """Copies the model; in a damaged one, prompts with the token make the outputs not a number."""
    folder.mkdir()
    shutil.copy(MODEL / "config.json", folder)
    weights = bytearray((MODEL / "model.safetensors").read_bytes())
    (length,) = struct.unpack_from("<Q", weights)
    embedding = json.loads(weights[8 : 8 + length])["model.embed_tokens.weight"]
    columns = embedding["shape"][1]
    if is_damaged:
        start = 8 + length + embedding["data_offsets"][0] + 4 * columns * TOKEN
        weights[start : start + 4 * columns] = struct.pack("<f", float("nan")) * columns
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def config(folder, front, stable, canary, agent):
    text = CONFIG.read_text().replace("127.0.0.1:8000", f"127.0.0.1:{front}")
    text = text.replace("global\n", f"global\n    stats socket {folder}/haproxy.sock level admin\n")
    # One replica is enough; the canary gets a fifth of the requests, so that the test is short.
    text = re.sub(r" +server (two|three) .*\n", "", text).replace("127.0.0.1:8081", f"127.0.0.1:{stable}")
    text = text.replace("# server canary", "server canary").replace("weight 20 ", "weight 50 ")
    text = text.replace("127.0.0.1:8084", f"127.0.0.1:{canary}")
    return text.replace("9084", str(agent))


def server_state(folder, server):
    """Returns the status and the weight of a server, as HAProxy sees them."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(f"{folder}/haproxy.sock")
        stream.sendall(b"show stat\n")
        text = b"".join(iter(lambda: stream.recv(65536), b"")).decode()
    header, *rows = [line.split(",") for line in text.strip().splitlines()]
    row = next(row for row in rows if row[:2] == ["replicas", server])
    field = dict(zip(header, row))
    return field["status"], int(field["weight"]), int(field["stot"])


def prompt(seed):
    return [1, TOKEN if seed % 5 == 0 else 8, 3 + seed % 100]


def run(with_agent, decide):
    """Starts all, sends requests until `decide` has returned, and prints what clients and the canary got."""
    front, stable, canary, agent = free_ports(4)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        # Self-tests would find the damage before the first request.
        options = ["--self-test-interval", "0", "--threads", "1"]
        good, bad = copy_model(folder / "stable", False), copy_model(folder / "canary", True)
        servers = [start_server(SISKIN, stable, *options, f"model={good}")]
        checks = ["--agent-check", f"127.0.0.1:{agent}"] if with_agent else []
        servers.append(start_server(SISKIN, canary, *options, *checks, f"model={bad}"))
        balancer = start_balancer(folder, config(folder, front, stable, canary, agent))
        try:
            wait_until_ready(front, [1, 2, 3])
            time.sleep(2)
            assert server_state(folder, "canary")[0].startswith("UP"), server_state(folder, "canary")
            load, start = Load(lambda seed: complete(front, prompt(seed), seed)), time.monotonic()
            decide(folder, stable, canary)
            seconds = time.monotonic() - start
            assert seconds < 10, ("the canary still gets requests", seconds, server_state(folder, "canary"))
            time.sleep(1)
            before = server_state(folder, "canary")[2]
            time.sleep(5)
            after = server_state(folder, "canary")[2]
            load.stop()
            count = len(load.answers) + len(load.errors)
            assert before > 0 and after == before, ("the canary is out", before, after)
            assert len(load.errors) < 0.01 * count, (len(load.errors), count, load.errors[:3])
            print(
                f"{decide.__doc__}: the canary was out after {seconds:.1f} s and {before} requests;"
                f" {len(load.errors)} of {count} requests failed for clients"
            )
        finally:
            balancer.kill()
            for server in servers:
                server.kill()


def is_out(folder):
    status, weight, _ = server_state(folder, "canary")
    return weight == 0 or not status.startswith("UP")


def by_agent_checks(folder, stable, canary):
    """agent checks"""
    deadline = time.monotonic() + 20
    while not is_out(folder) and time.monotonic() < deadline:
        time.sleep(0.1)


def by_gate(folder, stable, canary):
    """siskin gate --online"""
    urls = [f"http://127.0.0.1:{port}" for port in [stable, canary]]
    haproxy = ["--haproxy-socket", f"{folder}/haproxy.sock", "--server", "replicas/canary"]
    gate = subprocess.run([SISKIN, "gate", "--online", *urls, *haproxy, "--json"], capture_output=True, text=True)
    report = json.loads(gate.stdout)
    assert gate.returncode == 1 and report["verdict"] == "regression" and report["traffic_disabled"], gate
    assert is_out(folder), server_state(folder, "canary")


run(True, by_agent_checks)
# An agent that does not answer changes no weight.
run(False, by_gate)
