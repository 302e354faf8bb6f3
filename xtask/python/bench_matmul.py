"""Measures matmuls with int8 and int4 matrices in ONNX Runtime or OpenVINO.

`bench_matmul.py ENGINE WIDTH THREADS ROWS…` multiplies rows with square matrices of WIDTH columns, and prints a line
`name rows seconds` for each kind of product and number of rows. Inputs lie ready and outputs are kept by the engine,
but each call goes through its Python interface, which takes some microseconds.
"""

import sys
import time
from collections.abc import Callable, Iterator

import numpy

PATIENCE = 0.15
GROUP = 32
RANDOM = numpy.random.default_rng(0)


def seconds(call: Callable[[], object]) -> float:
    """The time of a call: the 5th percentile of many, as in `siskin_tests::measure`."""
    for _ in range(3):
        call()
    start, times = time.perf_counter(), []
    while len(times) < 3 or time.perf_counter() - start < PATIENCE:
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return sorted(times)[len(times) // 20]


def onnx_models(width: int) -> Iterator[tuple[str, object, type]]:
    """Models of one matmul each: name, model, dtype of the rows."""
    from onnx import TensorProto, helper, numpy_helper

    weights = RANDOM.integers(-127, 128, (width, width)).astype(numpy.int8)
    scale, one = numpy.array(0.01, numpy.float32), numpy.array(1, numpy.float32)
    groups = (width, width // GROUP)
    constants = {
        "weights": weights,
        "weights_zero": numpy.array(0, numpy.int8),
        "zero": numpy.array(128, numpy.uint8),
        "scale": scale,
        "one": one,
        "nibbles": RANDOM.integers(0, 256, (*groups, GROUP // 2)).astype(numpy.uint8),
        "scales": (RANDOM.random(groups) * 0.01).astype(numpy.float32).reshape(-1),
    }
    node = helper.make_node
    integer = node("MatMulInteger", ["x", "weights", "zero", "weights_zero"], ["y"])
    linear_inputs = ["x", "scale", "zero", "weights", "scale", "weights_zero", "one", "zero"]
    dynamic = [
        node("DynamicQuantizeLinear", ["x"], ["q", "q_scale", "q_zero"]),
        node("MatMulInteger", ["q", "weights", "q_zero", "weights_zero"], ["sums"]),
        node("Cast", ["sums"], ["floats"], to=TensorProto.FLOAT),
        node("Mul", ["q_scale", "scale"], ["factor"]),
        node("Mul", ["floats", "factor"], ["y"]),
    ]
    four = {"K": width, "N": width, "bits": 4, "block_size": GROUP, "accuracy_level": 4}
    nibbles = node("MatMulNBits", ["x", "nibbles", "scales"], ["y"], domain="com.microsoft", **four)
    byte, float32, int32 = TensorProto.UINT8, TensorProto.FLOAT, TensorProto.INT32
    for name, nodes, taken, given in [
        ("MatMulInteger", [integer], byte, int32),
        ("QLinearMatMul", [node("QLinearMatMul", linear_inputs, ["y"])], byte, byte),
        ("DynamicQuantizeLinear+MatMulInteger", dynamic, float32, float32),
        ("MatMulNBits", [nibbles], float32, float32),
    ]:
        used = {input for node in nodes for input in node.input}
        graph = helper.make_graph(
            nodes,
            name,
            [helper.make_tensor_value_info("x", taken, ["rows", width])],
            [helper.make_tensor_value_info("y", given, ["rows", width])],
            [numpy_helper.from_array(constants[key], key) for key in constants if key in used],
        )
        domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=domains, ir_version=8)
        yield name, model, numpy.uint8 if taken == byte else numpy.float32


def rows_of(kind: type, rows: int, width: int) -> numpy.ndarray:
    if kind is numpy.uint8:
        return RANDOM.integers(0, 256, (rows, width)).astype(numpy.uint8)
    return RANDOM.standard_normal((rows, width)).astype(numpy.float32)


def onnxruntime(width: int, threads: int, counts: list[int]) -> None:
    import onnxruntime as engine

    options = engine.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    for name, model, kind in onnx_models(width):
        session = engine.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        for rows in counts:
            binding = session.io_binding()
            binding.bind_cpu_input("x", rows_of(kind, rows, width))
            binding.bind_output("y", "cpu")
            print(name, rows, seconds(lambda: session.run_with_iobinding(binding)))


def openvino(width: int, threads: int, counts: list[int]) -> None:
    import openvino as engine
    from openvino import opset13 as ops

    borrowed = []

    def int8() -> engine.Model:
        """Quantizes rows to int8 with a fixed scale, and weights with one scale per output."""
        x = ops.parameter(engine.PartialShape([-1, width]), engine.Type.f32)
        low, high = (ops.constant(numpy.array(bound, numpy.float32)) for bound in (-4, 4))
        rows = ops.fake_quantize(x, low, high, low, high, 256)
        integers = RANDOM.integers(-127, 128, (width, width)).astype(numpy.int8)
        scales = (RANDOM.random((width, 1)) * 0.01 + 0.001).astype(numpy.float32)
        weights = ops.multiply(ops.convert(ops.constant(integers), engine.Type.f32), ops.constant(scales))
        return engine.Model([ops.matmul(rows, weights, False, True)], [x])

    def four_bits() -> engine.Model:
        """int4 weights with a scale per group; rows are quantized per group, as the hint below requests."""
        shape = [width, width // GROUP, GROUP]
        x = ops.parameter(engine.PartialShape([-1, width]), engine.Type.f32)
        packed = RANDOM.integers(0, 256, width * width // 2).astype(numpy.uint8)
        # The tensor borrows the array, and the engine reads it on the first call with each number of rows.
        borrowed.append(packed)
        nibbles = ops.constant(engine.Tensor(packed, shape, engine.Type.u4))
        zero = ops.constant(numpy.full((*shape[:2], 1), 8, numpy.uint8))
        scales = ops.constant((RANDOM.random((*shape[:2], 1)) * 0.01 + 0.001).astype(numpy.float16))
        half = engine.Type.f16
        weights = ops.multiply(ops.subtract(ops.convert(nibbles, half), ops.convert(zero, half)), scales)
        flat = ops.reshape(weights, ops.constant(numpy.array([width, width], numpy.int64)), False)
        return engine.Model([ops.matmul(x, ops.convert(flat, engine.Type.f32), False, True)], [x])

    settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
    grouped = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": str(GROUP)}
    core = engine.Core()
    for name, build, more in [("int8", int8, {}), ("u4", four_bits, grouped)]:
        model = core.compile_model(build(), "CPU", settings | more)
        for rows in counts:
            request = model.create_infer_request()
            request.set_input_tensor(engine.Tensor(rows_of(numpy.float32, rows, width)))
            print(name, rows, seconds(request.infer))


def main() -> None:
    engines = {"onnxruntime": onnxruntime, "openvino": openvino}
    width, threads, *counts = (int(text) for text in sys.argv[2:])
    engines[sys.argv[1]](width, threads, counts)


main()
