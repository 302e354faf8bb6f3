"""`pipeline` as in the package transformers: a function per task, whose results have the same keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ._open import opened
from ._siskin import Completion, Model

if TYPE_CHECKING:
    from ._open import StrPath

__all__ = ["TASKS", "pipeline"]

Texts = str | Sequence[str]


def _each(inputs: Any, one: Callable[[Any], Any]) -> Any:
    return [one(item) for item in inputs] if isinstance(inputs, (list, tuple)) else one(inputs)


def _text_generation(model: Model, inputs: Any, **options: Any) -> Any:
    options["max_tokens"] = options.pop("max_new_tokens", options.get("max_tokens"))
    is_full = options.pop("return_full_text", True)
    if options.pop("do_sample", None) is False:
        options["temperature"] = 0.0

    def entry(prompt: str, completion: Completion) -> list[dict[str, Any]]:
        return [{"generated_text": (prompt if is_full else "") + completion.text}]

    if isinstance(inputs, str):
        return entry(inputs, model.generate(inputs, **options))
    if inputs and isinstance(inputs[0], dict):
        completion = model.chat(inputs, **options)
        return [{"generated_text": [*inputs, {"role": "assistant", "content": completion.text}]}]
    return [entry(prompt, done) for prompt, done in zip(inputs, model.generate(inputs, **options))]


def _overflow(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options with that of Transformers for long texts replaced by ours."""
    if options.pop("truncation", False):
        options["overflow"] = "truncate"
    return options


def _text_classification(model: Model, inputs: Texts, *, top_k: int | None = 1, **options: Any) -> Any:
    options = _overflow(options)
    classes = model.classify([inputs] if isinstance(inputs, str) else inputs, **options)
    if top_k == 1:
        return [labels[0] for labels in classes]
    chosen = [labels[:top_k] for labels in classes]
    return chosen[0] if isinstance(inputs, str) else chosen


def _token_classification(
    model: Model, inputs: Texts, *, aggregation_strategy: str = "simple", **options: Any
) -> Any:
    if aggregation_strategy != "simple":
        raise ValueError(f"aggregation_strategy: expected `simple`, got `{aggregation_strategy}`")

    def entries(found: list[Any]) -> list[dict[str, Any]]:
        return [
            {
                "entity_group": entity["entity"],
                "score": entity["score"],
                "word": entity["word"],
                "start": entity["start"],
                "end": entity["end"],
            }
            for entity in found
        ]

    if isinstance(inputs, str):
        return entries(model.tag(inputs, **options))
    return [entries(found) for found in model.tag(inputs, **options)]


def _question_answering(model: Model, inputs: Any = None, **options: Any) -> Any:
    def one(item: Any) -> dict[str, Any]:
        found = model.answer(item["question"], item["context"], **options)
        return {key: found[key] for key in ("score", "start", "end", "answer")}

    if inputs is None:
        inputs = {"question": options.pop("question"), "context": options.pop("context")}
    return _each(inputs, one)


def _fill_mask(model: Model, inputs: Texts, *, top_k: int = 5) -> Any:
    def one(text: str) -> Any:
        masks = model.fill_mask(text, count=top_k)
        if len(masks) != 1:
            return masks
        mask = next((mask for mask in ("[MASK]", "<mask>") if mask in text), None)
        return [
            {**word, "sequence": text.replace(mask, word["token_str"].strip()) if mask else None}
            for word in masks[0]
        ]

    return _each(inputs, one)


def _summarization(model: Model, inputs: Texts, **options: Any) -> Any:
    texts = [inputs] if isinstance(inputs, str) else inputs
    return [{"summary_text": text} for text in model.summarize(texts, **options)]


def _translation(
    model: Model, inputs: Texts, *, src_lang: str | None = None, tgt_lang: str | None = None, **options: Any
) -> Any:
    texts = [inputs] if isinstance(inputs, str) else inputs
    return [{"translation_text": text} for text in model.translate(texts, src_lang, tgt_lang, **options)]


def _text_to_text(model: Model, inputs: Texts, **options: Any) -> Any:
    texts = [inputs] if isinstance(inputs, str) else inputs
    return [{"generated_text": text} for text in model.text_to_text(texts, **options)]


def _speech_recognition(model: Model, inputs: Any, *, return_timestamps: bool = False, **options: Any) -> Any:
    def one(sound: Any) -> dict[str, Any]:
        rate = {}
        if isinstance(sound, dict):
            rate["sample_rate"] = sound["sampling_rate"]
            sound = sound["raw"] if "raw" in sound else sound["array"]
        found = model.transcribe(sound, timestamps=return_timestamps, **{**options, **rate})
        result: dict[str, Any] = {"text": found["text"]}
        if return_timestamps:
            result["chunks"] = [
                {"timestamp": (segment["start"], segment["end"]), "text": segment["text"]}
                for segment in found["segments"]
            ]
        return result

    return _each(inputs, one)


TASKS: dict[str, Callable[..., Any]] = {
    "automatic-speech-recognition": _speech_recognition,
    "fill-mask": _fill_mask,
    "ner": _token_classification,
    "question-answering": _question_answering,
    "sentiment-analysis": _text_classification,
    "summarization": _summarization,
    "text-classification": _text_classification,
    "text-generation": _text_generation,
    "text2text-generation": _text_to_text,
    "token-classification": _token_classification,
    "translation": _translation,
}
"""The functions of the tasks: each takes a model, inputs and options."""


def pipeline(task: str, model: StrPath | Model, **options: Any) -> Callable[..., Any]:
    """Returns a function that runs a task; `options` are those of `siskin.load`."""
    name, languages = task, {}
    if task.startswith("translation_") and "_to_" in task:
        source, target = task.removeprefix("translation_").split("_to_", 1)
        name, languages = "translation", {"src_lang": source, "tgt_lang": target}
    if name not in TASKS:
        raise ValueError(f"unknown task `{task}`; expected one of {', '.join(sorted(TASKS))}")
    runner = opened(model, **options)

    def run(*inputs: Any, **call: Any) -> Any:
        return TASKS[name](runner, *inputs, **{**languages, **call})

    return run
