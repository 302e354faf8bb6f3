"""Three replicas behind HAProxy, one of which is killed under load: no request fails but those that were being streamed.

    python load_balancer.py SISKIN SMOLLM2
"""

import re
import signal
import sys
import tempfile
import time
import urllib.request

from balanced import CONFIG, complete, free_ports, start_balancer, start_server, wait_until_ready
from load import Load

SISKIN, DECODER = sys.argv[1:3]


def start_replica(port):
    return start_server(SISKIN, port, "--drain-delay", "3", "--context", "512", "--threads", "1", DECODER)


def config(port, replicas):
    text = CONFIG.read_text().replace("127.0.0.1:8000", f"127.0.0.1:{port}")
    for name, replica in zip(["8081", "8082", "8083"], replicas):
        text = text.replace(f"127.0.0.1:{name}", f"127.0.0.1:{replica}")
    assert len(re.findall(r"^ +server \w+ 127\.0\.0\.1:\d+", text, re.MULTILINE)) == 3
    return text


def prompt(seed):
    return f"Story {seed}:"


def check_metrics(port):
    """Every metric that alerts, dashboards and scalers use must be one of the server's."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        known = set(re.findall(r"^# TYPE (\w+)", response.read().decode(), re.MULTILINE))
    deploy = CONFIG.parents[1]
    files = ["prometheus/alerts.yaml", "grafana/dashboard.json", "kserve/keda.yaml"]
    for path in files:
        used = set(re.findall(r"\bsiskin_\w+", (deploy / path).read_text()))
        # Servers without GPUs have no metrics of them.
        used = {name for name in used if not name.startswith("siskin_gpu_")}
        unknown = {name for name in used if re.sub(r"_bucket$", "", name) not in known}
        assert used and not unknown, (path, unknown)


def main():
    front, *ports = free_ports(4)
    replicas = [start_replica(port) for port in ports]
    with tempfile.TemporaryDirectory() as folder:
        balancer = start_balancer(folder, config(front, ports))
        try:
            wait_until_ready(front, prompt(0))
            load = Load(lambda seed: complete(front, prompt(seed), seed))
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
                assert complete(front, prompt(seed), seed) == load.answers[seed], seed
            print(f"{len(load.answers)} requests to three replicas, of which one was killed: none failed")
        finally:
            balancer.kill()
            for replica in replicas:
                replica.kill()


main()
