"""Measures the latency of an encoder in ONNX Runtime, OpenVINO or CTranslate2.

`bench_encoders.py ENGINE FOLDER ONNX THREADS WORK…` reads the BERT model of a Hugging Face folder, or the same as an
ONNX file, and prints a line `name work milliseconds` for each kind of arithmetic and each work `TEXTS:LENGTHS`: as
many texts, with tokens as the list says in turn. What an engine's own form of the model takes is kept beside ONNX.
"""

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy

PATIENCE = 0.5
LEAST = 5


def milliseconds(call: Callable[[], object]) -> float:
    """The median over as many calls as `siskin bench` makes."""
    call()
    times = []
    begun = time.perf_counter()
    call()
    repeats = min(max(int(PATIENCE / (time.perf_counter() - begun)), LEAST), 1000)
    for _ in range(repeats):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return sorted(times)[repeats // 2] * 1e3


def texts(work: str, vocabulary: int) -> list[list[int]]:
    """The same ids as `siskin bench` reads."""
    count, lengths = work.split(":")
    lengths = [int(length) for length in lengths.split(",")]
    of = lambda text, place: (1000 + 7919 * (text * 31 + place)) % vocabulary
    return [[of(text, place) for place in range(lengths[text % len(lengths)])] for text in range(int(count))]


def padded(ids: list[list[int]], names: list[str]) -> dict[str, numpy.ndarray]:
    """Rows of equal length, as graphs with static shapes require."""
    width = max(map(len, ids))
    table = numpy.zeros((len(ids), width), numpy.int64)
    mask = numpy.zeros_like(table)
    for row, text in enumerate(ids):
        table[row, : len(text)], mask[row, : len(text)] = text, 1
    given = {"input_ids": table, "attention_mask": mask, "token_type_ids": numpy.zeros_like(table)}
    return {name: given[name] for name in names}


def int8_of(onnx: Path) -> Path:
    """The file with int8 weights and dynamically quantized activations."""
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    quantized, folded, unfinished = (onnx.with_suffix(f".{form}.onnx") for form in ("int8", "folded", "unfinished"))
    if not is_newer(quantized, onnx):
        # Constant-folds matrices that are computed from weights alone: others are not quantized.
        quant_pre_process(onnx, folded, skip_symbolic_shape=True)
        quantize_dynamic(folded, unfinished, weight_type=QuantType.QInt8)
        folded.unlink()
        unfinished.rename(quantized)
    return quantized


def is_newer(made: Path, source: Path) -> bool:
    """Whether it was made from the current source file."""
    return made.exists() and made.stat().st_mtime >= source.stat().st_mtime


def onnxruntime(folder: Path, onnx: Path, threads: int) -> Iterator[tuple[str, Callable]]:
    import onnxruntime as engine

    options = engine.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = engine.InferenceSession(str(int8_of(onnx)), options, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    output = session.get_outputs()[0].name

    def prepare(ids: list[list[int]]) -> Callable[[], object]:
        given = padded(ids, names)
        return lambda: session.run([output], given)

    yield "int8", prepare


def openvino(folder: Path, onnx: Path, threads: int) -> Iterator[tuple[str, Callable]]:
    import openvino as engine

    core = engine.Core()
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "bf16"}
    files = [("bf16", onnx)]
    try:
        files.append(("int8", int8_of(onnx)))
    except ImportError as error:
        print(f"no int8 file for OpenVINO: {error}", file=sys.stderr)
    for name, file in files:
        compiled = core.compile_model(core.read_model(str(file)), "CPU", settings)
        names = [given.any_name for given in compiled.inputs]

        def prepare(ids: list[list[int]], compiled=compiled, names=names) -> Callable[[], object]:
            given = padded(ids, names)
            return lambda: compiled(given)

        yield name, prepare


def ctranslate2(folder: Path, onnx: Path, threads: int) -> Iterator[tuple[str, Callable]]:
    import ctranslate2 as engine

    converted, unfinished = onnx.with_suffix(".ctranslate2"), onnx.with_suffix(".unfinished")
    if not is_newer(converted, onnx):
        shutil.rmtree(unfinished, ignore_errors=True)
        convert(folder, unfinished)
        shutil.rmtree(converted, ignore_errors=True)
        unfinished.rename(converted)
    encoder = engine.Encoder(str(converted), device="cpu", compute_type="int8", intra_threads=threads)
    yield "int8", lambda ids: lambda: encoder.forward_batch(ids)


def convert(folder: Path, output: Path) -> None:
    """Writes the model in CTranslate2's format."""
    from ctranslate2.converters import utils
    from ctranslate2.specs import common_spec, transformer_spec
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    take = lambda name: next(tensors[full] for full in (name, f"bert.{name}") if full in tensors)
    encoder = transformer_spec.TransformerEncoderSpec(
        config["num_hidden_layers"],
        config["num_attention_heads"],
        pre_norm=False,
        activation=common_spec.Activation.GELU,
        layernorm_embedding=True,
        num_source_embeddings=2,
        embeddings_merge=common_spec.EmbeddingsMerge.ADD,
    )
    encoder.scale_embeddings = False
    spec = transformer_spec.TransformerEncoderModelSpec(encoder)

    def linear(to: object, name: str) -> object:
        to.weight, to.bias = take(f"{name}.weight"), take(f"{name}.bias")
        return to

    def norm(to: object, name: str) -> None:
        to.gamma, to.beta = take(f"{name}.weight"), take(f"{name}.bias")

    encoder.embeddings[0].weight = take("embeddings.word_embeddings.weight")
    encoder.embeddings[1].weight = take("embeddings.token_type_embeddings.weight")
    encoder.position_encodings.encodings = take("embeddings.position_embeddings.weight")
    norm(encoder.layernorm_embedding, "embeddings.LayerNorm")
    for index, layer in enumerate(encoder.layer):
        of = f"encoder.layer.{index}"
        parts = [linear(common_spec.LinearSpec(), f"{of}.attention.self.{part}") for part in ("query", "key", "value")]
        utils.fuse_linear(layer.self_attention.linear[0], parts)
        linear(layer.self_attention.linear[1], f"{of}.attention.output.dense")
        norm(layer.self_attention.layer_norm, f"{of}.attention.output.LayerNorm")
        linear(layer.ffn.linear_0, f"{of}.intermediate.dense")
        linear(layer.ffn.linear_1, f"{of}.output.dense")
        norm(layer.ffn.layer_norm, f"{of}.output.LayerNorm")
    spec.register_vocabulary([f"<{index}>" for index in range(config["vocab_size"])])
    spec.config.unk_token, spec.config.layer_norm_epsilon = "<0>", config["layer_norm_eps"]
    spec.validate()
    spec.optimize(quantization="int8")
    output.mkdir()
    spec.save(str(output))


def main() -> None:
    engines = {"onnxruntime": onnxruntime, "openvino": openvino, "ctranslate2": ctranslate2}
    engine, folder, onnx, threads, *works = sys.argv[1:]
    vocabulary = json.loads((Path(folder) / "config.json").read_text())["vocab_size"]
    for name, prepare in engines[engine](Path(folder), Path(onnx), int(threads)):
        for work in works:
            print(name, work, milliseconds(prepare(texts(work, vocabulary))), flush=True)


main()
