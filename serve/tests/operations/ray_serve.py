"""Runs the application for Ray Serve under a load that grows and ends: it has one replica, two, and one again.

    python ray_serve.py SISKIN SMOLLM2

No request fails meanwhile, and all replicas give the same texts.
"""

import json
import logging
import os
import pathlib
import socket
import sys
import tempfile
import time
import urllib.request

SISKIN, DECODER = sys.argv[1:3]
DEPLOY = pathlib.Path(__file__).parents[3] / "deploy"
CLIENTS = 8
os.environ |= {
    "SISKIN": SISKIN,
    "MODEL": DECODER,
    "ARGUMENTS": "--context 512",
    "CPUS": "0.5",
    "TARGET": "2",
    "UPSCALE_DELAY": "1",
    "DOWNSCALE_DELAY": "4",
    "PYTHONPATH": str(DEPLOY / "ray"),
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray looks at its replicas more often than by default.
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.1",
}
sys.path.insert(0, str(DEPLOY / "ray"))

import app
import ray
from load import Load
from ray import serve


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def send(url, path, body=None):
    request = urllib.request.Request(url + path, body and json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=120) as response:
        return response.read().decode()


def complete(url, seed):
    body = {"prompt": f"Story {seed}:", "max_tokens": 24, "seed": seed, "ignore_eos": True}
    return json.loads(send(url, "/v1/completions", body))["choices"][0]["text"]


def complete_streamed(url, seed):
    """Returns the text of a stream, and how many pieces of it arrived apart."""
    body = {"prompt": f"Story {seed}:", "max_tokens": 24, "seed": seed, "ignore_eos": True, "stream": True}
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode())
    text, times = "", set()
    with urllib.request.urlopen(request, timeout=120) as response:
        for line in response:
            if line.startswith(b"data: {"):
                text += json.loads(line[6:])["choices"][0]["text"]
                times.add(round(time.monotonic(), 3))
    return text, len(times)


def answer(url, seed):
    """Returns the text of a response, a third of which are streamed."""
    return complete_streamed(url, seed)[0] if seed % 3 == 0 else complete(url, seed)


def replicas():
    """Returns how many replicas run."""
    deployment = serve.status().applications["default"].deployments["Replica"]
    return deployment.replica_states.get("RUNNING", 0)


def wait_for_replicas(count, seconds):
    deadline = time.monotonic() + seconds
    while replicas() != count:
        assert time.monotonic() < deadline, (count, serve.status())
        time.sleep(0.2)


def check(url):
    models = json.loads(send(url, "/v1/models"))["data"]
    assert [model["id"] for model in models] == ["smollm2"], models
    text = complete(url, 0)
    streamed, pieces = complete_streamed(url, 0)
    assert streamed == text and pieces > 6, (text, streamed, pieces)
    assert "siskin_generation_tokens_total" in send(url, "/metrics")
    wait_for_replicas(1, 30)
    print("one replica of the Ray application answers, whole and streamed")

    load = Load(lambda seed: answer(url, seed), CLIENTS)
    wait_for_replicas(2, 120)
    at_two = len(load.answers)
    while len(load.answers) < at_two + 5 * CLIENTS:
        assert not load.errors, load.errors[:3]
        time.sleep(0.2)
    print("under load there are two replicas")
    load.stop()
    # The replica that ends answers the requests that it has.
    trickle = [complete(url, 0)]
    deadline = time.monotonic() + 120
    while replicas() != 1:
        assert time.monotonic() < deadline, serve.status()
        trickle.append(complete(url, 0))
    assert set(trickle) == {text}, trickle
    assert not load.errors and len(load.answers) >= 5 * CLIENTS, load.errors[:3]
    for seed in list(load.answers)[:5]:
        assert complete(url, seed) == load.answers[seed], seed
    print(f"afterwards there is one; {len(load.answers) + len(trickle)} requests, of which none failed")


def main():
    with tempfile.TemporaryDirectory() as folder:
        ray.init(
            num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR", _temp_dir=folder,
            object_store_memory=80_000_000,
        )
        try:
            port = free_port()
            logging.getLogger("ray.serve").setLevel(logging.ERROR)
            serve.start(http_options={"host": "127.0.0.1", "port": port}, logging_config={"log_level": "ERROR"})
            serve.run(app.app)
            check(f"http://127.0.0.1:{port}")
        finally:
            serve.shutdown()
            ray.shutdown()
    print("Ray Serve scales siskin serve")


main()
