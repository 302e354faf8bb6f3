"""A model of lm-evaluation-harness: `python -m siskin.lm_eval --model siskin --model_args model=NAME --tasks …`."""

from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import make_disjoint_window, get_rolling_token_windows

from ._open import load

__all__ = ["SiskinLM"]


@register_model("siskin")
class SiskinLM(TemplateLM):  # type: ignore[misc]
    """Runs a model in this process. As with the harness's own models, texts get no BOS token unless `add_bos_token` is set."""

    def __init__(
        self,
        model: str,
        max_gen_toks: int = 256,
        add_bos_token: bool = False,
        batch_size: Any = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.max_gen_toks = int(max_gen_toks)
        # Arguments of the command line may be texts.
        self.add_bos_token = str(add_bos_token).lower() == "true"
        for ignored in ("device", "max_batch_size"):
            options.pop(ignored, None)
        self.model = load(model, **options)
        self.max_length = int(options.get("context", 0)) or min(self.model.context_length, 2048)

    @property
    def eot_token_id(self) -> int:
        eos = self.model.eos_token
        return eos if eos is not None else self.model.end_tokens[0]

    @property
    def prefix_token_id(self) -> int:
        bos = self.model.bos_token
        return bos if bos is not None else self.eot_token_id

    @property
    def tokenizer_name(self) -> str:
        return self.model.name.replace("/", "__")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        special = self.add_bos_token if add_special_tokens is None else add_special_tokens
        return self.model.encode(string, add_special_tokens=special)

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **_: Any
    ) -> list[tuple[float, bool]]:
        def fitting(context: list[int], continuation: list[int]) -> tuple[list[int], list[int]]:
            # The last token is scored, but not read.
            tokens = (context + continuation)[-(self.max_length + 1) :]
            split = max(1, len(tokens) - len(continuation))
            return tokens[:split], tokens[split:]

        pairs = [fitting(context, continuation) for _, context, continuation in requests]
        return self.model.log_likelihoods(pairs)

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        totals = []
        for request in requests:
            windows = get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0], add_special_tokens=False),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            )
            pairs = [make_disjoint_window(window) for window in windows]
            totals.append(sum(score for score, _ in self.model.log_likelihoods(pairs)))
        return totals

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        texts = [""] * len(requests)
        groups: dict[str, list[int]] = {}
        for index, request in enumerate(requests):
            groups.setdefault(repr(request.args[1]), []).append(index)
        for indices in groups.values():
            settings = requests[indices[0]].args[1]
            stop = settings.get("until") or []
            max_tokens = int(settings.get("max_gen_toks", self.max_gen_toks))
            kept = max(1, self.max_length - max_tokens)
            completions = self.model.generate(
                [self.tok_encode(requests[index].args[0])[-kept:] for index in indices],
                stop=[stop] if isinstance(stop, str) else list(stop),
                max_tokens=max_tokens,
                temperature=settings.get("temperature", 0.0) if settings.get("do_sample", False) else 0.0,
            )
            for index, completion in zip(indices, completions):
                texts[index] = completion.text
        return texts


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
