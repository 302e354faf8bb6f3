"""Runs `siskin serve` as systemd does: with an inherited socket, notifications and a watchdog.

    python service_manager.py SISKIN SMOLLM2
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

SISKIN, DECODER = sys.argv[1:3]


class Notifications:
    """The socket on which a service manager gets the states of a service."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(60)

    def wait_for(self, state):
        """Returns the states before it."""
        before = []
        while True:
            states = self.socket.recv(4096).decode().split("\n")
            if state in states:
                return before
            before += states


def start(listener, notifications, *arguments):
    """Starts the server with the listener as its first inherited socket."""
    environment = dict(
        os.environ, LISTEN_FDS="1", NOTIFY_SOCKET=notifications.path, WATCHDOG_USEC="400000"
    )
    # The process that listens must be the one that is named.
    command = 'LISTEN_PID=$$ exec "$0" "$@"'
    return subprocess.Popen(
        ["sh", "-c", command, SISKIN, "--quiet", "serve", *arguments, DECODER],
        env=environment,
        preexec_fn=lambda: os.dup2(listener.fileno(), 3),
        close_fds=False,
    )


def get(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def main():
    with tempfile.TemporaryDirectory() as folder:
        notifications = Notifications(folder)
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        server = start(listener, notifications, "--drain-delay", "2", "--log-requests")
        try:
            # A client that comes before the server is there waits in the socket.
            status, models = get(port, "/v1/models")
            assert status == 200 and json.loads(models)["data"], models
            notifications.wait_for("READY=1")
            notifications.wait_for("WATCHDOG=1")
            notifications.wait_for("WATCHDOG=1")
            assert get(port, "/health/ready")[0] == 200
            server.send_signal(signal.SIGTERM)
            notifications.wait_for("STOPPING=1")
            # While load balancers notice that it is not ready, it answers.
            assert get(port, "/health/ready")[0] == 503
            assert get(port, "/health/live")[0] == 200
            assert get(port, "/v1/models")[0] == 200
            start_of_end = time.monotonic()
            assert server.wait(60) == 0, server.returncode
            assert time.monotonic() - start_of_end > 0.5, "it waits for load balancers"
        finally:
            server.kill()
    print("a service manager starts, watches and stops the server")


main()
