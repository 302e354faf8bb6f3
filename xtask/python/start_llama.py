"""Loads a GGUF file with llama.cpp, continues a prompt greedily and prints one line of JSON.

`first_token_ms` runs from before the model is loaded to the text of the first token; importing the library is not in
it. `peak_mib` and `anonymous_mib` are what is resident beyond what the interpreter held before loading.
"""

import argparse
import ctypes
import json
import time

import llama_cpp


def resident(field: str) -> float:
    """A memory field of this process in MiB."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
    raise SystemExit(f"the system does not say {field}")


def generate(options: argparse.Namespace) -> float:
    """The time to first token in seconds."""
    start = time.perf_counter()
    model = llama_cpp.llama_model_load_from_file(options.model.encode(), llama_cpp.llama_model_default_params())
    if not model:
        raise SystemExit(f"llama.cpp cannot load {options.model}")
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = options.context
    params.n_threads = params.n_threads_batch = options.threads
    context = llama_cpp.llama_init_from_model(model, params)
    if not context:
        raise SystemExit("llama.cpp cannot make a context")
    vocabulary = llama_cpp.llama_model_get_vocab(model)
    sampler = llama_cpp.llama_sampler_init_greedy()
    text = options.prompt.encode()
    room = len(text) + 8
    tokens = (llama_cpp.llama_token * room)()
    count = llama_cpp.llama_tokenize(vocabulary, text, len(text), tokens, room, True, False)
    piece = ctypes.create_string_buffer(256)
    first = None
    for _ in range(options.tokens):
        if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(tokens, count)) != 0:
            raise SystemExit("llama.cpp failed to evaluate")
        token = llama_cpp.llama_sampler_sample(sampler, context, -1)
        llama_cpp.llama_token_to_piece(vocabulary, token, piece, len(piece), 0, False)
        first = first or time.perf_counter() - start
        tokens, count = (llama_cpp.llama_token * 1)(token), 1
    return first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("prompt")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    silent = llama_cpp.llama_log_callback(lambda level, text, user: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    before = resident("VmHWM"), resident("RssAnon")
    first = generate(options)
    report = {"first_token_ms": round(first * 1e3, 2)}
    report["peak_mib"] = round(resident("VmHWM") - before[0], 1)
    report["anonymous_mib"] = round(resident("RssAnon") - before[1], 1)
    print(json.dumps(report))


main()
