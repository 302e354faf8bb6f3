"""Runs `siskin serve` and uses it with LiteLLM, through its providers for OpenAI's and Ollama's APIs.

    python litellm_client.py SISKIN SMOLLM2 MINILM
"""

import asyncio
import json
import os
import sys

# Else the import downloads a list of prices.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
import pydantic
from siskin_server import Server, json_lines, raised

litellm.suppress_debug_info = True

SISKIN, DECODER, ENCODER = sys.argv[1:4]
QUESTION = [{"role": "user", "content": "Why is the sky blue?"}]
GREEDY = {"temperature": 0, "max_tokens": 12}
PROVIDERS = ["openai", "ollama_chat"]


class Client:
    """Calls LiteLLM with the address of a server, through one of its providers."""

    def __init__(self, server, provider):
        self.provider = provider
        self.options = {"api_base": server.url + ("/v1" if provider == "openai" else ""), "api_key": "none"}

    def __call__(self, messages=QUESTION, **fields):
        return litellm.completion(f"{self.provider}/smollm2", messages, num_retries=0, **self.options, **fields)

    async def later(self, messages=QUESTION, **fields):
        return await litellm.acompletion(f"{self.provider}/smollm2", messages, num_retries=0, **self.options, **fields)

    def embed(self, texts, **fields):
        provider = self.provider.removesuffix("_chat")
        return litellm.embedding(f"{provider}/minilm", texts, **self.options, **fields)


def text_of(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def check_completion(client):
    # The same tokens as those of a session.
    (alone,) = json_lines(SISKIN, "run", DECODER, QUESTION[0]["content"], "--greedy", "-n", "12", "--json")
    whole = client(**GREEDY)
    assert whole.choices[0].message.content == alone["text"], (whole, alone)
    assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 12, whole
    chunks = list(client(**GREEDY, stream=True, stream_options={"include_usage": True}))
    assert text_of(chunks) == alone["text"] and len(chunks) > 6, chunks
    assert chunks[-1].usage.completion_tokens == 12, chunks[-1]
    rebuilt = litellm.stream_chunk_builder(chunks, QUESTION)
    assert rebuilt.choices[0].message.content == alone["text"], rebuilt
    stop = alone["text"].split()[2]
    stopped = client(**GREEDY, stop=[stop]).choices[0]
    assert stopped.finish_reason == "stop" and stopped.message.content == alone["text"].partition(stop)[0], stopped

    async def both():
        async def streamed():
            return text_of([chunk async for chunk in await client.later(**GREEDY, stream=True)])

        return await asyncio.gather(client.later(**GREEDY), streamed())

    answer, streamed = asyncio.run(both())
    assert answer.choices[0].message.content == streamed == alone["text"], (answer, streamed)
    print(f"{client.provider}: completions, whole and streamed, synchronous and not, are those of `siskin run`")


class Person(pydantic.BaseModel, extra="forbid"):
    """What a response is."""

    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=120)


def check_schema(client):
    describe = [{"role": "user", "content": "Describe Ann, who is 31. Use JSON."}]
    explicit = {
        "type": "json_schema",
        "json_schema": {"name": "Person", "schema": Person.model_json_schema(), "strict": True},
    }
    contents = []
    for response_format in [Person, explicit]:
        choice = client(describe, response_format=response_format, temperature=0, max_tokens=200).choices[0]
        Person.model_validate_json(choice.message.content)
        contents.append(choice.message.content)
    assert contents[0] == contents[1], contents
    free = client(describe, response_format={"type": "json_object"}, temperature=0, max_tokens=300).choices[0]
    if free.finish_reason == "stop":
        assert isinstance(json.loads(free.message.content), dict), free
    print(f"{client.provider}: responses are of the schema that `response_format` gives")


def check_tools(client):
    class GetWeather(pydantic.BaseModel):
        """Returns the weather of a city."""

        city: str = pydantic.Field(max_length=20)
        days: int = pydantic.Field(ge=1, le=7)

    question = [{"role": "user", "content": "What is the weather in Paris?"}]
    tool = {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": GetWeather.__doc__,
            "parameters": GetWeather.model_json_schema(),
        },
    }
    fields = {"tools": [tool], "seed": 3, "max_tokens": 200}
    if client.provider == "openai":
        fields |= {"tool_choice": "required", "parallel_tool_calls": False}
    else:
        # Ollama's API cannot demand a call; a format that a text can hardly have leaves only a call.
        fields |= {"format": {"enum": [0]}, "temperature": 1}
    called = client(question, **fields).choices[0]
    assert called.finish_reason == "tool_calls" and called.message.tool_calls, called
    call = called.message.tool_calls[0]
    assert call.function.name == "get_weather", call
    GetWeather.model_validate_json(call.function.arguments)
    chunks = [chunk.choices[0] for chunk in client(question, **fields, stream=True)]
    assert chunks[-1].finish_reason == "tool_calls", chunks
    deltas = [delta for chunk in chunks for delta in chunk.delta.tool_calls or []]
    # LiteLLM gives all calls of a stream of Ollama the index 0: the first is compared.
    arguments, _ = json.JSONDecoder().raw_decode("".join(delta.function.arguments for delta in deltas))
    assert deltas[0].function.name == "get_weather" and arguments == json.loads(call.function.arguments), deltas
    # The result is appended to the conversation.
    result = {"role": "tool", "tool_call_id": call.id, "name": "get_weather", "content": "22 degrees"}
    after = client([*question, called.message.model_dump(exclude_none=True), result], **GREEDY).choices[0]
    assert after.message.content, after
    print(f"{client.provider}: a tool is called, whole and streamed, and its result is answered")


def check_embeddings(client):
    texts = ["A siskin is a small bird.", "Ein Zeisig ist ein kleiner Vogel.", "x " * 100]
    alone = json_lines(SISKIN, "embed", ENCODER, "--json", *texts)
    response = client.embed(texts)
    assert len(response.data) == len(texts) and response.usage.prompt_tokens > 100, response.usage
    for entry, expected in zip(response.data, alone):
        pairs = zip(entry["embedding"], expected["embedding"], strict=True)
        assert all(abs(a - b) < 1e-6 for a, b in pairs), entry["index"]
    print(f"{client.provider.removesuffix('_chat')}: embeddings are those of `siskin embed`")


def check_errors(client):
    for kind, fields in [
        (litellm.BadRequestError, {"messages": [{"role": "user", "content": "word " * 9000}]}),
        (litellm.BadRequestError, {"extra_body": {"temprature": 1}}),
        (litellm.BadRequestError, {"temperature": -1}),
        (litellm.NotFoundError, {"model": "openai/gpt-9"}),
    ]:
        fields = {"model": "openai/smollm2", "messages": QUESTION, **fields}
        raised(kind, lambda fields=fields: litellm.completion(num_retries=0, **client.options, **fields))
    print("openai: errors have the types that LiteLLM knows")


def main():
    server = Server(SISKIN, DECODER, ENCODER)
    try:
        for provider in PROVIDERS:
            client = Client(server, provider)
            check_completion(client)
            check_schema(client)
            check_tools(client)
            check_embeddings(client)
        check_errors(Client(server, "openai"))
        server.stop()
    finally:
        server.process.kill()
    print("siskin serve answers LiteLLM")


main()
