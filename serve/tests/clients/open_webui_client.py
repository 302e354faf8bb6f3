"""Runs `siskin serve` and Open WebUI, which uses it through both OpenAI's and Ollama's APIs.

    python open_webui_client.py SISKIN SMOLLM2 MINILM
"""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from siskin_server import Server, json_lines

SISKIN, DECODER, ENCODER = sys.argv[1:4]
QUESTION = [{"role": "user", "content": "Why is the sky blue?"}]
# It must not look for anything on the internet.
SETTINGS = {
    "WEBUI_AUTH": "False",
    "OPENAI_API_KEY": "none",
    "RAG_EMBEDDING_ENGINE": "openai",
    "BYPASS_EMBEDDING_AND_RETRIEVAL": "True",
    "OFFLINE_MODE": "True",
    "HF_HUB_OFFLINE": "1",
    "ENABLE_VERSION_UPDATE_CHECK": "False",
    "ANONYMIZED_TELEMETRY": "False",
    "DO_NOT_TRACK": "true",
    "SCARF_NO_ANALYTICS": "true",
    "WEBUI_SECRET_KEY": "a key for the sessions of this test",
}


class WebUi:
    """A running Open WebUI."""

    def __init__(self, server, folder):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url, self.token = f"http://127.0.0.1:{port}", None
        self.log = folder / "log.txt"
        addresses = {"OPENAI_API_BASE_URL": f"{server.url}/v1", "OLLAMA_BASE_URL": server.url}
        program = pathlib.Path(sys.executable).with_name("open-webui")
        self.process = subprocess.Popen(
            [program, "serve", "--host", "127.0.0.1", "--port", str(port)],
            env={**os.environ, **SETTINGS, **addresses, "DATA_DIR": str(folder)},
            stdout=self.log.open("w"),
            stderr=subprocess.STDOUT,
        )

    def wait(self):
        """Waits until it answers, and signs in."""
        deadline = time.monotonic() + 300
        while True:
            try:
                self.get("/health")
                break
            except OSError:
                assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()
                time.sleep(0.5)
        self.token = json.loads(self.get("/api/v1/auths/signin", {"email": "", "password": ""}))["token"]

    def get(self, path, body=None):
        headers = {"content-type": "application/json"}
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        content = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + path, content, headers), timeout=120) as response:
            return response.read().decode()

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def check_models(webui):
    models = {model["id"]: model["owned_by"] for model in json.loads(webui.get("/api/models"))["data"]}
    expected = {"smollm2": "openai", "minilm": "openai", "smollm2:latest": "ollama", "minilm:latest": "ollama"}
    assert {name: models.get(name) for name in expected} == expected, models
    details = json.loads(webui.get("/ollama/api/tags"))["models"]
    assert {model["details"]["family"] for model in details if model["model"] == "smollm2:latest"} == {"llama"}, details
    print("Open WebUI lists the models of both APIs")


def text_of(events):
    """Returns the text of server-sent events."""
    lines = [line.removeprefix("data: ") for line in events.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]", lines[-1]
    choices = [choice for line in lines[:-1] for choice in json.loads(line).get("choices", [])]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def check_chats(webui):
    # The same tokens as those of a session.
    (alone,) = json_lines(SISKIN, "run", DECODER, QUESTION[0]["content"], "--greedy", "-n", "12", "--json")
    for model in ["smollm2", "smollm2:latest"]:
        body = {"model": model, "messages": QUESTION, "params": {"temperature": 0, "max_tokens": 12}}
        whole = json.loads(webui.get("/api/chat/completions", {**body, "stream": False}))
        assert whole["choices"][0]["message"]["content"] == alone["text"], whole
        assert text_of(webui.get("/api/chat/completions", {**body, "stream": True})) == alone["text"], model
    print("Open WebUI answers chats with the tokens of `siskin run`, whole and streamed, through both APIs")

    body = {"model": "smollm2:latest", "messages": QUESTION, "options": {"temperature": 0, "num_predict": 12}}
    lines = webui.get("/ollama/api/chat", {**body, "stream": True}).splitlines()
    assert "".join(json.loads(line)["message"]["content"] for line in lines) == alone["text"], lines
    vectors = json.loads(webui.get("/api/embeddings", {"model": "minilm", "input": ["A bird."]}))
    (expected,) = json_lines(SISKIN, "embed", ENCODER, "--json", "A bird.")
    pairs = zip(vectors["data"][0]["embedding"], expected["embedding"], strict=True)
    assert all(abs(a - b) < 1e-6 for a, b in pairs), vectors
    print("Open WebUI passes on Ollama's chats and OpenAI's embeddings")


def main():
    folder = pathlib.Path(tempfile.mkdtemp())
    server = Server(SISKIN, DECODER, ENCODER)
    webui = WebUi(server, folder)
    try:
        webui.wait()
        check_models(webui)
        check_chats(webui)
        webui.stop()
        server.stop()
    finally:
        webui.process.kill()
        server.process.kill()
        shutil.rmtree(folder)
    print("Open WebUI uses siskin serve")


main()
