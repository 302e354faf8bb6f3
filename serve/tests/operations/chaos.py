"""What happens to machines, done to a server: killed while it writes, no disk space, stopped and continued, its file replaced.

    python chaos.py SISKIN SMOLLM2

Whatever happens, responses are those of an undisturbed server.
"""

import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.append(str(pathlib.Path(__file__).parents[1] / "clients"))

import siskin_server

SISKIN, DECODER = sys.argv[1:3]
PROMPTS = [f"{'The siskin is a small bird. ' * 20}Number {index}:" for index in range(6)]


def complete(server, prompt, max_tokens=16):
    connection = http.client.HTTPConnection(server.address, timeout=60)
    body = {"model": "smollm2", "prompt": prompt, "seed": 7, "max_tokens": max_tokens}
    connection.request("POST", "/v1/completions", json.dumps(body))
    response = connection.getresponse()
    value = json.loads(response.read())
    connection.close()
    assert response.status == 200, value
    return value["choices"][0]["text"]


def serve(*options, model=DECODER):
    return siskin_server.Server(SISKIN, "--context", "1024", *options, model)


def expected():
    server = serve()
    texts = [complete(server, prompt) for prompt in PROMPTS]
    server.stop()
    return texts


def check_killed_writers(texts, folder):
    """A server that is killed while prefixes are written leaves files that the next one can rely on."""
    # Room for few sequences, so that prefixes leave memory, for the disk.
    options = ["--prefix-cache-dir", folder, "--kv-memory", "24", "--parallel", "2"]
    for round in range(6):
        server = serve(*options)
        for prompt, text in zip(PROMPTS, texts):
            assert complete(server, prompt) == text, f"round {round}: {prompt[-9:]}"
        assert server.metric("siskin_prefix_cache_files_corrupt_total") == 0
        # The last prefixes are written when the server ends: in the midst of it.
        server.process.send_signal(signal.SIGTERM)
        time.sleep(random.Random(round).random() * 0.1)
        server.process.kill()
        server.process.wait()
    # What is complete is used, and the rest of killed writers does not pile up.
    for _ in range(2):
        server = serve(*options)
        for prompt, text in zip(PROMPTS, texts):
            assert complete(server, prompt) == text
        restored = server.metric("siskin_prefix_cache_restored_tokens_total")
        server.stop()
    parts = [name for name in os.listdir(folder) if name.endswith(".part")]
    assert len(parts) <= 6, parts
    return restored


def check_damaged_files(texts, folder):
    """Files that were cut or changed are not used."""
    options = ["--prefix-cache-dir", folder, "--kv-memory", "24", "--parallel", "2"]
    files = sorted(pathlib.Path(folder).rglob("*.siskin-kv"))
    assert files, "no prefix was written"
    for index, file in enumerate(files):
        content = bytearray(file.read_bytes())
        if index % 2:
            del content[len(content) // 2 :]
        else:
            content[len(content) // 2] ^= 1
        file.write_bytes(content)
    server = serve(*options)
    for prompt, text in zip(PROMPTS, texts):
        assert complete(server, prompt) == text
    server.stop()


def check_no_space(texts):
    """Without room on the disk, prefixes are not kept, and responses are what they are."""
    with tempfile.TemporaryDirectory() as folder:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], stderr=subprocess.DEVNULL
        )
        if mounted.returncode != 0:
            print("skipped: a disk without space, which only root can mount")
            return
        try:
            server = serve("--prefix-cache-dir", folder, "--kv-memory", "24", "--parallel", "2")
            for _ in range(2):
                for prompt, text in zip(PROMPTS, texts):
                    assert complete(server, prompt) == text
            server.stop()
            used = sum(file.stat().st_size for file in pathlib.Path(folder).rglob("*") if file.is_file())
            assert used <= 64 << 10, used
        finally:
            subprocess.run(["umount", folder], check=True)


class Requests(threading.Thread):
    """Sends requests one after the other until it is stopped."""

    def __init__(self, server, texts):
        super().__init__()
        self.server, self.texts, self.is_over = server, texts, False
        self.failures, self.count = [], 0

    def run(self):
        while not self.is_over:
            index = self.count % len(PROMPTS)
            try:
                text = complete(self.server, PROMPTS[index])
                if text != self.texts[index]:
                    self.failures.append(f"{index}: {text!r}")
                self.count += 1
            except (AssertionError, OSError, http.client.HTTPException) as error:
                if not self.is_over:
                    self.failures.append(repr(error))
                return

    def stop(self):
        self.is_over = True
        self.join()


def under_load(server, texts, disturb):
    clients = [Requests(server, texts) for _ in range(4)]
    for client in clients:
        client.start()
    time.sleep(1)
    disturb()
    time.sleep(1)
    for client in clients:
        client.stop()
    failures = [failure for client in clients for failure in client.failures]
    assert not failures, failures[:3]
    assert all(client.count for client in clients)


def check_suspension(texts):
    """A machine that sleeps: no request fails, and the server is ready afterwards."""
    server = serve("--parallel", "4")

    def sleep():
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(3)
        server.process.send_signal(signal.SIGCONT)

    under_load(server, texts, sleep)
    assert json.loads(server.get("/health/ready")) == {"status": "ok"}
    server.stop()


def check_replaced_file(texts):
    """The file of a model is replaced by another under its name: the server keeps using the one that it opened."""
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "smollm2.siskin"
        subprocess.run([SISKIN, "--quiet", "convert", DECODER, "--output", model], check=True)
        server = serve("--parallel", "4", model=str(model))

        def replace():
            other = model.with_name("other")
            other.write_bytes(b"not a model" * 1000)
            os.replace(other, model)

        under_load(server, texts, replace)
        server.stop()


def check_termination(texts):
    """SIGTERM under load: requests that run end as usual, and the process exits in order."""
    server = serve("--parallel", "4")
    clients = [Requests(server, texts) for _ in range(4)]
    for client in clients:
        client.start()
    time.sleep(1)
    for client in clients:
        client.is_over = True
    server.stop()
    for client in clients:
        client.join()
    failures = [failure for client in clients for failure in client.failures]
    assert not failures, failures[:3]


def main():
    texts = expected()
    folder = tempfile.mkdtemp()
    try:
        restored = check_killed_writers(texts, folder)
        assert restored > 0, "no prefix was restored"
        check_damaged_files(texts, folder)
    finally:
        shutil.rmtree(folder)
    check_no_space(texts)
    check_suspension(texts)
    check_replaced_file(texts)
    check_termination(texts)
    print(f"responses were those of an undisturbed server; {restored:.0f} tokens of prompts came from the disk")


if __name__ == "__main__":
    main()
