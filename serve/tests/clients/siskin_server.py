"""A running `siskin serve`, for the tests of clients."""

import base64
import hashlib
import json
import re
import signal
import subprocess
import time
import urllib.request


def json_lines(program, *arguments):
    """Returns the JSON that a command of the program prints, one value per line."""
    command = [program, "--quiet", *arguments]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in output.splitlines()]


class Server:
    """A running server."""

    def __init__(self, program, *arguments):
        self.process = subprocess.Popen(
            [program, "serve", "--port", "0", *arguments], stderr=subprocess.PIPE, text=True
        )
        for line in self.process.stderr:
            if found := re.search(r"(https?)://(\S+)", line):
                scheme, self.address = found.groups()
                break
        else:
            raise SystemExit("the server did not start")
        self.url = f"{scheme}://{self.address}"

    def get(self, path, headers=None):
        request = urllib.request.Request(self.url + path, headers=headers or {})
        with urllib.request.urlopen(request) as response:
            return response.read().decode()

    def metric(self, name, **labels):
        """Returns the sum of a metric over the series with these labels."""
        total = 0.0
        for line in self.get("/metrics").splitlines():
            series, _, value = line.rpartition(" ")
            if re.match(rf"{name}(\{{|$)", series) and all(
                f'{key}="{label}"' in series for key, label in labels.items()
            ):
                total += float(value)
        return total

    def wait_until_idle(self):
        """Waits until no request runs."""
        deadline = time.monotonic() + 10
        while self.metric("siskin_requests_running") > 0:
            assert time.monotonic() < deadline, "the request still runs"
            time.sleep(0.05)

    def chat_page(self):
        """Returns the chat page and its headers, whose policy must have the hashes of its script and style."""
        with urllib.request.urlopen(self.url) as response:
            page, headers = response.read(), {name.lower(): value for name, value in response.headers.items()}
        policy = headers["content-security-policy"]
        for tag in ["script", "style"]:
            (content,) = re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>".encode(), page, re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
            source = f"{tag}-src 'sha256-{digest}'"
            assert source in policy, f"serve/src/page/mod.rs must have {source}"
        assert policy.startswith("default-src 'none';"), policy
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer" and headers["cache-control"] == "no-cache"
        return page, headers

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.process.returncode


def raised(kind, call):
    """Returns the error of this kind that a call raises."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}")
