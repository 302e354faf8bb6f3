"""Three replicas behind HAProxy, one of which is killed under load: no request fails but those that were being streamed.

    python load_balancer.py SISKIN SMOLLM2
"""

import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

SISKIN, DECODER = sys.argv[1:3]
CONFIG = pathlib.Path(__file__).parents[3] / "deploy/haproxy/haproxy.cfg"
CLIENTS = 8


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def start_replica(port):
    process = subprocess.Popen(
        [SISKIN, "serve", "--port", str(port), "--drain-delay", "3", "--context", "512", "--threads", "1", DECODER],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert any("http://" in line for line in process.stderr), "the server did not start"
    # Else the server blocks when the pipe is full.
    threading.Thread(target=process.stderr.read, daemon=True).start()
    return process


def start_balancer(folder, port, replicas):
    text = CONFIG.read_text().replace("127.0.0.1:8000", f"127.0.0.1:{port}")
    for name, replica in zip(["8081", "8082", "8083"], replicas):
        text = text.replace(f"127.0.0.1:{name}", f"127.0.0.1:{replica}")
    assert len(re.findall(r"server \w+ 127\.0\.0\.1:\d+", text)) == 3
    path = pathlib.Path(folder) / "haproxy.cfg"
    path.write_text(text)
    return subprocess.Popen(["haproxy", "-db", "-f", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def complete(port, seed):
    body = {"prompt": f"Story {seed}:", "max_tokens": 12, "seed": seed, "ignore_eos": True}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)["choices"][0]["text"]


def wait_until_ready(port):
    for _ in range(300):
        try:
            complete(port, 0)
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise SystemExit("the load balancer does not answer")


class Load:
    """Clients that send one request after the other."""

    def __init__(self, port):
        self.port, self.is_over = port, False
        self.answers, self.errors = {}, []
        self.threads = [threading.Thread(target=self.run, args=(client,)) for client in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def run(self, client):
        seed = client
        while not self.is_over:
            try:
                self.answers[seed] = complete(self.port, seed)
            except Exception as error:
                self.errors.append((seed, repr(error)))
            seed += CLIENTS

    def stop(self):
        self.is_over = True
        for thread in self.threads:
            thread.join()


def check_metrics(port):
    """Every metric that alerts, dashboards and scalers use must be one of the server's."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        known = set(re.findall(r"^# TYPE (\w+)", response.read().decode(), re.MULTILINE))
    deploy = CONFIG.parents[1]
    files = ["prometheus/alerts.yaml", "grafana/dashboard.json", "kserve/keda.yaml"]
    for path in files:
        used = set(re.findall(r"\bsiskin_\w+", (deploy / path).read_text()))
        unknown = {name for name in used if re.sub(r"_bucket$", "", name) not in known}
        assert used and not unknown, (path, unknown)


def main():
    front, *ports = free_ports(4)
    replicas = [start_replica(port) for port in ports]
    with tempfile.TemporaryDirectory() as folder:
        balancer = start_balancer(folder, front, ports)
        try:
            wait_until_ready(front)
            load = Load(front)
            time.sleep(4)
            before = len(load.answers)
            replicas[0].kill()
            time.sleep(4)
            # One that shuts down in order loses nothing either.
            replicas[1].send_signal(signal.SIGTERM)
            assert replicas[1].wait(60) == 0
            time.sleep(2)
            load.stop()
            assert before > 0 and len(load.answers) > before, "requests were answered before and after"
            assert not load.errors, load.errors[:3]
            # Every replica generates the same.
            check_metrics(ports[2])
            for seed in list(load.answers)[:5]:
                assert complete(front, seed) == load.answers[seed], seed
            print(f"{len(load.answers)} requests to three replicas, of which one was killed: none failed")
        finally:
            balancer.kill()
            for replica in replicas:
                replica.kill()


main()
