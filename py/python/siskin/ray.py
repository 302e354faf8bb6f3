"""Ray: embeddings for `Dataset.map_batches`, and a deployment of Ray Serve. The actors of a node share the mapped model file.

    dataset.map_batches(siskin.ray.Embedder, fn_constructor_kwargs={"model": "minilm/"}, concurrency=2)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ._open import load

if TYPE_CHECKING:
    from ._open import StrPath

__all__ = ["ChatDeployment", "Embedder"]


class Embedder:
    """Adds the embeddings of a column of texts to each batch."""

    def __init__(
        self, model: StrPath, column: str = "text", output: str = "embedding", **options: Any
    ) -> None:
        self.model = load(model, **options)
        self.column, self.output = column, output

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        texts = [str(text) for text in batch[self.column]]
        return {**batch, self.output: self.model.embed(texts)}


class ChatDeployment:
    """Responds to conversations; `serve.deployment(ChatDeployment).bind("smollm2")` deploys it."""

    def __init__(self, model: StrPath, **options: Any) -> None:
        self.model = load(model, **options)

    def chat(self, messages: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
        """Returns the message of the response."""
        message: dict[str, Any] = self.model.chat(messages, **options).message
        return message

    def stream(self, messages: list[dict[str, Any]], **options: Any) -> Iterator[str]:
        """Yields the response in pieces; call it with `handle.options(stream=True)`."""
        yield from self.model.chat(messages, stream=True, **options)
