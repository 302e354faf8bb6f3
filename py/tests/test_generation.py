"""Chats, streams, sessions and batches."""

import gc
import json
import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import siskin
from conftest import DATA, MODELS

SKY = "Why is the sky blue?"


def test_streams_have_the_text_of_completions(smollm2: siskin.Model) -> None:
    whole = smollm2.chat(SKY, max_tokens=24, temperature=0.0)
    assert whole.finish_reason == "length" and whole.tokens == 24 and str(whole) == whole.text
    assert whole.message == {"role": "assistant", "content": whole.text} and whole.tool_calls == []
    stream = smollm2.chat([{"role": "user", "content": SKY}], stream=True, max_tokens=24, temperature=0.0)
    pieces = list(stream)
    assert len(pieces) > 5 and "".join(pieces) == whole.text
    assert stream.finish_reason == "length" and stream.completion().text == whole.text
    seeded = [smollm2.chat(SKY, max_tokens=12, seed=seed).text for seed in (1, 1, 2)]
    assert seeded[0] == seeded[1] != seeded[2]


def test_a_stream_that_is_left_early_ends_the_turn(smollm2: siskin.Model) -> None:
    session = smollm2.session(system="Answer briefly.")
    with session.ask("Name a bird.", stream=True, temperature=0.0) as stream:
        first = next(stream)
    roles = [message["role"] for message in session.messages]
    assert roles == ["system", "user", "assistant"] and session.messages[2]["content"].startswith(first)
    stale = session.ask("Another one.", stream=True)
    session.ask("And a third one.", max_tokens=2)
    with pytest.raises(siskin.StateError, match="another call"):
        next(stale)
    assert len(session.messages) == 7


def test_sessions_grow_fork_and_are_restored(smollm2: siskin.Model, tmp_path: Path) -> None:
    session = smollm2.session(context=256)
    session.ask("My name is Ada.", max_tokens=8, temperature=0.0)
    fork = session.fork()
    same = [each.ask("What is my name?", max_tokens=8, temperature=0.0).text for each in (session, fork)]
    assert same[0] == same[1]
    with pytest.raises(siskin.StateError, match="larger `forks`"):
        session.fork()
    del fork
    gc.collect()
    session.fork()
    session.save(tmp_path / "ada.session")
    other = smollm2.session(context=256)
    other.restore(tmp_path / "ada.session")
    assert other.position == session.position and other.messages == session.messages
    session.truncate(5)
    at_five = session.logits()
    session.truncate(3)
    assert session.position == 3 and not np.array_equal(session.logits(), at_five)
    session.reset()
    with pytest.raises(siskin.StateError, match="no tokens"):
        session.logits()
    assert (session.position, session.messages, session.context_length) == (0, [], 256)
    session.prefill(smollm2.encode("The sky is"))
    score, tokens = session.log_likelihood(" blue")
    want, _ = smollm2.log_likelihood("The sky is", " blue")
    assert tokens == 1 and score == pytest.approx(want, abs=1e-5)
    assert session.logits().shape == (smollm2.vocabulary_size,)


def test_ends_of_streams(smollm2: siskin.Model) -> None:
    session = smollm2.session()
    with session.ask("Tell a story.", stream=True) as stream:
        next(stream)
        assert len(session.messages) == 1
        next(stream)
        session.cancel()
        with pytest.raises(siskin.CanceledError):
            next(stream)
        assert list(stream) == [] and stream.finish_reason == "canceled"
    # Without a response, it has no effect.
    session.cancel()
    assert session.ask("x", max_tokens=1).tokens == 1
    with pytest.raises(ZeroDivisionError):
        (session.ask("x", stream=True), session.ask("y", max_tokens=1), 1 / 0)
    with pytest.raises(KeyError), session.ask("x", stream=True):
        session.ask("y", max_tokens=1)
        raise KeyError


def test_batches_have_the_texts_of_single_prompts(smollm2: siskin.Model) -> None:
    prompts = [f"{count} birds sat" for count in ("One", "Two", "Three", "Many")] * 10
    batch = smollm2.generate(prompts, max_tokens=6, seed=3)
    assert len(batch) == 40
    for prompt, completion in list(zip(prompts, batch))[:4]:
        assert smollm2.generate(prompt, max_tokens=6, seed=3).text == completion.text
    assert batch[0].text == batch[4].text
    tokens = smollm2.encode(prompts[0])
    assert smollm2.generate([tokens], max_tokens=6, seed=3)[0].text == batch[0].text
    chat = smollm2.generate([SKY], chat=True, max_tokens=6, temperature=0.0)[0]
    assert chat.text == smollm2.chat(SKY, max_tokens=6, temperature=0.0).text


def test_structured_output(smollm2: siskin.Model) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    value = json.loads(smollm2.chat("Describe Ada.", json_schema=schema, max_tokens=80, temperature=0.0).text)
    assert set(value) == {"name", "age"} and isinstance(value["age"], int)
    assert smollm2.chat("Yes or no?", choices=["yes", "no"]).text in ("yes", "no")
    assert smollm2.generate("1 + 1 =", regex=" [0-9]{2}").text[1:].isdigit()
    with pytest.raises(siskin.Error):
        smollm2.chat("x", json_schema={"type": "nothing"})


def test_options_are_checked(smollm2: siskin.Model) -> None:
    with pytest.raises(TypeError, match="temprature"):
        smollm2.chat(SKY, temprature=1.0)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="temprature"):
        smollm2.chat(SKY, temprature=None)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="top_k"):
        smollm2.chat(SKY, top_k=-1)
    with pytest.raises(TypeError, match="regex"):
        smollm2.chat(SKY, choices=["a"], regex="b")
    with pytest.raises(TypeError, match="tool_choice: only for chats"):
        smollm2.generate(SKY, tool_choice="none")
    with pytest.raises(TypeError, match="list of messages"):
        smollm2.chat({"role": "user", "content": "x"})  # type: ignore[call-overload]
    with pytest.raises(siskin.ArgumentError, match="vocabulary"):
        smollm2.log_likelihood([1], [10**8])
    with pytest.raises(siskin.TooLongError):
        smollm2.logits([1] * 3000)
    with pytest.raises(siskin.ArgumentError, match="top_p"):
        smollm2.chat(SKY, top_p=3.0)
    with pytest.raises(siskin.Error, match="messages"):
        smollm2.chat([{"content": "no role"}])
    with pytest.raises(siskin.TooLongError):
        smollm2.session(context=32).ask("word " * 100)
    with pytest.raises(siskin.Error, match="encoder|embed"):
        smollm2.classify("text")


def test_errors_are_typed_and_named(tmp_path: Path) -> None:
    with pytest.raises(siskin.MissingError, match="no such file") as caught:
        siskin.load(tmp_path / "missing.gguf")
    assert caught.value.code == 104 and isinstance(caught.value, LookupError)
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(siskin.Error, match="broken.gguf"):
        siskin.load(tmp_path / "broken.gguf")
    with pytest.raises(siskin.FileError, match="no folder") as failed:
        siskin.convert(DATA / "golden/llama", tmp_path / "no folder" / "model.siskin")
    assert isinstance(failed.value, OSError) and failed.value.message in str(failed.value)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), str(copy)) == (siskin.MissingError, str(caught.value))


def test_conversion(tmp_path: Path) -> None:
    reports: list[tuple[str, int, int]] = []
    path = siskin.convert(
        DATA / "golden/llama",
        tmp_path / "tiny.siskin",
        quant="q8_0",
        progress=lambda label, done, total: reports.append((label, done, total)),
    )
    assert path.stat().st_size > 1000 and reports[-1][1] == reports[-1][2] > 0
    logits = [siskin.load(each, cache="off").logits([1, 2, 3]) for each in (path, DATA / "golden/llama")]
    assert 0 < np.abs(logits[0] - logits[1]).max() < 0.1 * np.abs(logits[1]).max()

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        siskin.convert(DATA / "golden/llama", tmp_path / "other.siskin", progress=fail)
    assert not (tmp_path / "other.siskin").exists()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python ignores Ctrl-C where its parent does, as shells make programs in the background do."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_control_c_ends_a_call_within_a_token(smollm2: siskin.Model, tmp_path: Path) -> None:
    def interrupt() -> None:
        time.sleep(0.4)
        os.kill(os.getpid(), signal.SIGINT)

    for call in (
        lambda: smollm2.chat("Tell a long story.", max_tokens=2000),
        lambda: smollm2.logits(smollm2.encode("word " * 1900)),
        lambda: smollm2.generate(["Once upon a time"] * 8, max_tokens=1000),
        lambda: smollm2.generate(["word " * 1500] * 3, max_tokens=5),
        lambda: siskin.convert(MODELS / "smollm2.gguf", tmp_path / "out.siskin", quant="w4i"),
    ):
        thread = threading.Thread(target=interrupt)
        begun = time.monotonic()
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            call()
        assert time.monotonic() - begun < 3.0
        thread.join()
    assert smollm2.chat(SKY, max_tokens=4).tokens == 4
    assert not (tmp_path / "out.siskin").exists()


def test_other_threads_run_meanwhile(smollm2: siskin.Model) -> None:
    ended = threading.Event()
    counts = []

    def count() -> None:
        ticks = 0
        while not ended.is_set():
            time.sleep(0.002)
            ticks += 1
        counts.append(ticks)

    counter = threading.Thread(target=count)
    counter.start()
    begun = time.monotonic()
    smollm2.logits(smollm2.encode("word " * 600))
    elapsed = time.monotonic() - begun
    ended.set()
    counter.join()
    # With the GIL held, it would have counted once or twice.
    assert counts[0] > 10 or elapsed < 0.1


def test_threads_chat_with_one_model(smollm2: siskin.Model) -> None:
    want = smollm2.chat(SKY, max_tokens=5, temperature=0.0).text
    texts: list[str] = []

    def chat() -> None:
        for _ in range(3):
            texts.append(smollm2.chat(SKY, max_tokens=5, temperature=0.0).text)

    threads = [threading.Thread(target=chat) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert texts == [want] * 12


def test_threads_share_a_model(smollm2: siskin.Model) -> None:
    want = smollm2.generate("The capital of France is", max_tokens=6, temperature=0.0).text
    texts: list[str] = []

    def generate() -> None:
        session = smollm2.session(context=64)
        texts.append(session.ask("The capital of France is", raw=True, max_tokens=6, temperature=0.0).text)

    threads = [threading.Thread(target=generate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [want] * 4


def test_nothing_leaks() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def once() -> None:
        model = siskin.load(DATA / "golden/llama", cache="off", threads=1)
        session = model.session(context=64)
        session.prefill([1, 2, 3])
        assert session.logits().any()
        assert isinstance(model.logits([1, 2]), np.ndarray)

    for _ in range(30):
        once()
    gc.collect()
    before = resident()
    for _ in range(100):
        once()
    gc.collect()
    assert resident() - before < 8 << 20
