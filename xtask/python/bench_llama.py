"""Measures llama.cpp on a GGUF file through the llama-cpp-python package; prints one line of JSON.

A prompt of --prompt tokens is evaluated in batches, then --generate tokens are evaluated one by one, each from an
empty cache that first takes --depth tokens. With --sequences, as many sequences generate together, one token of each in
a batch, and the speed is that of all together. Every measurement is repeated and the median printed, in tokens per
second. Sampling is not part of it.
"""

import argparse
import ctypes
import json
import resource
import statistics
import time

import llama_cpp

BATCH = 2048
KV_TYPES = {"f16": 1, "q8_0": 8}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=128)
    parser.add_argument("--depth", type=int, default=0)
    parser.add_argument("--sequences", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--kv", choices=sorted(KV_TYPES), default="f16")
    return parser.parse_args()


class Peer:
    """One loaded model with one context."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.depth = options.depth
        start = time.perf_counter()
        self.model = llama_cpp.llama_model_load_from_file(
            options.model.encode(), llama_cpp.llama_model_default_params()
        )
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {options.model}")
        params = llama_cpp.llama_context_default_params()
        self.sequences = options.sequences
        # The context is divided among the sequences.
        params.n_ctx = options.sequences * (options.depth + max(options.prompt, options.generate) + 8)
        params.n_seq_max = options.sequences
        params.n_batch, params.n_ubatch = BATCH, 512
        params.n_threads = params.n_threads_batch = options.threads
        params.type_k = params.type_v = KV_TYPES[options.kv]
        if hasattr(params, "flash_attn_type"):
            params.flash_attn_type = 1
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit("llama.cpp cannot make a context")
        self.load_seconds = time.perf_counter() - start
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.memory = llama_cpp.llama_get_memory(self.context)

    def evaluate(self, count: int, position: int) -> None:
        """Evaluates `count` synthetic tokens from `position` on."""
        for start in range(0, count, BATCH):
            size = min(BATCH, count - start)
            first = position + start
            tokens = ((1000 + 7919 * (first + i)) % self.vocabulary for i in range(size))
            ids = (llama_cpp.llama_token * size)(*tokens)
            if llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(ids, size)) != 0:
                raise SystemExit("llama.cpp failed to evaluate a batch")

    def refresh(self) -> None:
        llama_cpp.llama_memory_clear(self.memory, True)
        self.evaluate(self.depth, 0)

    def evaluate_together(self, step: int, batch: llama_cpp.llama_batch) -> None:
        """Evaluates the next token of every sequence, all with logits."""
        for index in range(self.sequences):
            batch.token[index] = (1000 + 7919 * (step + 7 * index)) % self.vocabulary
            batch.pos[index] = self.depth + step
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, index
            batch.logits[index] = True
        batch.n_tokens = self.sequences
        if llama_cpp.llama_decode(self.context, batch) != 0:
            raise SystemExit("llama.cpp failed to evaluate a batch")

    def prompt_rate(self, count: int) -> float:
        self.refresh()
        start = time.perf_counter()
        self.evaluate(count, self.depth)
        return count / (time.perf_counter() - start)

    def generate_rate(self, count: int) -> float:
        self.refresh()
        if self.sequences == 1:
            start = time.perf_counter()
            for step in range(count):
                self.evaluate(1, self.depth + step)
            return count / (time.perf_counter() - start)
        for sequence in range(1, self.sequences):
            llama_cpp.llama_memory_seq_cp(self.memory, 0, sequence, -1, -1)
        batch = llama_cpp.llama_batch_init(self.sequences, 0, 1)
        start = time.perf_counter()
        for step in range(count):
            self.evaluate_together(step, batch)
        rate = self.sequences * count / (time.perf_counter() - start)
        llama_cpp.llama_batch_free(batch)
        return rate


def main() -> None:
    options = arguments()
    silent = llama_cpp.llama_log_callback(lambda level, text, user: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    peer = Peer(options)
    peer.evaluate(8, 0)
    report = {"model": options.model, "threads": options.threads, "kv": options.kv, "depth": options.depth}
    report["sequences"] = options.sequences
    report["load_ms"] = round(peer.load_seconds * 1e3, 1)
    for key, measure, count in (
        ("prompt_tok_s", peer.prompt_rate, options.prompt),
        ("generate_tok_s", peer.generate_rate, options.generate),
    ):
        if count:
            report[key] = round(statistics.median(measure(count) for _ in range(options.repeat)), 1)
    report["peak_rss_mib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
    print(json.dumps(report))


main()
