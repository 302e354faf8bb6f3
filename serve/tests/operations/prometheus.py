"""Prometheus scrapes `siskin serve`, answers queries, and its alerts fire when they should.

    python prometheus.py SISKIN SMOLLM2
"""

import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "clients"))
from siskin_server import Server

SISKIN, DECODER = sys.argv[1:3]
DEPLOY = pathlib.Path(__file__).parents[3] / "deploy"
CONFIG = """
global:
  scrape_interval: 200ms
  evaluation_interval: 200ms
rule_files: [alerts.yaml]
scrape_configs:
  - job_name: siskin
    static_configs:
      - targets: [{targets}]
"""
REQUESTS, OUTPUT = 6, 8


class Prometheus:
    """A running Prometheus that scrapes servers every 0.2 seconds."""

    def __init__(self, folder, addresses):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        # They fire after a second instead of minutes.
        alerts = (DEPLOY / "prometheus/alerts.yaml").read_text()
        alerts, count = re.subn(r"for: \d+m", "for: 1s", alerts)
        assert count > 3, alerts
        (folder / "alerts.yaml").write_text(alerts)
        (folder / "prometheus.yaml").write_text(CONFIG.format(targets=", ".join(addresses)))
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={self.address}",
                "--log.level=error",
            ]
        )

    def get(self, path, **parameters):
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}?{query}") as response:
            answer = json.load(response)
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression):
        """Returns the values of an expression by their labels."""
        found = self.get("query", query=expression)["result"]
        return {tuple(sorted(entry["metric"].items())): float(entry["value"][1]) for entry in found}

    def firing(self):
        alerts = self.get("alerts")["alerts"]
        return {(alert["labels"]["alertname"], alert["labels"]["instance"]) for alert in alerts if alert["state"] == "firing"}


def wait(condition, what, seconds=30):
    """Waits until a condition holds, and returns its value."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if value := condition():
                return value
        except OSError:
            pass
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def load(server):
    for seed in range(REQUESTS):
        body = {"prompt": f"Story {seed}:", "max_tokens": OUTPUT, "seed": seed, "ignore_eos": True}
        request = urllib.request.Request(f"{server.url}/v1/completions", json.dumps(body).encode())
        urllib.request.urlopen(request).read()


def check_format(server):
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=server.get("/metrics"), capture_output=True, text=True
    )
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    print("promtool finds nothing wrong with /metrics")


def check_queries(prometheus, server):
    load(server)
    name = f'{{instance="{server.address}", model="smollm2"}}'
    tokens = f"siskin_generation_tokens_total{name}"
    total = wait(lambda: (found := prometheus.query(tokens)) and max(found.values()) >= REQUESTS * OUTPUT and found, tokens)
    assert list(total.values()) == [REQUESTS * OUTPUT], total
    buckets = f"siskin_time_to_first_token_seconds_bucket{name}"
    quantile = f"histogram_quantile(0.95, sum by (le) ({buckets}))"
    (slowest,) = prometheus.query(quantile).values()
    assert 0 < slowest < 60, slowest
    mean = f"siskin_time_to_first_token_seconds_sum{name} / siskin_time_to_first_token_seconds_count{name}"
    (value,) = prometheus.query(mean).values()
    measured = server.metric("siskin_time_to_first_token_seconds_sum") / REQUESTS
    assert abs(value - measured) < 1e-6, (value, measured)
    print(f"Prometheus counts {REQUESTS * OUTPUT} generated tokens, and p95 of the first token is {slowest:.3f} s")


def check_dashboard(prometheus):
    """Prometheus understands every query of the dashboard and of the scaler."""
    dashboard = json.loads((DEPLOY / "grafana/dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    variables = {"$__rate_interval": "1m", "$__interval": "1m", "$__range": "5m"}
    for variable, value in variables.items():
        expressions = [expression.replace(variable, value) for expression in expressions]
    expressions += re.findall(r"query: (.*)", (DEPLOY / "kserve/keda.yaml").read_text())
    answered = 0
    for expression in expressions:
        expression = re.sub(r"\$\{?\w+\}?", ".*", expression).replace('model="model"', 'model="smollm2"')
        answered += bool(prometheus.query(expression))
    assert len(expressions) > 5 and answered * 2 > len(expressions), (answered, expressions)
    print(f"Prometheus answers {len(expressions)} queries of the dashboard and the scaler, {answered} of them with values")


def check_alerts(prometheus, staying, leaving):
    rules = [rule["name"] for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    assert "SiskinDown" in rules and len(rules) > 5, rules
    assert not prometheus.firing(), prometheus.firing()
    leaving.process.kill()
    leaving.process.wait()
    down = ("SiskinDown", leaving.address)
    wait(lambda: down in prometheus.firing(), "an alert for the server that was killed")
    assert prometheus.firing() == {down}, prometheus.firing()
    assert list(prometheus.query(f'up{{instance="{staying.address}"}}').values()) == [1]
    print(f"{len(rules)} alerts are loaded; SiskinDown fires for a server that was killed, and only that")


def main():
    options = ["--context", "512", "--threads", "1", DECODER]
    servers = [Server(SISKIN, *options) for _ in range(2)]
    with tempfile.TemporaryDirectory() as folder:
        prometheus = Prometheus(pathlib.Path(folder), [server.address for server in servers])
        try:
            check_format(servers[0])
            wait(lambda: list(prometheus.query("up").values()) == [1, 1], "Prometheus scrapes both servers")
            check_queries(prometheus, servers[0])
            check_dashboard(prometheus)
            check_alerts(prometheus, *servers)
            servers[0].stop()
        finally:
            prometheus.process.kill()
            prometheus.process.wait()
            for server in servers:
                server.process.kill()
    print("Prometheus monitors siskin serve")


main()
