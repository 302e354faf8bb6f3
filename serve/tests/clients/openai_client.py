"""Runs `siskin serve` and uses it with OpenAI's Python package, as its users do.

    python openai_client.py SISKIN SMOLLM2 MINILM
"""

import asyncio
import json
import re
import signal
import subprocess
import sys
import urllib.error
from typing import Literal

import openai
import pydantic
import siskin_server

SISKIN, DECODER, ENCODER = sys.argv[1:4]
CHAT = [
    {"role": "system", "content": "You answer in one short sentence."},
    {"role": "user", "content": "Why is the sky blue?"},
]


def command(*arguments):
    """Returns the JSON that a command of the program prints, one value per line."""
    output = subprocess.run(
        [SISKIN, "--quiet", *arguments], check=True, capture_output=True, text=True
    ).stdout
    return [json.loads(line) for line in output.splitlines()]


class Server(siskin_server.Server):
    """A running server, and clients of it."""

    def client(self, kind=openai.OpenAI):
        return kind(base_url=f"{self.url}/v1", api_key="none", max_retries=0)


def rejected(kind, call, param=None, code=None):
    error = siskin_server.raised(kind, call)
    assert param is None or error.param == param, (error.param, error.message)
    assert code is None or error.code == code, (error.code, error.message)
    return error


def check_models(server, client):
    assert {model.id for model in client.models.list()} == {"smollm2", "minilm"}
    assert client.models.retrieve("minilm").object == "model"
    capabilities = {"smollm2": ["completion", "chat"], "minilm": ["embedding"]}
    assert {model.id: model.capabilities for model in client.models.list()} == capabilities
    rejected(openai.NotFoundError, lambda: client.models.retrieve("gpt-9"), code="model_not_found")
    for path in ["/health", "/health/live", "/health/ready"]:
        assert json.loads(server.get(path)) == {"status": "ok"}
    for headers in [{"Host": "evil.example"}, {"Origin": "http://evil.example"}]:
        try:
            server.get("/v1/models", headers)
            raise AssertionError(headers)
        except urllib.error.HTTPError as error:
            assert error.code == 403, error.code


def chat(client, **options):
    return client.chat.completions.create(
        model="smollm2", messages=options.pop("messages", CHAT), **options
    )


def check_chat(server, client):
    # The same tokens as those of a session.
    alone = command(
        "run", DECODER, "Why is the sky blue?", "--greedy", "-n", "12", "--json"
    )[0]["text"]
    user = [CHAT[1]]
    whole = chat(client, messages=user, temperature=0, max_tokens=12)
    assert whole.choices[0].message.content == alone, (whole, alone)
    assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 12
    assert whole.system_fingerprint.startswith("fp_")

    stream = chat(
        client,
        messages=user,
        temperature=0,
        max_completion_tokens=12,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == alone and chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage.completion_tokens == 12 and not chunks[-1].choices
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    # The prompt of the same conversation is in the prefix cache.
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens > 0

    # Choices have the following seeds.
    pair = chat(client, seed=7, n=2, max_tokens=8)
    singles = [chat(client, seed=7 + index, max_tokens=8) for index in range(2)]
    assert [choice.index for choice in pair.choices] == [0, 1]
    for choice, single in zip(pair.choices, singles):
        assert choice.message.content == single.choices[0].message.content

    scored = chat(client, temperature=0, max_tokens=4, logprobs=True, top_logprobs=3)
    content = scored.choices[0].logprobs.content
    assert len(content) == 4 and all(len(entry.top_logprobs) == 3 for entry in content)
    for entry in content:
        assert entry.logprob <= 0 and bytes(entry.bytes).decode(errors="replace") == entry.token
        assert entry.top_logprobs[0].logprob == max(top.logprob for top in entry.top_logprobs)
    assert "".join(entry.token for entry in content) == scored.choices[0].message.content

    stop = alone.split()[2]
    stopped = chat(client, messages=user, temperature=0, max_tokens=12, stop=[stop])
    assert stopped.choices[0].finish_reason == "stop"
    assert stopped.choices[0].message.content == alone[: alone.index(stop)]

    parts = [{"type": "text", "text": "Why is the sky blue?"}]
    same = chat(client, messages=[{"role": "user", "content": parts}], temperature=0, max_tokens=12)
    assert same.choices[0].message.content == alone


def check_completions(client):
    alone = command("run", DECODER, "The capital of", "--raw", "--greedy", "-n", "8", "--json")[0]["text"]
    prompts = ["The capital of", "Once upon a"]
    both = client.completions.create(
        model="smollm2", prompt=prompts, temperature=0, max_tokens=8, logprobs=2
    )
    assert [choice.index for choice in both.choices] == [0, 1]
    assert both.choices[0].text == alone, (both.choices[0].text, alone)
    log_probabilities = both.choices[0].logprobs
    assert len(log_probabilities.tokens) == len(log_probabilities.token_logprobs) == 8
    assert log_probabilities.text_offset[0] == 0
    streamed = client.completions.create(
        model="smollm2", prompt=prompts[0], temperature=0, max_tokens=8, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in streamed) == alone


def check_embeddings(client):
    texts = ["A siskin is a small bird.", "Ein Zeisig ist ein kleiner Vogel.", "", "x " * 100]
    alone = command("embed", ENCODER, "--json", *texts)
    # The package asks for base64 by itself; `float` is the other form.
    for form in [{}, {"encoding_format": "float"}]:
        response = client.embeddings.create(model="minilm", input=texts, **form)
        for index, entry in enumerate(response.data):
            assert entry.index == index
            expected = alone[index]["embedding"]
            assert all(abs(a - b) < 1e-6 for a, b in zip(entry.embedding, expected, strict=True))
    assert response.usage.total_tokens > 100
    short = client.embeddings.create(model="minilm", input=texts[0], dimensions=16)
    assert len(short.data[0].embedding) == 16
    long = "word " * 3000
    rejected(
        openai.BadRequestError,
        lambda: client.embeddings.create(model="minilm", input=long),
        code="context_length_exceeded",
    )
    client.embeddings.create(model="minilm", input=long, extra_body={"truncate": True})


def check_errors(client):
    rejected(
        openai.NotFoundError,
        lambda: client.chat.completions.create(model="gpt-9", messages=CHAT),
        param="model",
    )
    for param, options in {
        "temprature": {"extra_body": {"temprature": 1}},
        "temperature": {"temperature": -1},
        "n": {"n": 99},
        "top_logprobs": {"top_logprobs": 2},
        "max_tokens": {"max_tokens": 0},
        "stop": {"stop": ["a"] * 17},
        "logit_bias": {"logit_bias": {"word": 1}},
        "response_format": {"response_format": {"type": "xml"}},
        "messages": {"messages": []},
        "tools[0].type": {"tools": [{"type": "web_search"}]},
        "tool_choice": {"tool_choice": "required"},
    }.items():
        error = rejected(openai.BadRequestError, lambda: chat(client, **options), param=param)
        assert error.type == "invalid_request_error"
    rejected(
        openai.BadRequestError,
        lambda: chat(client, messages=[{"role": "user", "content": "word " * 9000}]),
        code="context_length_exceeded",
    )
    rejected(
        openai.BadRequestError,
        lambda: client.chat.completions.create(model="minilm", messages=CHAT),
        param="model",
    )


class Person(pydantic.BaseModel):
    """What `parse()` asks for."""

    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=120)
    hobbies: list[Literal["chess", "football", "music"]] = pydantic.Field(max_length=3)


def check_structured_output(client):
    describe = [{"role": "user", "content": "Describe Ann, who is 31 and likes music. Use JSON."}]
    for seed in range(4):
        parsed = client.chat.completions.parse(
            model="smollm2", messages=describe, response_format=Person, seed=seed, max_tokens=300
        ).choices[0]
        assert parsed.finish_reason == "stop" and isinstance(parsed.message.parsed, Person), parsed
    with client.chat.completions.stream(
        model="smollm2", messages=describe, response_format=Person, temperature=0
    ) as stream:
        final = stream.get_final_completion().choices[0]
    assert isinstance(final.message.parsed, Person), final

    schema = Person.model_json_schema()
    for fields in [
        {"structured_outputs": {"json": schema}},
        {"guided_json": schema},
        {"json_schema": schema},
    ]:
        content = chat(client, messages=describe, temperature=0, extra_body=fields)
        assert content.choices[0].message.content == final.message.content, fields
    choices = ["red", "green", "blue"]
    for fields in [{"structured_outputs": {"choice": choices}}, {"guided_choice": choices}]:
        answer = chat(client, seed=1, extra_body=fields).choices[0]
        assert answer.message.content in choices and answer.finish_reason == "stop", answer
    number = chat(client, extra_body={"guided_regex": r"-?[1-9][0-9]{0,4}"}).choices[0]
    assert re.fullmatch(r"-?[1-9][0-9]{0,4}", number.message.content), number
    for grammar in ['root ::= ("ha"){2,4} "!"', 'start: ("ha"){2,4} "!"']:
        laugh = client.completions.create(
            model="smollm2", prompt="He laughed: ", extra_body={"grammar": grammar}
        ).choices[0]
        assert re.fullmatch("(ha){2,4}!", laugh.text), laugh
    with_log_probabilities = chat(
        client, messages=describe, temperature=0, logprobs=True, response_format={"type": "json_object"}, max_tokens=40
    )
    without = chat(
        client, messages=describe, temperature=0, response_format={"type": "json_object"}, max_tokens=40
    )
    assert with_log_probabilities.choices[0].message.content == without.choices[0].message.content
    entries = with_log_probabilities.choices[0].logprobs.content
    assert len(entries) == with_log_probabilities.usage.completion_tokens

    for schema in [{"type": "array", "contains": {}}, {"$ref": "#/nowhere"}]:
        error = rejected(
            openai.BadRequestError,
            lambda: chat(client, extra_body={"guided_json": schema}),
            param="guided_json",
        )
        assert "contains" in error.message or "nowhere" in error.message, error.message
    rejected(
        openai.BadRequestError,
        lambda: chat(client, extra_body={"guided_regex": "a", "guided_choice": ["b"]}),
        param="guided_choice",
    )


class GetWeather(pydantic.BaseModel):
    """Returns the weather of a city."""

    city: Literal["Paris", "London", "Rome"]
    days: int = pydantic.Field(ge=1, le=7)


def check_tools(client):
    question = [{"role": "user", "content": "What is the weather in Paris?"}]
    tools = [openai.pydantic_function_tool(GetWeather)]
    options = {
        "model": "smollm2",
        "messages": question,
        "tools": tools,
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_tokens": 200,
        "seed": 3,
    }
    called = client.chat.completions.parse(**options).choices[0]
    assert called.finish_reason == "tool_calls" and called.message.content is None, called
    (call,) = called.message.tool_calls
    assert isinstance(call.function.parsed_arguments, GetWeather), call
    with client.chat.completions.stream(**options) as stream:
        final = stream.get_final_completion().choices[0]
    assert final.finish_reason == "tool_calls", final
    (streamed,) = final.message.tool_calls
    assert streamed.function.arguments == call.function.arguments, (streamed, call)

    # The result is appended to the conversation; then without tools.
    result = {"role": "tool", "tool_call_id": call.id, "content": "22 degrees"}
    after = [*question, called.message.model_dump(exclude_none=True), result]
    for message in after:
        for entry in message.get("tool_calls", []):
            entry["function"].pop("parsed_arguments", None)
    for choice in ["auto", "none"]:
        answer = chat(client, messages=after, tools=tools, tool_choice=choice, temperature=0, max_tokens=8)
        assert answer.choices[0].finish_reason in ["length", "stop", "tool_calls"], answer
    plain = chat(client, messages=question, temperature=0, max_tokens=8)
    none = chat(client, messages=question, tools=tools, tool_choice="none", temperature=0, max_tokens=8)
    assert none.choices[0].message.content == plain.choices[0].message.content
    assert none.usage.prompt_tokens == plain.usage.prompt_tokens

    named = {"type": "function", "function": {"name": "GetWeather"}}
    several = chat(client, messages=question, tools=tools, tool_choice=named, n=2, seed=1, max_tokens=400)
    for choice in several.choices:
        assert {call.function.name for call in choice.message.tool_calls} == {"GetWeather"}, choice
        if choice.finish_reason == "tool_calls":
            for call in choice.message.tool_calls:
                GetWeather.model_validate_json(call.function.arguments)


async def check_concurrency(server):
    """Many conversations at once have the answers that they have alone."""
    client = server.client(openai.AsyncOpenAI)
    questions = [f"Tell me something about the number {number}." for number in range(12)]

    async def answer(question, index):
        response = await client.chat.completions.create(
            model="smollm2",
            messages=[{"role": "user", "content": question}],
            seed=index,
            max_tokens=10,
        )
        return response.choices[0].message.content

    async def vector(text):
        response = await client.embeddings.create(model="minilm", input=text)
        return response.data[0].embedding

    async def both():
        answers = asyncio.gather(*map(answer, questions, range(len(questions))))
        vectors = asyncio.gather(*map(vector, questions))
        return await answers, await vectors

    answers, vectors = await both()
    for index, question in enumerate(questions):
        assert await answer(question, index) == answers[index], question
        assert await vector(question) == vectors[index], question
    await client.close()


def check_cancellation(server, client):
    """A client that leaves ends its request."""
    before = server.metric("siskin_request_success_total", finished_reason="abort")
    stream = chat(client, max_tokens=2000, stream=True, extra_body={"logit_bias": {"2": -100}})
    for _ in zip(range(4), stream):
        pass
    stream.close()
    server.wait_until_idle()
    assert server.metric("siskin_request_success_total", finished_reason="abort") == before + 1


def check_metrics(server):
    assert server.metric("siskin_generation_tokens_total", model="smollm2") > 100
    for name in ["time_to_first_token", "inter_token_latency", "e2e_request_latency"]:
        count = server.metric(f"siskin_{name}_seconds_count", model="smollm2")
        assert count > 10, name
        assert server.metric(f"siskin_{name}_seconds_bucket", model="smollm2", le="+Inf") == count


def check_shutdown(server, client):
    """Running requests end before the server does."""
    stream = chat(client, temperature=0, max_tokens=40, stream=True)
    next(stream)
    server.process.send_signal(signal.SIGTERM)
    chunks = [chunk for chunk in stream if chunk.choices]
    assert chunks[-1].choices[0].finish_reason in ["length", "stop"]
    assert server.process.wait(60) == 0


def main():
    server = Server(SISKIN, DECODER, ENCODER)
    client = server.client()
    try:
        server.chat_page()
        check_models(server, client)
        check_chat(server, client)
        check_completions(client)
        check_embeddings(client)
        check_structured_output(client)
        check_tools(client)
        check_errors(client)
        asyncio.run(check_concurrency(server))
        check_cancellation(server, client)
        check_metrics(server)
        check_shutdown(server, client)
    finally:
        server.process.kill()
    print("siskin serve answers the openai package")


if __name__ == "__main__":
    main()
