"""Servers behind HAProxy, for the tests of operation."""

import json
import pathlib
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

CONFIG = pathlib.Path(__file__).parents[3] / "deploy/haproxy/haproxy.cfg"


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def start_server(program, port, *arguments):
    """Starts a server, and returns when it answers."""
    process = subprocess.Popen(
        [program, "serve", "--port", str(port), *arguments], stderr=subprocess.PIPE, text=True
    )
    assert any("http://" in line for line in process.stderr), "the server did not start"
    # Else the server blocks when the pipe is full.
    threading.Thread(target=process.stderr.read, daemon=True).start()
    return process


def start_balancer(folder, config):
    """Starts HAProxy with the text of a configuration."""
    path = pathlib.Path(folder) / "haproxy.cfg"
    path.write_text(config)
    return subprocess.Popen(["haproxy", "-db", "-f", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def complete(port, prompt, seed):
    body = {"prompt": prompt, "max_tokens": 12, "seed": seed, "ignore_eos": True}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)["choices"][0]["text"]


def wait_until_ready(port, prompt):
    for _ in range(300):
        try:
            complete(port, prompt, 0)
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise SystemExit("the load balancer does not answer")
