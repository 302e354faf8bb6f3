"""Many clients of the HTTP server for a long time, most of which do not wait for the end of their responses.

    python http_soak.py SISKIN MINUTES SMOLLM2 MINILM

Responses must be those of another process that answers one request after the other, the server's memory and open files must
not grow, and nothing may be left running at the end.
"""

import collections
import http.client
import json
import pathlib
import random
import statistics
import sys
import threading
import time

sys.path.append(str(pathlib.Path(__file__).parents[1] / "clients"))

import siskin_server

SISKIN, MINUTES, DECODER, ENCODER = sys.argv[1:5]
CLIENTS = 24
PROMPTS = 24
# How much anonymous memory may be added after the first third of the time, in bytes.
MAX_GROWTH = 8 << 20
INVALID = [
    ("/v1/chat/completions", {"model": "smollm2", "messages": []}),
    ("/v1/completions", {"model": "smollm2", "prompt": "a", "temperature": -1}),
    ("/v1/completions", {"model": "smollm2", "prompt": "a" * 100_000}),
    ("/v1/embeddings", {"model": "minilm", "input": []}),
    ("/v1/responses", {"model": "smollm2", "input": [{"role": "critic"}]}),
]


def completion(index):
    shared = "You are a helpful assistant. " * (index % 4 * 8)
    return {
        "model": "smollm2",
        "prompt": f"{shared}Write about the number {index}:",
        "seed": index,
        "temperature": 0.8,
        "max_tokens": 8 + index * 4,
    }


def embedding(index):
    return {"model": "minilm", "input": [f"The number {index} " * (1 + index % 9)]}


def post(address, path, body):
    connection = http.client.HTTPConnection(address, timeout=120)
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    return connection, connection.getresponse()


def answer(address, path, body):
    """Returns the status and the JSON of a response."""
    connection, response = post(address, path, body)
    value = json.loads(response.read())
    connection.close()
    return response.status, value


def text(value):
    return value["choices"][0]["text"]


def streamed(response, limit=None, pause=0.0):
    """Returns the text of a stream, or that of its first events."""
    parts = []
    for line in response:
        if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
            continue
        chunk = json.loads(line[6:])
        assert "error" not in chunk, chunk
        parts.append(text(chunk))
        if limit is not None and len(parts) >= limit:
            break
        time.sleep(pause)
    return "".join(parts)


class Client(threading.Thread):
    """Sends requests until the end."""

    def __init__(self, number, address, expected, end):
        super().__init__()
        self.random = random.Random(number)
        self.address, self.expected, self.end = address, expected, end
        self.counts = collections.Counter()
        self.failure = None

    def run(self):
        try:
            while time.monotonic() < self.end:
                kind = self.one()
                self.counts[kind] += 1
                if kind == "rejected":
                    time.sleep(self.random.random())
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"

    def one(self):
        index, choice = self.random.randrange(PROMPTS), self.random.random()
        if choice < 0.05:
            path, body = self.random.choice(INVALID)
            status, _ = answer(self.address, path, body)
            assert status == 400, (status, body)
            return "invalid"
        if choice < 0.15:
            status, value = answer(self.address, "/v1/embeddings", embedding(index))
            if status == 429:
                return "rejected"
            assert value["data"][0]["embedding"] == self.expected["vectors"][index], index
            return "embedding"
        if choice < 0.3:
            status, value = answer(self.address, "/v1/completions", completion(index))
            if status == 429:
                return "rejected"
            assert status == 200 and text(value) == self.expected["texts"][index], (status, value)
            return "whole"
        connection, response = post(self.address, "/v1/completions", {**completion(index), "stream": True})
        try:
            if response.status == 429:
                response.read()
                return "rejected"
            assert response.status == 200, response.status
            if choice < 0.7:
                part = streamed(response, limit=self.random.randrange(6))
                assert self.expected["texts"][index].startswith(part), part
                return "canceled"
            slow = choice < 0.75
            assert streamed(response, pause=0.05 if slow else 0.0) == self.expected["texts"][index], index
            return "slow" if slow else "streamed"
        finally:
            response.close()
            connection.close()


def expected_answers():
    """Returns what a process answers that has one request at a time, and no prefix cache to begin with."""
    server = siskin_server.Server(SISKIN, "--parallel", "1", DECODER, ENCODER)
    try:
        texts = [text(answer(server.address, "/v1/completions", completion(index))[1]) for index in range(PROMPTS)]
        vectors = [
            answer(server.address, "/v1/embeddings", embedding(index))[1]["data"][0]["embedding"]
            for index in range(PROMPTS)
        ]
    finally:
        server.process.kill()
    return {"texts": texts, "vectors": vectors}


def watch(server, clients, end):
    """Returns the anonymous memory every few seconds, and the maximum number of open files."""
    memory, files = [], 0
    while time.monotonic() < end and not any(client.failure for client in clients):
        time.sleep(5)
        memory.append(server.metric("siskin_process_anonymous_memory_bytes"))
        files = max(files, server.metric("process_open_fds"))
    return memory, files


def main():
    expected = expected_answers()
    server = siskin_server.Server(
        SISKIN, "--parallel", "8", "--max-waiting", "8", "--kv-memory", "24", "--context", "1024", DECODER, ENCODER
    )
    try:
        files_before = server.metric("process_open_fds")
        end = time.monotonic() + 60 * float(MINUTES)
        clients = [Client(number, server.address, expected, end) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        memory, files = watch(server, clients, end)
        for client in clients:
            client.join()
        failures = {client.failure for client in clients} - {None}
        assert not failures, failures
        server.wait_until_idle()
        for name in ["running", "waiting", "paused"]:
            assert server.metric(f"siskin_requests_{name}") == 0, name
        counts = sum((client.counts for client in clients), collections.Counter())
        third = max(1, len(memory) // 3)
        early, late = statistics.median(memory[third : 2 * third] or memory), statistics.median(memory[-third:])
        assert late - early < MAX_GROWTH, (early, late)
        assert files <= files_before + 2 * CLIENTS + 4, (files_before, files)
        assert server.metric("process_open_fds") <= files_before + 2
        preemptions = int(server.metric("siskin_preemptions_total"))
        server.stop()
    finally:
        server.process.kill()
    print(f"{sum(counts.values())} requests: {dict(sorted(counts.items()))}, {preemptions} preemptions")
    print(f"anonymous memory in the second third {early / 2**20:.1f} MiB, at the end {late / 2**20:.1f} MiB")
    print(f"open files before {files_before:.0f}, at most {files:.0f}")


if __name__ == "__main__":
    main()
