"""Shares a cache between `siskin` and huggingface_hub, from a server on this machine.

    python hugging_face_hub.py SISKIN
"""

import hashlib
import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

SISKIN = sys.argv[1]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "README.md": b"# A model",
    "config.json": b'{"model_type": "llama"}',
    "tiny-q4_0.gguf": bytes(range(256)) * 2000,
    "tiny-f16.gguf": bytes(range(255)) * 3000,
}
LARGE = 100_000


def git_blob(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Hub(http.server.BaseHTTPRequestHandler):
    """The routes of Hugging Face that clients use: the description of a revision, and files with redirects."""

    protocol_version = "HTTP/1.1"
    requests = []

    def log_message(self, *arguments):
        pass

    def answer(self, status, body, headers):
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        Hub.requests.append(f"{self.command} {self.path}")
        path = self.path.split("?")[0]
        if re.fullmatch(rf"/api/models/org/tiny(/revision/(main|{COMMIT}))?", path):
            siblings = []
            for name, data in FILES.items():
                sibling = {"rfilename": name, "size": len(data), "blobId": git_blob(data)}
                if len(data) > LARGE:
                    sibling["lfs"] = {"sha256": sha256(data), "size": len(data), "pointerSize": 130}
                siblings.append(sibling)
            body = {"id": "org/tiny", "modelId": "org/tiny", "sha": COMMIT, "siblings": siblings, "private": False}
            return self.answer(200, json.dumps(body).encode(), {"content-type": "application/json"})
        found = re.fullmatch(rf"/org/tiny/resolve/(main|{COMMIT})/(.+)", path)
        stored = re.fullmatch(r"/stored/(.+)", path)
        name = found[2] if found else stored[1] if stored else None
        if name not in FILES:
            return self.answer(404, b"", {"x-error-code": "EntryNotFound"})
        data = FILES[name]
        digest = sha256(data) if len(data) > LARGE else git_blob(data)
        headers = {"etag": f'"{digest}"', "x-repo-commit": COMMIT, "accept-ranges": "bytes"}
        if found and len(data) > LARGE:
            headers |= {"location": f"http://{self.headers['host']}/stored/{name}"}
            headers |= {"x-linked-etag": f'"{digest}"', "x-linked-size": str(len(data))}
            return self.answer(302, b"", headers)
        if asked := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("range", "")):
            start, end = int(asked[1]), min(int(asked[2] or len(data)) + 1, len(data))
            headers["content-range"] = f"bytes {start}-{end - 1}/{len(data)}"
            return self.answer(206, data[start:end], headers)
        return self.answer(200, data, headers)


def siskin(*arguments, offline=False):
    environment = {**os.environ, "SISKIN_OFFLINE": "1"} if offline else os.environ
    done = subprocess.run([SISKIN, "--quiet", *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def bytes_requested():
    return [line for line in Hub.requests if line.startswith("GET /stored/") or ".json" in line]


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        os.environ |= {
            "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
            "HF_HOME": str(folder / "huggingface"),
            "SISKIN_HOME": str(folder / "siskin"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }
        # It reads the environment when it is imported.
        import huggingface_hub

        pulled = siskin("pull", "hf:org/tiny")
        assert pathlib.Path(pulled).read_bytes() == FILES["tiny-q4_0.gguf"], pulled
        before = len(bytes_requested())
        found = huggingface_hub.hf_hub_download("org/tiny", "tiny-q4_0.gguf")
        assert found == pulled and len(bytes_requested()) == before, (found, pulled, Hub.requests)
        found = huggingface_hub.hf_hub_download("org/tiny", "tiny-q4_0.gguf", local_files_only=True)
        assert found == pulled
        print("huggingface_hub finds what siskin downloaded")

        other = huggingface_hub.hf_hub_download("org/tiny", "tiny-f16.gguf")
        before = len(bytes_requested())
        assert siskin("pull", "hf:org/tiny:f16") == other and len(bytes_requested()) == before, Hub.requests
        assert siskin("pull", "hf:org/tiny:tiny-f16.gguf", offline=True) == other
        listed = {json.loads(line)["path"] for line in siskin("list", "--json").splitlines()}
        assert {pulled, other} <= listed, listed
        print("siskin finds what huggingface_hub downloaded")

        cache = huggingface_hub.scan_cache_dir()
        (repository,) = cache.repos
        names = {file.file_name for revision in repository.revisions for file in revision.files}
        assert not cache.warnings and names == {"tiny-q4_0.gguf", "tiny-f16.gguf"}, (cache.warnings, names)
        siskin("rm", "hf:org/tiny")
        (repository,) = huggingface_hub.scan_cache_dir().repos
        assert repository.size_on_disk == len(FILES["tiny-f16.gguf"]), repository
        print("the cache is as huggingface_hub expects it")


if __name__ == "__main__":
    main()
