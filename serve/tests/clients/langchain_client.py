"""Runs `siskin serve` and uses it with LangChain's package for OpenAI, as its users do.

    python langchain_client.py SISKIN SMOLLM2 MINILM
"""

import asyncio
import sys
import warnings
from typing import Literal

import openai
import pydantic
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from siskin_server import Server, json_lines, raised

# Of LangChain's own objects, which have the parsed output where the openai package declares none.
warnings.filterwarnings("ignore", "Pydantic serializer warnings")

SISKIN, DECODER, ENCODER = sys.argv[1:4]
QUESTION = "Why is the sky blue?"
NUMBERS = [f"Tell me something about the number {number}." for number in range(6)]


def chat(server, **options):
    options = {"temperature": 0, "max_tokens": 12, **options}
    return ChatOpenAI(base_url=f"{server.url}/v1", api_key="none", model="smollm2", max_retries=0, **options)


def check_chat(server):
    # The same tokens as those of a session.
    (alone,) = json_lines(SISKIN, "run", DECODER, QUESTION, "--greedy", "-n", "12", "--json")
    model = chat(server, stream_usage=True)
    whole = model.invoke(QUESTION)
    assert whole.content == alone["text"], (whole, alone)
    assert whole.usage_metadata["output_tokens"] == 12, whole.usage_metadata
    assert whole.response_metadata["finish_reason"] == "length", whole.response_metadata
    chunks = list(model.stream([HumanMessage(QUESTION)]))
    total = sum(chunks[1:], chunks[0])
    assert total.content == alone["text"] and len(chunks) > 6, chunks
    assert total.usage_metadata["output_tokens"] == 12, total.usage_metadata
    print("ChatOpenAI: `invoke` and `stream` give the tokens of `siskin run`")

    messages = [SystemMessage("You answer in one short sentence."), HumanMessage(QUESTION)]
    chain = ChatPromptTemplate.from_messages([("system", messages[0].content), ("user", "{text}")]) | model
    assert (chain | StrOutputParser()).invoke({"text": QUESTION}) == model.invoke(messages).content
    scored = model.bind(logprobs=True, top_logprobs=2).invoke(QUESTION).response_metadata["logprobs"]["content"]
    assert "".join(entry["token"] for entry in scored) == alone["text"], scored
    print("ChatOpenAI: prompt templates and log-probabilities")


async def check_concurrency(server):
    model = chat(server, seed=5, temperature=0.7)
    singles = [model.invoke(text).content for text in NUMBERS]
    assert [message.content for message in model.batch(NUMBERS)] == singles
    assert [message.content for message in await model.abatch(NUMBERS)] == singles
    gathered = await asyncio.gather(*[model.ainvoke(text) for text in NUMBERS])
    assert [message.content for message in gathered] == singles

    async def streamed(text):
        return "".join([chunk.content async for chunk in model.astream(text)])

    assert await asyncio.gather(*map(streamed, NUMBERS)) == singles
    print("ChatOpenAI: `batch`, `abatch`, `ainvoke` and `astream` give what single requests do")


def check_tools(server):
    @tool
    def get_weather(city: Literal["Paris", "London"], days: Literal[1, 2, 3]) -> str:
        """Returns the weather of a city."""
        return f"22 degrees in {city} for {days} days"

    question = [HumanMessage("What is the weather in Paris?")]
    model = chat(server, max_tokens=200)
    for choice in ["get_weather", "required", "any", True]:
        bound = model.bind_tools([get_weather], tool_choice=choice, parallel_tool_calls=False)
        called = bound.invoke(question)
        (call,) = called.tool_calls
        assert call["name"] == "get_weather" and not called.invalid_tool_calls, called
        chunks = list(bound.stream(question))
        (streamed,) = sum(chunks[1:], chunks[0]).tool_calls
        assert streamed["args"] == call["args"], (streamed, call)
    result = get_weather.invoke(call)
    assert isinstance(result, ToolMessage) and result.content.startswith("22 degrees in "), result
    answer = model.bind_tools([get_weather], tool_choice="none").invoke([*question, called, result])
    assert answer.content and not answer.tool_calls, answer
    print("ChatOpenAI: bound tools are called, whole and streamed, and their results are answered")


class Person(pydantic.BaseModel, extra="forbid"):
    """A person."""

    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=120)
    hobbies: list[Literal["chess", "football", "music"]] = pydantic.Field(max_length=3)


def check_structured_output(server):
    text = "Describe Ann, who is 31 and likes music. Use JSON."
    model = chat(server, max_tokens=300)
    for method in ["json_schema", "function_calling"]:
        for options in [{}, {"strict": True}]:
            person = model.with_structured_output(Person, method=method, **options).invoke(text)
            assert isinstance(person, Person), person
    fields = model.with_structured_output(Person.model_json_schema(), method="json_schema").invoke(text)
    Person.model_validate(fields)
    structured = model.with_structured_output(Person, include_raw=True)
    both = structured.invoke(text)
    assert isinstance(both["parsed"], Person) and both["parsing_error"] is None, both
    chunks = list(structured.stream(text))
    assert sum(chunks[1:], chunks[0])["parsed"] == both["parsed"], chunks
    print("ChatOpenAI: structured outputs are of their schema, as responses and as calls of a tool")


def check_completions(server):
    (alone,) = json_lines(SISKIN, "run", DECODER, "The capital of", "--raw", "--greedy", "-n", "8", "--json")
    model = OpenAI(base_url=f"{server.url}/v1", api_key="none", model="smollm2", temperature=0, max_tokens=8)
    assert model.invoke("The capital of") == "".join(model.stream("The capital of")) == alone["text"]
    assert model.batch(["The capital of", "Once upon a"])[0] == alone["text"]
    print("OpenAI: completions are those of `siskin run --raw`")


def check_embeddings(server):
    texts = ["A siskin is a small bird.", "Ein Zeisig ist ein kleiner Vogel.", "x " * 100]
    alone = json_lines(SISKIN, "embed", ENCODER, "--json", *texts)
    # Else it sends the tokens of OpenAI's tokenizer.
    embeddings = OpenAIEmbeddings(
        base_url=f"{server.url}/v1", api_key="none", model="minilm", check_embedding_ctx_length=False
    )
    vectors = embeddings.embed_documents(texts)
    later = asyncio.run(embeddings.aembed_documents(texts, chunk_size=2))
    for vector, other, expected in zip(vectors, later, alone, strict=True):
        assert vector == other
        assert all(abs(a - b) < 1e-6 for a, b in zip(vector, expected["embedding"], strict=True))
    assert embeddings.embed_query(texts[0]) == vectors[0]
    print("OpenAIEmbeddings: documents and queries have the vectors of `siskin embed`")


def check_errors(server):
    for kind, options in [
        (openai.BadRequestError, {"extra_body": {"temprature": 1}}),
        (openai.BadRequestError, {"temperature": -1}),
    ]:
        raised(kind, lambda options=options: chat(server, **options).invoke(QUESTION))
    print("ChatOpenAI: errors have the types of the openai package")


def main():
    server = Server(SISKIN, DECODER, ENCODER)
    try:
        check_chat(server)
        asyncio.run(check_concurrency(server))
        check_tools(server)
        check_structured_output(server)
        check_completions(server)
        check_embeddings(server)
        check_errors(server)
        server.stop()
    finally:
        server.process.kill()
    print("siskin serve answers LangChain")


main()
