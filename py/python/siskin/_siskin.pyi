import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypedDict, Unpack, final, overload

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Completion",
    "Model",
    "Session",
    "TextStream",
    "__version__",
    "convert",
    "load",
    "pull",
    "train",
]

__version__: str

_StrPath = str | os.PathLike[str]
_Message = Mapping[str, Any]
_Overflow = Literal["error", "truncate", "window"]

class _Options(TypedDict, total=False):
    max_tokens: int | None
    stop: str | Sequence[str] | None
    parse_special: bool | None
    seed: int | None
    temperature: float | None
    dynamic_temperature_range: float | None
    dynamic_temperature_exponent: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    xtc_probability: float | None
    xtc_threshold: float | None
    repetition_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    penalty_last_n: int | None
    dry_multiplier: float | None
    dry_base: float | None
    dry_allowed_length: int | None
    dry_last_n: int | None
    mirostat: bool | None
    mirostat_tau: float | None
    mirostat_eta: float | None
    logit_bias: Mapping[int, float] | Sequence[tuple[int, float]] | None
    json_schema: Mapping[str, Any] | str | None
    json_object: bool | None
    regex: str | None
    choices: Sequence[str] | None
    grammar: str | None
    tools: Sequence[Mapping[str, Any]] | None
    tool_choice: str | Mapping[str, Any] | None
    parallel_tool_calls: bool | None
    reasoning_effort: str | None
    reasoning_budget: int | None
    chat_template_kwargs: Mapping[str, Any] | None

@final
class Completion:
    @property
    def text(self) -> str: ...
    @property
    def reasoning(self) -> str | None: ...
    @property
    def message(self) -> dict[str, Any]: ...
    @property
    def tool_calls(self) -> list[dict[str, Any]]: ...
    @property
    def finish_reason(self) -> str: ...
    @property
    def tokens(self) -> int: ...

@final
class TextStream(Iterator[str]):
    def __iter__(self) -> Self: ...
    def __next__(self) -> str: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
    def close(self) -> None: ...
    def completion(self) -> Completion: ...
    @property
    def finish_reason(self) -> str | None: ...

@final
class Session:
    @overload
    def ask(
        self, prompt: str, *, stream: Literal[False] = False, raw: bool = False, **options: Unpack[_Options]
    ) -> Completion: ...
    @overload
    def ask(
        self, prompt: str, *, stream: Literal[True], raw: bool = False, **options: Unpack[_Options]
    ) -> TextStream: ...
    @overload
    def chat(
        self,
        messages: str | Sequence[_Message],
        *,
        stream: Literal[False] = False,
        **options: Unpack[_Options],
    ) -> Completion: ...
    @overload
    def chat(
        self, messages: str | Sequence[_Message], *, stream: Literal[True], **options: Unpack[_Options]
    ) -> TextStream: ...
    def add_message(self, role: str, content: str) -> None: ...
    @property
    def messages(self) -> list[dict[str, Any]]: ...
    def prefill(self, tokens: Sequence[int]) -> None: ...
    def logits(self) -> NDArray[np.float32]: ...
    def log_likelihood(self, text: str, *, parse_special: bool = False) -> tuple[float, int]: ...
    def fork(self) -> Session: ...
    def reset(self) -> None: ...
    def truncate(self, length: int) -> None: ...
    def save(self, path: _StrPath) -> None: ...
    def restore(self, path: _StrPath) -> None: ...
    def cancel(self) -> None: ...
    @property
    def position(self) -> int: ...
    @property
    def context_length(self) -> int: ...

class _Label(TypedDict):
    label: str
    score: float

class _Entity(TypedDict):
    entity: str
    score: float
    word: str
    start: int
    end: int

class _Answer(TypedDict):
    answer: str
    score: float
    start: int
    end: int

class _Word(TypedDict):
    token: int
    token_str: str
    score: float

class _Segment(TypedDict):
    id: int
    start: float
    end: float
    text: str
    tokens: list[int]
    avg_logprob: float
    no_speech_prob: float

class _Transcript(TypedDict):
    text: str
    language: str | None
    segments: list[_Segment]

@final
class Model:
    @overload
    def chat(
        self,
        messages: str | Sequence[_Message],
        *,
        system: str | None = None,
        stream: Literal[False] = False,
        **options: Unpack[_Options],
    ) -> Completion: ...
    @overload
    def chat(
        self,
        messages: str | Sequence[_Message],
        *,
        system: str | None = None,
        stream: Literal[True],
        **options: Unpack[_Options],
    ) -> TextStream: ...
    @overload
    def generate(self, prompts: str, *, chat: bool = False, **options: Unpack[_Options]) -> Completion: ...  # type: ignore[overload-overlap]
    @overload
    def generate(
        self, prompts: Iterable[str | Sequence[int]], *, chat: bool = False, **options: Unpack[_Options]
    ) -> list[Completion]: ...
    def session(
        self, *, system: str | None = None, context: int | None = None, forks: int = 1
    ) -> Session: ...
    def encode(
        self, text: str, *, add_special_tokens: bool = True, parse_special: bool = False
    ) -> list[int]: ...
    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str: ...
    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]: ...
    @overload
    def log_likelihood(self, context: str, continuation: str) -> tuple[float, bool]: ...
    @overload
    def log_likelihood(self, context: Sequence[int], continuation: Sequence[int]) -> tuple[float, bool]: ...
    def log_likelihoods(
        self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]
    ) -> list[tuple[float, bool]]: ...
    def embed(
        self,
        texts: str | Iterable[str],
        *,
        normalize: bool | None = None,
        prompt: str | None = None,
        dimensions: int = 0,
        overflow: _Overflow = "error",
    ) -> NDArray[np.float32]: ...
    @overload
    def classify(self, texts: str, *, overflow: _Overflow = "error") -> list[_Label]: ...  # type: ignore[overload-overlap]
    @overload
    def classify(self, texts: Iterable[str], *, overflow: _Overflow = "error") -> list[list[_Label]]: ...
    @overload
    def tag(self, texts: str, *, overflow: _Overflow = "error") -> list[_Entity]: ...  # type: ignore[overload-overlap]
    @overload
    def tag(self, texts: Iterable[str], *, overflow: _Overflow = "error") -> list[list[_Entity]]: ...
    def rerank(self, query: str, texts: Iterable[str], *, overflow: _Overflow = "error") -> list[float]: ...
    def answer(self, question: str, text: str, *, overflow: _Overflow = "error") -> _Answer: ...
    def fill_mask(self, text: str, *, count: int = 5) -> list[list[_Word]]: ...
    @overload
    def translate(  # type: ignore[overload-overlap]
        self,
        texts: str,
        source: str | None = None,
        target: str | None = None,
        *,
        beams: int | None = None,
        max_tokens: int | None = None,
    ) -> str: ...
    @overload
    def translate(
        self,
        texts: Iterable[str],
        source: str | None = None,
        target: str | None = None,
        *,
        beams: int | None = None,
        max_tokens: int | None = None,
    ) -> list[str]: ...
    @overload
    def summarize(self, texts: str, *, beams: int | None = None, max_tokens: int | None = None) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def summarize(
        self, texts: Iterable[str], *, beams: int | None = None, max_tokens: int | None = None
    ) -> list[str]: ...
    @overload
    def text_to_text(  # type: ignore[overload-overlap]
        self, texts: str, *, beams: int | None = None, max_tokens: int | None = None
    ) -> str: ...
    @overload
    def text_to_text(
        self, texts: Iterable[str], *, beams: int | None = None, max_tokens: int | None = None
    ) -> list[str]: ...
    def transcribe(
        self,
        sound: _StrPath | NDArray[np.float32],
        *,
        sample_rate: int = 16000,
        language: str | None = None,
        translate: bool = False,
        timestamps: bool = True,
        prompt: str | None = None,
        beams: int = 1,
        temperature_fallback: bool = True,
    ) -> _Transcript: ...
    @property
    def name(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def context_length(self) -> int: ...
    @property
    def vocabulary_size(self) -> int: ...
    @property
    def embedding_dimensions(self) -> int: ...
    @property
    def bos_token(self) -> int | None: ...
    @property
    def eos_token(self) -> int | None: ...
    @property
    def end_tokens(self) -> list[int]: ...
    @property
    def kernels(self) -> list[str]: ...
    @property
    def notes(self) -> list[str]: ...

def load(
    name: _StrPath,
    *,
    threads: int = 0,
    context: int = 0,
    adapter: _StrPath | None = None,
    cache: _StrPath | None = None,
    progress: Any = None,
) -> Model: ...
def pull(name: _StrPath, *, progress: Any = None) -> Path: ...
def convert(
    source: _StrPath,
    output: _StrPath,
    *,
    quant: str | None = None,
    calibrate: _StrPath | None = None,
    progress: Any = None,
) -> Path: ...
def train(
    config: _StrPath,
    output: _StrPath,
    *,
    folder: _StrPath,
    resume: bool = False,
    callbacks: Sequence[Callable[[dict[str, Any]], object]] = ...,
) -> dict[str, Any]: ...
