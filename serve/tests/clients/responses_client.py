"""Runs `siskin serve` and uses `/v1/responses` with OpenAI's Python package.

    python responses_client.py SISKIN SMOLLM2
"""

import asyncio
import json
import sys

import openai
import pydantic
import siskin_server

SISKIN, DECODER = sys.argv[1:3]
QUESTION = "Why is the sky blue?"


class City(pydantic.BaseModel):
    name: str
    inhabitants: int


def create(client, **options):
    return client.responses.create(**{"model": "smollm2", "input": QUESTION, "temperature": 0, **options})


def check_text(client):
    """The text is that of a chat completion."""
    chat = client.chat.completions.create(
        model="smollm2",
        messages=[
            {"role": "system", "content": "You answer in one short sentence."},
            {"role": "user", "content": QUESTION},
        ],
        temperature=0,
        max_tokens=40,
    )
    response = create(client, instructions="You answer in one short sentence.", max_output_tokens=40)
    assert response.output_text == chat.choices[0].message.content, response
    assert response.usage.input_tokens == chat.usage.prompt_tokens
    assert response.usage.output_tokens == chat.usage.completion_tokens
    assert (response.status, response.error) in [("completed", None), ("incomplete", None)]
    return response


def check_stream(client, whole):
    options = {"instructions": whole.instructions, "max_output_tokens": 40}
    types = []
    text = ""
    for event in create(client, stream=True, **options):
        types.append(event.type)
        text += event.delta if event.type == "response.output_text.delta" else ""
    assert types[:2] == ["response.created", "response.in_progress"], types
    assert types[-1] in ["response.completed", "response.incomplete"], types
    assert text == whole.output_text
    assert event.response.output_text == whole.output_text
    with client.responses.stream(model="smollm2", input=QUESTION, temperature=0) as stream:
        streamed = stream.get_final_response()
    assert streamed.output_text == create(client).output_text


def check_log_probabilities(client):
    response = create(
        client, include=["message.output_text.logprobs"], top_logprobs=3, max_output_tokens=5
    )
    entries = response.output[0].content[0].logprobs
    assert len(entries) == 5 and all(len(entry.top_logprobs) == 3 for entry in entries), entries
    assert all(entry.token == entry.top_logprobs[0].token for entry in entries), "greedy"


def check_conversation(client):
    """A stored response is continued as if its conversation was sent again."""
    first = create(client, max_output_tokens=20)
    again = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "Are you sure?"},
    ]
    sent = create(client, input=again, max_output_tokens=20)
    stored = create(client, input="Are you sure?", previous_response_id=first.id, max_output_tokens=20)
    assert stored.output_text == sent.output_text
    assert stored.usage.input_tokens == sent.usage.input_tokens
    # What a response contains is taken as input.
    fed = [{"role": "user", "content": QUESTION}, *first.output, {"role": "user", "content": "Are you sure?"}]
    assert create(client, input=fed, max_output_tokens=20).output_text == sent.output_text

    assert client.responses.retrieve(first.id).output_text == first.output_text
    items = list(client.responses.input_items.list(stored.id))
    assert [item.content[0].text for item in items] == ["Are you sure?"], items
    client.responses.delete(first.id)
    siskin_server.raised(openai.NotFoundError, lambda: client.responses.retrieve(first.id))
    siskin_server.raised(openai.NotFoundError, lambda: client.responses.delete(first.id))
    error = siskin_server.raised(openai.BadRequestError, lambda: create(client, previous_response_id=first.id))
    assert error.param == "previous_response_id", error


def check_tools(client):
    tool = {
        "type": "function",
        "name": "get_weather",
        "description": "The weather in a city",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "London"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    }
    question = [{"role": "user", "content": "What is the weather in Paris?"}]
    response = create(
        client,
        input=question,
        tools=[tool],
        tool_choice="required",
        parallel_tool_calls=False,
        max_output_tokens=100,
    )
    (call,) = [item for item in response.output if item.type == "function_call"]
    assert call.name == "get_weather" and json.loads(call.arguments)["city"] in ["Paris", "London"], call
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "22 degrees"}
    answer = create(client, input=[*question, call, output], tools=[tool], max_output_tokens=10)
    assert answer.output and answer.usage.input_tokens > response.usage.input_tokens


def check_structured_output(client):
    parsed = client.responses.parse(
        model="smollm2",
        input="Name a city.",
        text_format=City,
        max_output_tokens=200,
        extra_body={"seed": 3},
    )
    assert isinstance(parsed.output_parsed, City), parsed


async def check_async(server, whole):
    client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    options = {"instructions": whole.instructions, "max_output_tokens": 40}
    responses = await asyncio.gather(*(create(client, **options) for _ in range(4)))
    assert {response.output_text for response in responses} == {whole.output_text}
    text = ""
    async for event in await create(client, stream=True, **options):
        text += event.delta if event.type == "response.output_text.delta" else ""
    assert text == whole.output_text
    await client.close()


def main():
    server = siskin_server.Server(SISKIN, DECODER)
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    try:
        whole = check_text(client)
        check_stream(client, whole)
        check_log_probabilities(client)
        check_conversation(client)
        check_tools(client)
        check_structured_output(client)
        asyncio.run(check_async(server, whole))
        server.wait_until_idle()
        server.stop()
    finally:
        server.process.kill()
    print("siskin serve answers responses of the openai package")


if __name__ == "__main__":
    main()
