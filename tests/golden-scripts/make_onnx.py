"""Small ONNX models, exported by PyTorch from golden models, with what PyTorch and ONNX Runtime compute for them.

usage: make_onnx.py GOLDEN_TEXTS_DIR OUT_DIR SEEDS_DIR [NAME]…

OUT_DIR/NAME/: graphs, and the config.json of the model where the export is to be recognized by it. What a graph of a
golden model computes is in the golden model's io.safetensors; for the others OUT_DIR/NAME/io.safetensors has inputs and
outputs. SEEDS_DIR: small files for fuzzing.

Needs torch, transformers, onnx, onnxscript and onnxruntime. Names say by which of PyTorch's two exporters a graph is:
`-dynamo` is the newer one.
"""
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
import transformers as T
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

warnings.filterwarnings("ignore")
GOLDEN, OUT, SEEDS = (Path(argument) for argument in sys.argv[1:4])
WANTED = sys.argv[4:]
TOKENS = 19


def golden(name, kind, **settings):
    return kind.from_pretrained(GOLDEN / name, attn_implementation="eager", **settings).eval()


class Named(torch.nn.Module):
    """A model that takes positional inputs and returns some of its outputs."""

    def __init__(self, model, inputs, outputs):
        super().__init__()
        self.model, self.inputs, self.outputs = model, inputs, outputs

    def forward(self, *values):
        given = self.model(**dict(zip(self.inputs, values)), return_dict=True)
        return tuple(given[name] for name in self.outputs)


def export(model, path, inputs, outputs, dynamo, beside=False):
    """Exports with dynamic batch and length. The wrapper's name is removed from the graph's names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    names = list(inputs)
    wrapped = Named(model, names, outputs).eval()
    values = tuple(inputs.values())
    if dynamo:
        shapes = tuple({axis: torch.export.Dim.DYNAMIC for axis in range(min(2, value.ndim))} for value in values)
        torch.onnx.export(wrapped, values, path, dynamo=True, input_names=names, output_names=outputs,
                          dynamic_shapes=(shapes,), external_data=beside, verbose=False)
    else:
        axes = {name: {0: "batch", 1: name + "_tokens"} for name in names}
        axes |= {name: {0: "batch"} for name in outputs}
        torch.onnx.export(wrapped, values, path, dynamo=False, input_names=names, output_names=outputs,
                          dynamic_axes=axes, opset_version=17)
    strip(path, beside)


def strip(path, beside):
    """Names as if a tool exported the model itself, and no stack traces of this machine."""
    model = onnx.load(path, load_external_data=False)
    graph = model.graph
    bare = lambda name: name.removeprefix("model.") if name.startswith("model.") else (
        "/" + name.removeprefix("/model/") if name.startswith("/model/") else name)
    for tensor in graph.initializer:
        tensor.name = bare(tensor.name)
    for node in graph.node:
        node.name = bare(node.name)
        node.input[:] = [bare(name) for name in node.input]
        node.output[:] = [bare(name) for name in node.output]
        kept = [entry for entry in node.metadata_props if entry.key == "pkg.torch.onnx.name_scopes"]
        scopes = [entry.value.replace("'model.", "'").replace("'model', ", "") for entry in kept]
        del node.metadata_props[:]
        for scope in scopes:
            node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=scope)
        node.doc_string = ""
    del graph.value_info[:]
    del model.metadata_props[:]
    for value in [*graph.input, *graph.output, *graph.initializer]:
        del value.metadata_props[:]
    if beside:
        path.write_bytes(model.SerializeToString())
    else:
        onnx.save(model, path)


def config(name, folder):
    shutil.copy(GOLDEN / name / "config.json", folder)


def ids(columns=TOKENS):
    return torch.randint(5, 80, (2, columns))


def text(segments):
    given = dict(input_ids=ids(), attention_mask=torch.ones(2, TOKENS, dtype=torch.long))
    if segments:
        given["token_type_ids"] = torch.zeros(2, TOKENS, dtype=torch.long)
    return given


def known(name, source, kind, outputs, dynamo, segments=True, beside=False, **settings):
    export(golden(source, kind, **settings), OUT / name / "model.onnx", text(segments), outputs, dynamo, beside)
    config(source, OUT / name)


def write_io(name, inputs, outputs):
    tensors = {key: np.ascontiguousarray(value) for key, value in {**inputs, **outputs}.items()}
    save_file(tensors, OUT / name / "io.safetensors")


def runtime(path, inputs):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    given = {key: value for key, value in inputs.items() if key in {port.name for port in session.get_inputs()}}
    return dict(zip([port.name for port in session.get_outputs()], session.run(None, given)))


def t5():
    model = golden("t5", T.T5ForConditionalGeneration)
    hidden = torch.randn(2, TOKENS, 32)
    folder = OUT / "t5"
    export(model.get_encoder(), folder / "encoder_model.onnx", text(False), ["last_hidden_state"], False)

    class Decoder(torch.nn.Module):
        """As exporters wrap the decoder: ids, a mask and hidden states in, logits out."""

        def __init__(self):
            super().__init__()
            self.decoder, self.lm_head, self.config = model.decoder, model.lm_head, model.config

        def forward(self, input_ids, encoder_attention_mask, encoder_hidden_states, return_dict):
            out = self.decoder(input_ids=input_ids, encoder_attention_mask=encoder_attention_mask,
                               encoder_hidden_states=encoder_hidden_states, use_cache=False)[0]
            # `T5ForConditionalGeneration` has this factor.
            return dict(logits=self.lm_head(out * self.config.d_model**-0.5))

    inputs = dict(input_ids=ids(7), encoder_attention_mask=torch.ones(2, TOKENS, dtype=torch.long),
                  encoder_hidden_states=hidden)
    export(Decoder(), folder / "decoder_model.onnx", inputs, ["logits"], False)
    config("t5", folder)


def decoder(name, kind, settings):
    torch.manual_seed(7)
    model = kind(settings)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.config._attn_implementation = "eager"
    model.config.use_cache = False
    model.eval()
    given = text(False)
    with torch.no_grad():
        logits = model(**given).logits
    export(model, OUT / name / "model.onnx", given, ["logits"], False)
    model.config.save_pretrained(OUT / name)
    write_io(name, dict(input_ids=given["input_ids"].numpy()), dict(logits=logits.numpy()))


SMALL = dict(vocab_size=80, max_position_embeddings=64)


def gpt2():
    settings = T.GPT2Config(vocab_size=80, n_positions=64, n_embd=32, n_layer=2, n_head=4, layer_norm_epsilon=1e-3,
                            bos_token_id=1, eos_token_id=2)
    decoder("gpt2", T.GPT2LMHeadModel, settings)


def llama():
    settings = T.LlamaConfig(**SMALL, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                             num_key_value_heads=2, bos_token_id=1, eos_token_id=2)
    decoder("llama", T.LlamaForCausalLM, settings)


def other_activation():
    """BERT in all but what its configuration does not say."""
    model = golden("bert", T.BertForMaskedLM)
    for layer in model.bert.encoder.layer:
        layer.intermediate.intermediate_act_fn = torch.nn.Tanh()
    given = text(True)
    export(model, OUT / "bert-tanh" / "model.onnx", given, ["logits"], False)
    config("bert", OUT / "bert-tanh")
    given = {key: value.numpy() for key, value in given.items()}
    write_io("bert-tanh", given, runtime(OUT / "bert-tanh" / "model.onnx", given))


def halves(name, kind):
    """`bert-classes` with f16 matrices, cast where they are used."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export(golden("bert-classes", T.BertForSequenceClassification), path, text(True), ["logits"], False)
        model = onnx.load(path)
    casts = []
    for tensor in model.graph.initializer:
        if tensor.data_type != TensorProto.FLOAT or len(tensor.dims) < 2:
            continue
        floats = torch.from_numpy(numpy_helper.to_array(tensor).copy())
        half = floats.to(torch.float16 if kind == TensorProto.FLOAT16 else torch.bfloat16).view(torch.int16)
        wide, stored = tensor.name, tensor.name
        for node in model.graph.node:
            node.input[:] = [wide + "_wide" if name == wide else name for name in node.input]
        tensor.CopyFrom(helper.make_tensor(stored, kind, tensor.dims, half.numpy().tobytes(), raw=True))
        casts.append(helper.make_node("Cast", [stored], [wide + "_wide"], to=TensorProto.FLOAT))
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(casts + nodes)
    (OUT / name).mkdir(parents=True, exist_ok=True)
    onnx.save(model, OUT / name / "model.onnx")
    config("bert-classes", OUT / name)


def mlp():
    """Not a language model: floats in, floats and integers out."""
    random = np.random.default_rng(7)
    floats = lambda *shape: random.standard_normal(shape).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w"], ["a"]),
            helper.make_node("Tanh", ["a"], ["b"]),
            helper.make_node("MatMul", ["b", "v"], ["y"]),
            helper.make_node("ArgMax", ["y"], ["best"], axis=1, keepdims=0),
        ],
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5]),
         helper.make_tensor_value_info("best", TensorProto.INT64, ["n"])],
        [numpy_helper.from_array(floats(3, 4), "w"), numpy_helper.from_array(floats(4, 5), "v")],
    )
    (OUT / "mlp").mkdir(parents=True, exist_ok=True)
    path = OUT / "mlp" / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    given = dict(x=floats(6, 3))
    write_io("mlp", given, runtime(path, given))


def seeds():
    SEEDS.mkdir(parents=True, exist_ok=True)
    shutil.copy(OUT / "mlp" / "model.onnx", SEEDS / "mlp.onnx")
    x = helper.make_tensor_value_info("x", TensorProto.INT64, [1, "tokens"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    linear = [
        helper.make_node("Gather", ["encoder.embed.weight", "x"], ["a"]),
        helper.make_node("MatMul", ["a", "onnx::MatMul_3"], ["b"], name="/encoder/layer.0/dense/MatMul"),
        helper.make_node("Add", ["encoder.layer.0.dense.bias", "b"], ["c"]),
        helper.make_node("Transpose", ["encoder.layer.1.dense.weight"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["c", "t"], ["y"]),
    ]
    tensors = [
        helper.make_tensor("encoder.embed.weight", TensorProto.FLOAT, [3, 2], [1.0, 2, 3, 4, 5, 6]),
        helper.make_tensor("onnx::MatMul_3", TensorProto.FLOAT16, [2, 2], np.ones(4, np.float16).tobytes(), raw=True),
        helper.make_tensor("encoder.layer.0.dense.bias", TensorProto.FLOAT, [2], [0.5, 1.5]),
        numpy_helper.from_array(np.ones((2, 2), np.float32), "encoder.layer.1.dense.weight"),
    ]
    linear[3].metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'encoder', 'encoder.layer.1', 'linear']")
    save = lambda name, nodes, tensors: onnx.save(
        helper.make_model(helper.make_graph(nodes, name, [x], [y], tensors), ir_version=8), SEEDS / f"{name}.onnx")
    save("linear", linear, tensors)
    inner = lambda value: helper.make_graph(
        [helper.make_node("Constant", [], [value], value=helper.make_tensor("", TensorProto.FLOAT, [1], [1.0]))], value,
        [], [helper.make_tensor_value_info(value, TensorProto.FLOAT, [1])])
    save("branches", [
        helper.make_node("Constant", [], ["flag"], value=helper.make_tensor("", TensorProto.BOOL, [], [True])),
        helper.make_node("If", ["flag"], ["y"], then_branch=inner("p"), else_branch=inner("q"))], [])
    beside = numpy_helper.from_array(np.ones((2, 2), np.float32), "w")
    onnx.external_data_helper.set_external_data(beside, "weights.bin", 0, 16)
    beside.ClearField("raw_data")
    beside.data_location = TensorProto.EXTERNAL
    save("beside", [helper.make_node("Cast", ["x"], ["f"], to=1), helper.make_node("MatMul", ["f", "w"], ["y"])], [beside])


MAKERS = {
    "bert": lambda: known("bert", "bert", T.BertForMaskedLM, ["logits"], False),
    "bert-labels-dynamo": lambda: known("bert-labels-dynamo", "bert-labels", T.BertForTokenClassification, ["logits"], True),
    "distilbert-dynamo": lambda: known("distilbert-dynamo", "distilbert", T.DistilBertForSequenceClassification,
                                       ["logits"], True, segments=False, beside=True),
    "t5": t5,
    "gpt2": gpt2,
    "llama": llama,
    "bert-tanh": other_activation,
    "bert-f16": lambda: halves("bert-f16", TensorProto.FLOAT16),
    "bert-bf16": lambda: halves("bert-bf16", TensorProto.BFLOAT16),
    "mlp": mlp,
    "seeds": seeds,
}

for name in WANTED or MAKERS:
    torch.manual_seed(7)
    MAKERS[name]()
    print(name, {file.name: file.stat().st_size for file in sorted((OUT / name).glob("*"))})
