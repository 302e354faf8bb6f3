"""Runs `siskin serve`, and sends it requests that Schemathesis makes from `/openapi.json`, valid and not.

    python schemathesis_client.py SISKIN SMOLLM2 MINILM

No response may be an internal error, or differ from what the document says.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import jsonschema
from siskin_server import Server

SISKIN, DECODER, ENCODER = sys.argv[1:4]
MODELS = ["smollm2", "minilm"]
SEED, EXAMPLES = "1", "20"
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
]
# Their status is 501.
NOT_SUPPORTED = {
    "/api/copy": "POST",
    "/api/create": "POST",
    "/api/delete": "DELETE",
    "/api/pull": "POST",
    "/api/push": "POST",
}
QUESTION = [{"role": "user", "content": "Why is the sky blue?"}]
# Routes whose responses are streams, what is sent to them, and the schema of each of their events or lines.
STREAMS = [
    ("/v1/chat/completions", {"messages": QUESTION, "stream": True, "logprobs": True}, "ChatCompletionChunk"),
    ("/v1/completions", {"prompt": "The capital of", "stream": True, "logprobs": 2, "echo": True}, "Completion"),
    ("/v2/models/smollm2/generate_stream", {"text_input": "The capital of"}, "GenerateResponse"),
    ("/api/chat", {"messages": QUESTION, "logprobs": True}, "OllamaChatResponse"),
    ("/api/generate", {"prompt": QUESTION[0]["content"]}, "OllamaGenerateResponse"),
]


def send(server, path, method="POST", body=None):
    """Returns the status and text of a response."""
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, content, {"content-type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def prepare(document):
    """Names the models of the server where any name is allowed, so that most requests reach one."""
    for name, schema in document["components"]["schemas"].items():
        if name.endswith("Request") and "model" in schema.get("properties", {}):
            schema["properties"]["model"] = {"enum": MODELS}
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation["parameters"]:
                if parameter["name"] == "model":
                    parameter["schema"] = {"enum": MODELS}
            # Schemathesis does not know that events and lines have a schema each: `check_streams` does.
            content = operation["responses"].get("200", {}).get("content", {})
            for kind in ["text/event-stream", "application/x-ndjson"]:
                if kind in content:
                    content[kind] = {}


def check_operations(server, document):
    prepare(document)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "openapi.json"
        path.write_text(json.dumps(document))
        excluded = [word for path in NOT_SUPPORTED for word in ["--exclude-path", path]]
        command = [sys.executable, "-m", "schemathesis.cli", "run", path, "--url", server.url, "--seed", SEED]
        command += ["--max-examples", EXAMPLES, "--checks", ",".join(CHECKS), "--phases", "coverage,fuzzing"]
        command += ["--continue-on-failure", "--no-shrink", "--request-timeout", "60", "--warnings", "off", *excluded]
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    (count,) = [line.split()[0] for line in done.stdout.splitlines() if " generated, " in line]
    assert int(count) > 1000, done.stdout
    operations = sum(map(len, document["paths"].values())) - len(NOT_SUPPORTED)
    print(f"{count} requests to {operations} routes: no internal error, and responses are as /openapi.json says")


def check_not_supported(server):
    for path, method in NOT_SUPPORTED.items():
        status, text = send(server, path.replace("{model}", "smollm2"), method, {})
        assert status == 501 and "siskin " in json.loads(text)["error"], (path, status, text)
    print(f"{len(NOT_SUPPORTED)} routes that are not supported have the status 501 and say what to do")


def check_streams(server, document):
    for path, body, schema in STREAMS:
        if not path.startswith("/v2/"):
            body = {"model": "smollm2", **body}
        status, text = send(server, path, body=body)
        assert status == 200, (path, status, text)
        lines = [line.removeprefix("data: ") for line in text.splitlines() if line and not line.startswith(":")]
        events = [json.loads(line) for line in lines if line != "[DONE]"]
        assert len(events) > 1, (path, text)
        root = {"$ref": f"#/components/schemas/{schema}", "components": document["components"]}
        for event in events:
            jsonschema.validate(event, root, jsonschema.Draft202012Validator)
    print(f"events and lines of {len(STREAMS)} streams are of their schemas")


def main():
    # Few tokens, so that thousands of requests take a minute.
    server = Server(SISKIN, "--max-tokens", "8", "--context", "256", DECODER, ENCODER)
    try:
        fixed = {"model": "smollm2", "messages": QUESTION, "temperature": 0}
        before = json.loads(send(server, "/v1/chat/completions", body=fixed)[1])["choices"]
        document = json.loads(server.get("/openapi.json"))
        check_streams(server, document)
        check_not_supported(server)
        check_operations(server, document)
        server.wait_until_idle()
        assert server.metric("siskin_request_success_total", finished_reason="error") == 0
        assert json.loads(send(server, "/v1/chat/completions", body=fixed)[1])["choices"] == before
        print("afterwards the server answers as before")
        server.stop()
    finally:
        server.process.kill()
    print("siskin serve is what /openapi.json describes")


main()
