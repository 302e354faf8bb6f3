"""Runs `siskin serve` and uses it with the clients of KServe and Triton.

    python inference_protocol_clients.py SISKIN SMOLLM2 MINILM
"""

import asyncio
import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

import httpx
import kserve
import numpy
import tritonclient.http as triton
from siskin_server import Server

SISKIN, DECODER, ENCODER = sys.argv[1:4]
TEXTS = ["A siskin is a small bird.", "Ein Zeisig ist ein kleiner Vogel.", "ö" * 50]


def command(*arguments):
    """Returns the JSON that a command of the program prints, one value per line."""
    output = subprocess.run(
        [SISKIN, "--quiet", *arguments], check=True, capture_output=True, text=True
    ).stdout
    return [json.loads(line) for line in output.splitlines()]


def expected_embeddings():
    return numpy.array([line["embedding"] for line in command("embed", ENCODER, "--json", *TEXTS)])


def expected_text():
    return command("run", DECODER, "The capital of", "--raw", "--greedy", "-n", "8", "--json")[0]["text"]


def triton_input(texts, binary=True):
    tensor = triton.InferInput("text", [len(texts)], "BYTES")
    tensor.set_data_from_numpy(numpy.array([text.encode() for text in texts], object), binary_data=binary)
    return tensor


def rejected(call, text):
    try:
        call()
    except triton.InferenceServerException as error:
        assert text in error.message(), error
        return
    raise AssertionError(f"expected an error: {text}")


def check_triton(server, embeddings, text):
    client = triton.InferenceServerClient(server.address)
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("minilm") and client.is_model_ready("minilm", "1")
    assert not client.is_model_ready("gpt-9") and not client.is_model_ready("minilm", "2")
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    metadata = client.get_model_metadata("minilm")
    assert metadata["outputs"][0]["datatype"] == "FP32" and metadata["versions"] == ["1"], metadata
    assert {model["name"] for model in client.get_model_repository_index()} == {"smollm2", "minilm"}

    for binary_input in [True, False]:
        for outputs in [
            None,
            [triton.InferRequestedOutput("embedding")],
            [triton.InferRequestedOutput("embedding", binary_data=False)],
        ]:
            inputs = [triton_input(TEXTS, binary_input)]
            result = client.infer("minilm", inputs, outputs=outputs, request_id="7")
            found = result.as_numpy("embedding")
            assert found.dtype == numpy.float32 and numpy.allclose(found, embeddings, atol=1e-6)
            assert result.get_response()["id"] == "7"
    generated = client.infer(
        "smollm2",
        [triton_input(["The capital of", "The capital of"])],
        model_version="1",
        parameters={"max_tokens": 8, "temperature": 0.0},
    )
    assert list(generated.as_numpy("text")) == [text.encode()] * 2, generated.as_numpy("text")
    futures = [client.async_infer("minilm", [triton_input([each])]) for each in TEXTS]
    for future, embedding in zip(futures, embeddings):
        assert numpy.allclose(future.get_result().as_numpy("embedding")[0], embedding, atol=1e-6)

    rejected(lambda: client.infer("gpt-9", [triton_input(TEXTS)]), "no model `gpt-9`")
    rejected(lambda: client.infer("minilm", [triton_input(TEXTS)], parameters={"bogus": 1}), "bogus")
    rejected(lambda: client.infer("minilm", [triton_input(TEXTS)], priority=1), "priority")
    rejected(lambda: client.infer("minilm", [triton_input(["word " * 3000])]), "inputs[0].data[0]")
    rejected(lambda: client.load_model("other"), "admin")
    rejected(lambda: client.unload_model("minilm"), "admin")
    client.close()


def check_loading(embeddings):
    """Loads and unloads models of a folder, with an admin key."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        made = subprocess.run([SISKIN, "api-key", "operator", "--admin"], check=True, capture_output=True, text=True)
        key = made.stderr.split()[-1]
        (folder / "keys.toml").write_text(made.stdout)
        models = folder / "models"
        (models / "encoder").mkdir(parents=True)
        for version in ["1", "2"]:
            (models / "encoder" / version).with_suffix(pathlib.Path(ENCODER).suffix).symlink_to(ENCODER)
        (models / "note.txt").write_text("not a model")
        server = Server(SISKIN, "--models-dir", str(models), "--api-key-file", str(folder / "keys.toml"))
        try:
            client = triton.InferenceServerClient(server.address)
            headers = {"authorization": f"Bearer {key}"}
            states = lambda: [(model["name"], model["state"]) for model in client.get_model_repository_index(headers)]
            assert states() == [("encoder", "UNAVAILABLE")], states()
            client.load_model("encoder", headers)
            assert states() == [("encoder", "READY")], states()
            listed = json.loads(server.get("/admin/models", headers))["models"]
            assert listed[0]["version"] == "2", listed
            found = client.infer("encoder", [triton_input(TEXTS)], headers=headers).as_numpy("embedding")
            assert numpy.allclose(found, embeddings, atol=1e-6)
            client.unload_model("encoder", headers)
            assert states() == [("encoder", "UNAVAILABLE")], states()
            rejected(lambda: client.infer("encoder", [triton_input(TEXTS)], headers=headers), "no model `encoder`")
            client.close()
            server.stop()
        finally:
            server.process.kill()


async def check_kserve(server, embeddings, text):
    client = kserve.InferenceRESTClient(kserve.inference_client.RESTConfig(protocol="v2", retries=0))
    assert await client.is_server_live(server.url) and await client.is_server_ready(server.url)
    assert await client.is_model_ready(server.url, "minilm")
    assert not await client.is_model_ready(server.url, "gpt-9")
    for binary_input, binary_output in [(False, False), (True, False), (False, True), (True, True)]:
        tensor = kserve.InferInput("text", [len(TEXTS)], "BYTES")
        texts = numpy.array([each.encode() for each in TEXTS], object)
        tensor.set_data_from_numpy(texts, binary_data=binary_input)
        request = kserve.InferRequest(
            "minilm", [tensor], parameters={"binary_data_output": binary_output}
        )
        response = await client.infer(server.url, request, model_name="minilm")
        (output,) = response.outputs
        assert output.shape == list(embeddings.shape) and response.model_name == "minilm"
        assert numpy.allclose(output.as_numpy(), embeddings, atol=1e-6)
    prompt = kserve.InferInput("text", [1], "BYTES", data=["The capital of"])
    request = kserve.InferRequest("smollm2", [prompt], parameters={"max_tokens": 8, "temperature": 0})
    response = await client.infer(server.url, request, model_name="smollm2")
    assert response.outputs[0].data == [text], response.outputs[0].data
    try:
        await client.infer(server.url, {"inputs": []}, model_name="minilm")
        raise AssertionError("a request without inputs")
    except httpx.HTTPStatusError as error:
        assert error.response.status_code == 400 and "inputs" in str(error), error
    await client.close()


def check_generate(server, text):
    body = {"text_input": "The capital of", "parameters": {"max_tokens": 8, "temperature": 0}}

    def post(path):
        request = urllib.request.Request(server.url + path, json.dumps(body).encode())
        with urllib.request.urlopen(request) as response:
            return response.read().decode()

    assert json.loads(post("/v2/models/smollm2/generate"))["text_output"] == text
    lines = post("/v2/models/smollm2/generate_stream").splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert "".join(event["text_output"] for event in events) == text
    assert events[-1]["finish_reason"] == "length"


def main():
    embeddings, text = expected_embeddings(), expected_text()
    server = Server(SISKIN, DECODER, ENCODER)
    try:
        check_triton(server, embeddings, text)
        asyncio.run(check_kserve(server, embeddings, text))
        check_generate(server, text)
        server.stop()
    finally:
        server.process.kill()
    check_loading(embeddings)
    print("siskin serve answers the clients of KServe and Triton")


if __name__ == "__main__":
    main()
