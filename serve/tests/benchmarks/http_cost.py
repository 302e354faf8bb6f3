"""Measures what HTTP costs: CPU time of a request and of a streamed token, and the first token after a change of model.

    python http_cost.py SISKIN SMOLLM2 [ROUNDS]

CPU time is that of the server's process. Requests without generation are those of one connection. A streamed token costs what
a stream uses more than the same tokens in one response, and than the same tokens of the command `generate`.
"""

import http.client
import json
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).parents[1] / "clients"))

import siskin_server

SISKIN, DECODER = sys.argv[1:3]
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 5
REQUESTS = 2000
TOKENS = 400
STREAMS = 4


def send(connection, path, body):
    connection.request("POST" if body else "GET", path, json.dumps(body) if body else None)
    return connection.getresponse()


def cpu(server):
    """Returns the CPU seconds of the server's process so far, with the resolution of the scheduler."""
    threads = pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def of_requests(server, path, body):
    """Returns the CPU microseconds of a request."""
    connection = http.client.HTTPConnection(server.address)
    for _ in range(100):
        send(connection, path, body).read()
    before = cpu(server)
    for _ in range(REQUESTS):
        response = send(connection, path, body)
        response.read()
        assert response.status == 200, response.status
    return (cpu(server) - before) / REQUESTS * 1e6


def of_tokens(server, is_streamed):
    """Returns the CPU microseconds of a generated token."""
    body = {
        "model": "shakespeare",
        "prompt": "ROMEO:",
        "seed": 1,
        "max_tokens": TOKENS,
        "ignore_eos": True,
        "stream": is_streamed,
    }
    before = cpu(server)
    for _ in range(STREAMS):
        connection = http.client.HTTPConnection(server.address)
        response = send(connection, "/v1/completions", body)
        assert response.status == 200, response.read()
        response.read()
    return (cpu(server) - before) / (STREAMS * TOKENS) * 1e6


def first_token(server, model):
    """Returns the milliseconds until the first token of a short prompt."""
    connection = http.client.HTTPConnection(server.address)
    begin = time.perf_counter()
    body = {"model": model, "prompt": f"The {begin}", "max_tokens": 1, "stream": True}
    response = send(connection, "/v1/completions", body)
    response.readline()
    elapsed = time.perf_counter() - begin
    response.read()
    return elapsed * 1e3


def summary(name, unit, values):
    print(f"{name}: median {statistics.median(values):.1f} {unit} ({min(values):.1f} to {max(values):.1f})")


def main():
    folder = pathlib.Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True).stdout.strip())
    small = pathlib.Path(__file__).parents[3] / "cli/models/shakespeare.siskin"
    converted = folder / "smollm2.siskin"
    subprocess.run([SISKIN, "--quiet", "convert", DECODER, "-o", converted], check=True, stdout=subprocess.DEVNULL)
    server = siskin_server.Server(SISKIN, "--threads", "1", str(small), str(converted))
    paths = [
        ("GET /v1/models", "/v1/models", None),
        ("POST /tokenize", "/tokenize", {"model": "smollm2", "prompt": "Why is the sky blue?"}),
    ]
    try:
        for name, path, body in paths:
            summary(name, "µs CPU a request", [of_requests(server, path, body) for _ in range(ROUNDS)])
        pairs = [(of_tokens(server, True), of_tokens(server, False)) for _ in range(ROUNDS)]
        summary("a token of a stream", "µs CPU", [streamed for streamed, _ in pairs])
        summary("more than in one response", "µs CPU", [streamed - whole for streamed, whole in pairs])
        first = [first_token(server, model) for _ in range(20) for model in ["shakespeare", "smollm2"]]
        summary("first token after a change to shakespeare", "ms", first[2::2])
        summary("first token after a change to smollm2", "ms", first[3::2])
        server.stop()
    finally:
        server.process.kill()
    starts = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        server = siskin_server.Server(SISKIN, "--threads", "1", "--self-test-interval", "0", str(converted))
        first_token(server, "smollm2")
        starts.append((time.perf_counter() - begin) * 1e3)
        server.process.kill()
    summary("first token after the start of the process", "ms", starts)


if __name__ == "__main__":
    main()
