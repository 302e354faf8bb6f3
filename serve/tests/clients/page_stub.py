"""A server with the chat page of another one, whose answers a test scripts."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODELS = [{"id": "stub", "capabilities": ["completion", "chat"]}]


def answer(*deltas, **usage):
    """Returns the events of an answer; a delta is content, or an object."""
    for delta in deltas:
        delta = {"content": delta} if isinstance(delta, str) else delta
        yield {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    yield {"choices": [], "usage": {"completion_tokens": len(deltas), **usage}}


class Stub:
    """A server whose `answers` are returned in order: lists of events, or a status and a message."""

    def __init__(self, page, headers):
        self.page, self.headers = page, headers
        self.models, self.answers, self.key = MODELS, [], None
        # The bodies and API keys of the requests, and all paths that were requested.
        self.bodies, self.keys, self.paths = [], [], []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                stub.paths.append(self.path)
                if self.path == "/":
                    self.reply(200, stub.page, stub.headers)
                elif self.path == "/v1/models":
                    self.reply_json(200, {"object": "list", "data": stub.models})
                else:
                    self.reply_json(404, {"error": {"message": "no route"}})

            def do_POST(self):
                stub.paths.append(self.path)
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                key = self.headers["authorization"]
                if stub.key and key != f"Bearer {stub.key}":
                    return self.reply_json(401, {"error": {"message": "a wrong key"}})
                stub.bodies.append(body)
                stub.keys.append(key)
                script = stub.answers.pop(0)
                if isinstance(script, tuple):
                    return self.reply_json(script[0], {"error": {"message": script[1]}})
                self.stream(script)

            def stream(self, events):
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                try:
                    for event in events:
                        # `None` closes the connection, and a number is a pause.
                        if event is None:
                            return
                        if isinstance(event, float):
                            time.sleep(event)
                            continue
                        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
                    self.wfile.write(b": a comment\n\ndata: [DONE]\n\n")
                except OSError:
                    stub.paths.append("left")

            def reply_json(self, status, value):
                self.reply(status, json.dumps(value).encode(), {"content-type": "application/json"})

            def reply(self, status, content, headers):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
