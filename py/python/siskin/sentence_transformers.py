"""`SentenceTransformer` and `CrossEncoder` with the methods of the package sentence-transformers, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ._open import opened

if TYPE_CHECKING:
    from ._open import StrPath
    from ._siskin import Model

__all__ = ["CrossEncoder", "SentenceTransformer"]

Vectors = NDArray[np.float32]


def _normalized(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, np.finfo(np.float32).tiny), dtype=np.float32)


def _quantized(vectors: Vectors, precision: str) -> Any:
    if precision not in ("binary", "ubinary"):
        raise ValueError(f"precision: `{precision}` needs ranges of values; quantize the vectors yourself")
    bits = np.packbits(vectors > 0, axis=-1)
    return bits if precision == "ubinary" else (bits.astype(np.int16) - 128).astype(np.int8)


class SentenceTransformer:
    """An embedding model."""

    def __init__(
        self,
        model_name_or_path: StrPath | Model,
        *,
        truncate_dim: int | None = None,
        device: str | None = None,
        **options: Any,
    ) -> None:
        if device not in (None, "cpu"):
            raise ValueError(f"device: expected `cpu`, got `{device}`")
        self.model = opened(model_name_or_path, **options)
        self.truncate_dim = truncate_dim

    def encode(
        self,
        sentences: str | Sequence[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        normalize_embeddings: bool | None = None,
        truncate_dim: int | None = None,
        precision: Literal["float32", "int8", "uint8", "binary", "ubinary"] = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
    ) -> Any:
        """Returns the embedding of a sentence, or an array with those of several in its rows.

        Long texts are truncated, as in sentence-transformers. `batch_size` and `show_progress_bar` have no effect: batches are
        chosen by length.
        """
        texts: str | Sequence[str] = sentences
        if prompt is not None:
            texts = prompt + sentences if isinstance(sentences, str) else [prompt + text for text in sentences]
        vectors = self.model.embed(
            texts, prompt="" if prompt is not None else prompt_name, overflow="truncate"
        )
        dimensions = truncate_dim or self.truncate_dim
        if dimensions:
            vectors = vectors[..., :dimensions]
        if normalize_embeddings:
            vectors = _normalized(vectors)
        if precision != "float32":
            vectors = _quantized(vectors, precision)
        if convert_to_tensor:
            import torch  # type: ignore[import-not-found, unused-ignore]

            return torch.from_numpy(np.ascontiguousarray(vectors))
        is_list = not convert_to_numpy and not isinstance(sentences, str)
        return list(vectors) if is_list else vectors

    def encode_query(self, sentences: str | Sequence[str], **options: Any) -> Any:
        """The same with the model's prompt for queries, if it has one."""
        return self._with_prompt("query", sentences, options)

    def encode_document(self, sentences: str | Sequence[str], **options: Any) -> Any:
        """The same with the model's prompt for documents, if it has one."""
        return self._with_prompt("document", sentences, options)

    def _with_prompt(self, name: str, sentences: str | Sequence[str], options: dict[str, Any]) -> Any:
        if "prompt" in options or "prompt_name" in options:
            return self.encode(sentences, **options)
        from ._errors import ArgumentError

        try:
            return self.encode(sentences, prompt_name=name, **options)
        except ArgumentError as error:
            if error.location != "prompt":
                raise
            return self.encode(sentences, **options)

    @staticmethod
    def similarity(first: Vectors, second: Vectors) -> Vectors:
        """Returns the cosine similarities of the rows of two arrays."""

        rows = [_normalized(np.atleast_2d(np.asarray(each, dtype=np.float32))) for each in (first, second)]
        return np.asarray(rows[0] @ rows[1].T, dtype=np.float32)

    def get_sentence_embedding_dimension(self) -> int:
        """Returns the length of an embedding."""
        dimensions = self.model.embedding_dimensions
        return min(self.truncate_dim, dimensions) if self.truncate_dim else dimensions


class CrossEncoder:
    """A model that scores pairs of texts."""

    def __init__(self, model_name_or_path: StrPath | Model, **options: Any) -> None:
        self.model = opened(model_name_or_path, **options)

    def predict(self, sentences: Sequence[Any], *, batch_size: int | None = None) -> Any:
        """Returns the score of a pair of texts, or of each of several. `batch_size` has no effect."""
        if len(sentences) == 2 and all(isinstance(text, str) for text in sentences):
            return np.float32(self.model.rerank(sentences[0], [sentences[1]], overflow="truncate")[0])
        scores = np.empty(len(sentences), dtype=np.float32)
        by_query: dict[str, list[int]] = {}
        for index, (query, _) in enumerate(sentences):
            by_query.setdefault(query, []).append(index)
        for query, indices in by_query.items():
            texts = [sentences[index][1] for index in indices]
            scores[indices] = self.model.rerank(query, texts, overflow="truncate")
        return scores

    def rank(
        self, query: str, documents: Sequence[str], top_k: int | None = None, return_documents: bool = False
    ) -> list[dict[str, Any]]:
        """Returns the documents by their scores, the best first."""
        scores = self.model.rerank(query, documents, overflow="truncate")
        order = sorted(range(len(documents)), key=lambda index: -scores[index])[:top_k]
        ranked: list[dict[str, Any]] = [{"corpus_id": index, "score": scores[index]} for index in order]
        if return_documents:
            for entry in ranked:
                entry["text"] = documents[entry["corpus_id"]]
        return ranked
