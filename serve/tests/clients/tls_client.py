"""Runs `siskin serve` with TLS, and uses it with OpenAI's Python package.

    python tls_client.py SISKIN SMOLLM2
"""

import pathlib
import ssl
import sys

import httpx
import openai
import siskin_server

SISKIN, DECODER = sys.argv[1:3]
DATA = pathlib.Path(__file__).parents[1] / "data"


def main():
    certificate, key = str(DATA / "localhost.pem"), str(DATA / "localhost.key")
    server = siskin_server.Server(SISKIN, DECODER, "--tls-certificates", certificate, "--tls-key", key)
    assert server.url.startswith("https://"), server.url
    trusting = httpx.Client(verify=ssl.create_default_context(cafile=certificate))
    client = openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, http_client=trusting
    )
    try:
        stream = client.completions.create(model="smollm2", prompt="The sky is", max_tokens=8, stream=True)
        assert len(list(stream)) >= 8
        for url, verify in [(server.url, True), (server.url.replace("https", "http"), False)]:
            try:
                httpx.get(f"{url}/health", verify=verify)
            except httpx.TransportError:
                continue
            raise AssertionError(f"{url}: an answer to a client that does not trust it")
        trusting.close()
        server.stop()
    finally:
        server.process.kill()
    print("siskin serve answers over TLS")


if __name__ == "__main__":
    main()
