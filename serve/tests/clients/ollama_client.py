"""Runs `siskin serve` and uses it with Ollama's Python package, as its users do.

    python ollama_client.py SISKIN SMOLLM2 MINILM
"""

import asyncio
import json
import subprocess
import sys
import typing

import ollama
import pydantic
from siskin_server import Server

SISKIN, DECODER, ENCODER = sys.argv[1:4]
QUESTION = [{"role": "user", "content": "Why is the sky blue?"}]


def command(*arguments):
    """Returns the JSON that a command of the program prints, one value per line."""
    output = subprocess.run(
        [SISKIN, "--quiet", *arguments], check=True, capture_output=True, text=True
    ).stdout
    return [json.loads(line) for line in output.splitlines()]


def rejected(call, status, text):
    try:
        call()
    except ollama.ResponseError as error:
        assert error.status_code == status and text in error.error, (error.status_code, error.error)
        return
    raise AssertionError(f"expected an error: {text}")


def check_models(client):
    models = {model.model: model for model in client.list().models}
    assert set(models) == {"smollm2:latest", "minilm:latest"}, models
    decoder = models["smollm2:latest"]
    assert decoder.details.family == "llama" and decoder.details.parameter_size == "134.5M", decoder
    assert len(decoder.digest) == 64 and decoder.size > 50_000_000, decoder
    running = {model.model: model for model in client.ps().models}
    assert set(running) == set(models) and running["smollm2:latest"].digest == decoder.digest
    for name in ["smollm2", "smollm2:latest"]:
        shown = client.show(name)
        assert shown.capabilities[0] == "completion", shown
        assert shown.modelinfo["llama.block_count"] == 30 and "im_start" in shown.template, shown
    assert client.show("minilm").capabilities == ["embedding"]
    rejected(lambda: client.show("gpt-9"), 404, "no model `gpt-9`")


def check_chat(client):
    # The same tokens as those of a session.
    alone = command(
        "run", DECODER, QUESTION[0]["content"], "--greedy", "-n", "12", "--json"
    )[0]["text"]
    greedy = {"temperature": 0, "num_predict": 12}
    whole = client.chat("smollm2", QUESTION, options=greedy)
    assert whole.message.content == alone, (whole, alone)
    assert whole.done and whole.done_reason == "length" and whole.eval_count == 12, whole
    durations = [whole.load_duration, whole.prompt_eval_duration, whole.eval_duration]
    assert min(durations) > 0 and sum(durations) <= whole.total_duration * 1.1, whole
    parts = list(client.chat("smollm2:latest", QUESTION, options=greedy, stream=True))
    assert "".join(part.message.content for part in parts) == alone
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].prompt_eval_count == whole.prompt_eval_count

    stop = alone.split()[2]
    stopped = client.chat("smollm2", QUESTION, options=ollama.Options(**greedy, stop=[stop]))
    assert stopped.message.content == alone[: alone.index(stop)] and stopped.done_reason == "stop"
    scored = client.chat("smollm2", QUESTION, options=greedy, logprobs=True, top_logprobs=3)
    assert len(scored.logprobs) == 12 and all(len(entry.top_logprobs) == 3 for entry in scored.logprobs)
    assert "".join(entry.token for entry in scored.logprobs) == alone

    generated = client.generate("smollm2", QUESTION[0]["content"], options=greedy)
    assert generated.response == alone, generated
    raw = command("run", DECODER, "The capital of", "--raw", "--greedy", "-n", "8", "--json")[0]["text"]
    greedy["num_predict"] = 8
    parts = client.generate("smollm2", "The capital of", raw=True, options=greedy, stream=True)
    assert "".join(part.response for part in parts) == raw
    assert client.generate("smollm2", "", keep_alive=0).done_reason == "unload"
    assert client.generate("smollm2", keep_alive="5m").done_reason == "load"


class Person(pydantic.BaseModel):
    """What a response is."""

    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=120)
    hobbies: list[typing.Literal["chess", "football", "music"]] = pydantic.Field(max_length=3)


def get_weather(city: str, days: int) -> str:
    """Returns the weather of a city.

    Args:
        city: The name of the city
        days: The number of days
    """
    return f"22 degrees in {city} for {days} days"


def check_structure(client):
    describe = [{"role": "user", "content": "Describe Ann, who is 31 and likes music. Use JSON."}]
    for seed in range(3):
        options = {"seed": seed, "num_predict": 300}
        response = client.chat("smollm2", describe, format=Person.model_json_schema(), options=options)
        Person.model_validate_json(response.message.content)
    response = client.generate("smollm2", "List a color. Use JSON.", format="json", options={"num_predict": 200})
    if response.done_reason == "stop":
        assert isinstance(json.loads(response.response), dict), response

    # With a format, a response is a call, or of the format: a small model calls.
    question = [{"role": "user", "content": "What is the weather in Paris in the next 2 days?"}]
    options = {"seed": 1, "num_predict": 120, "temperature": 1.0}
    fields = {"tools": [get_weather], "format": {"enum": [0]}, "options": options}
    response = client.chat("smollm2", question, **fields)
    assert response.done_reason == "stop" and not response.message.content, response
    streamed = client.chat("smollm2", question, stream=True, **fields)
    calls = [call for part in streamed for call in part.message.tool_calls or []]
    assert calls and calls == response.message.tool_calls, (calls, response)
    messages = [*question, response.message]
    for call in calls:
        assert call.function.name == "get_weather", call
        result = get_weather(call.function.arguments["city"], call.function.arguments["days"])
        messages.append({"role": "tool", "tool_name": "get_weather", "content": result})
    answer = client.chat("smollm2", messages, tools=[get_weather], options={"num_predict": 4})
    assert answer.eval_count > 0, answer


def check_embeddings(client):
    texts = ["A siskin is a small bird.", "Ein Zeisig ist ein kleiner Vogel.", "x " * 100]
    alone = [line["embedding"] for line in command("embed", ENCODER, "--json", *texts)]
    response = client.embed("minilm", texts)
    for own, expected in zip(response.embeddings, alone, strict=True):
        assert all(abs(a - b) < 1e-6 for a, b in zip(own, expected, strict=True))
    assert response.prompt_eval_count > 100
    assert list(client.embeddings("minilm", texts[0]).embedding) == list(response.embeddings[0])
    assert len(client.embed("minilm", texts[0], dimensions=16).embeddings[0]) == 16
    rejected(lambda: client.embed("minilm", "word " * 3000, truncate=False), 400, "input")
    client.embed("minilm", "word " * 3000)


def check_errors(client):
    chat = lambda **fields: client.chat("smollm2", QUESTION, **fields)
    rejected(lambda: client.chat("gpt-9", QUESTION), 404, "no model `gpt-9`")
    rejected(lambda: next(client.chat("gpt-9", QUESTION, stream=True)), 404, "no model `gpt-9`")
    rejected(lambda: client.chat("minilm", QUESTION), 400, "is an encoder")
    rejected(lambda: chat(options={"temprature": 1}), 400, "options.temprature: unknown field")
    rejected(lambda: chat(options={"num_ctx": 1 << 20}), 400, "options.num_ctx")
    rejected(lambda: chat(think=True), 400, "does not support thinking")
    rejected(lambda: client.generate("smollm2", "a", suffix="b"), 400, "suffix")
    rejected(lambda: client.generate("smollm2", "a", images=["aGk="]), 400, "images")
    rejected(lambda: client.pull("llama3.2"), 501, "siskin serve")
    rejected(lambda: client.push("llama3.2"), 501, "siskin export")
    rejected(lambda: client.create("new", from_="smollm2"), 501, "siskin convert")
    rejected(lambda: client.copy("smollm2", "new"), 501, "siskin serve")
    rejected(lambda: client.delete("smollm2"), 501, "siskin serve")


async def check_concurrency(server):
    """Many conversations at once have the answers that they have alone."""
    client = ollama.AsyncClient(server.url)
    questions = [f"Tell me something about the number {number}." for number in range(8)]

    async def answer(index):
        messages = [{"role": "user", "content": questions[index]}]
        options = {"seed": index, "num_predict": 10}
        return (await client.chat("smollm2", messages, options=options)).message.content

    answers = await asyncio.gather(*map(answer, range(len(questions))))
    for index, text in enumerate(answers):
        assert await answer(index) == text, questions[index]


def check_cancellation(server, client):
    """A client that leaves ends its request."""
    before = server.metric("siskin_request_success_total", finished_reason="abort")
    essay = [{"role": "user", "content": "Write a long story about a bird, with many chapters."}]
    stream = client.chat("smollm2", essay, stream=True, options={"num_predict": 1500, "seed": 1})
    for _ in zip(range(4), stream):
        pass
    stream.close()
    server.wait_until_idle()
    assert server.metric("siskin_request_success_total", finished_reason="abort") == before + 1


def main():
    server = Server(SISKIN, DECODER, ENCODER)
    client = ollama.Client(server.url)
    try:
        assert json.loads(server.get("/api/version"))["version"]
        check_models(client)
        check_chat(client)
        check_structure(client)
        check_embeddings(client)
        check_errors(client)
        asyncio.run(check_concurrency(server))
        check_cancellation(server, client)
        server.stop()
    finally:
        server.process.kill()
    print("siskin serve answers the ollama package")


if __name__ == "__main__":
    main()
