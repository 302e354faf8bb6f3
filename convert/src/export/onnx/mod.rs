//! Writes ONNX models (opset 17): the graph as the family builds it, one implementation of a trait per operation.
//!
//! Initializers have the names and the layout of Hugging Face. The family and the configuration are stored in the
//! model's metadata properties. Our importer reads only the embedding settings from them: without a `config.json` in
//! its folder, the file is an unrecognized graph.
#![deny(
    clippy::wildcard_enum_match_arm,
    reason = "every match over operations names what it does with each of them"
)]

mod attention;
mod experts;
mod lower;
mod nodes;
mod operations;
mod positions;
mod proto;
mod weights;

use super::model::ExportModel;
use super::tensors::{self, Entry};
use super::{ExportFormat, ExportOptions, ExportReport, finish};
use crate::import::onnx::SETTINGS;
use lower::{GraphLowering, Inputs};
use nodes::Nodes;
use proto::{Dimension, Element, ProtoWriter};
use siskin_format::{Error, Result};
use siskin_graph::{Graph, OutputHead};
use siskin_kernels::quant::BlockType;
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use weights::Initializers;

pub(super) static FORMAT: ExportFormat = ExportFormat { name: "onnx", ending: "onnx", write };

/// The operator set version.
const OPSET: i64 = 17;
/// The IR version that goes with the operator set.
const IR: i64 = 8;
/// Alignment in bytes of weights in an external data file.
const ALIGNMENT: u64 = 64;

const BATCH: Dimension = Dimension::Named("batch");
const ROWS: Dimension = Dimension::Named("sequence");
const WRITTEN: Dimension = Dimension::Named("decoder_sequence");

fn write(model: &ExportModel<'_>, to: &Path, options: &ExportOptions<'_>) -> Result<ExportReport> {
    let entries =
        tensors::entries(model, model.descriptor.hugging_face.rules, |weight| Ok(weight.name.clone()))?;
    let usual = tensors::usual_float(model, &entries);
    let types = entries.iter().map(|entry| entry.float(model, options.dtype, usual));
    let types = types.collect::<Result<Vec<_>>>()?;
    let mut report = ExportReport::default();
    let form = form(model, &entries, &types)?;
    let bytes = entries.iter().zip(&types).map(|(entry, block)| entry.bytes(*block)).sum::<Result<u64>>()?;
    let outside = bytes > options.max_inline_bytes;
    let mut out = options.create(to)?;
    let beside = outside.then(|| to.with_extension("onnx.data"));
    let leftovers = match &beside {
        Some(_) => Vec::new(),
        None => {
            let name =
                to.with_extension("onnx.data").file_name().map(|name| name.to_string_lossy().into_owned());
            options.leftovers(to.parent().unwrap_or(Path::new("")), name)?
        }
    };
    let mut data = beside.as_deref().map(|path| options.create_in_folder(path)).transpose()?;
    let location =
        beside.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let starts = starts(&entries, &types, location.as_deref())?;
    options.progress.message("writing");
    options.progress.total(bytes);
    let io = |error: std::io::Error| Error::io(to.display().to_string(), &error);
    let length: u64 = form.bytes().len() as u64 + starts.iter().map(Start::length).sum::<u64>();
    let model_start = model_message(model).head(7, length);
    out.write_all(model_start.bytes()).map_err(io)?;
    out.write_all(form.bytes()).map_err(io)?;
    let mut written = 0;
    for ((entry, block), start) in entries.iter().zip(&types).zip(&starts) {
        out.write_all(start.message.bytes()).map_err(io)?;
        match &mut data {
            None => {
                entry.write_with(*block, options.progress, &mut |bytes| out.write_all(bytes).map_err(io))?
            }
            Some(data) => {
                data.write_all(&vec![0; (start.offset - written) as usize]).map_err(io)?;
                entry.write_with(*block, options.progress, &mut |bytes| data.write_all(bytes).map_err(io))?;
                written = start.offset + start.bytes;
            }
        }
    }
    finish(data.into_iter().chain([out]), &leftovers)?;
    report.files.push(to.to_owned());
    report.files.extend(beside);
    note_what_is_left_out(model, &mut report.notes);
    Ok(report)
}

fn note_what_is_left_out(model: &ExportModel<'_>, notes: &mut Vec<String>) {
    if model.file.tokenizer().is_some() {
        notes.push("the tokenizer is not part of an ONNX model: export a folder for it".to_owned());
    }
    if model.config.get("sentence_transformers").is_some() {
        let message = "pooling, normalization and prompts are not part of the graph: only Siskin reads them \
                       from the file";
        notes.push(message.to_owned());
        notes.extend(model.note_without("dense"));
    }
}

/// The header of an initializer: what precedes its data in the model file.
struct Start {
    message: ProtoWriter,
    /// Offset of its data in the external data file.
    offset: u64,
    /// Length of its data in bytes.
    bytes: u64,
    /// Whether the data follows inline.
    inside: bool,
}

impl Start {
    fn length(&self) -> u64 {
        self.message.bytes().len() as u64 + if self.inside { self.bytes } else { 0 }
    }
}

fn starts(entries: &[Entry<'_>], types: &[BlockType], location: Option<&str>) -> Result<Vec<Start>> {
    let mut starts = Vec::new();
    let mut end = 0u64;
    for (entry, block) in entries.iter().zip(types) {
        let other = [(BlockType::F16, Element::Half), (BlockType::BF16, Element::Brain)];
        let element =
            other.iter().find(|(ty, _)| ty == block).map_or(Element::Float, |(_, element)| *element);
        let bytes = entry.bytes(*block)?;
        let offset = end.next_multiple_of(ALIGNMENT);
        end = offset + bytes;
        let tensor = proto::tensor(&entry.name, element, &entry.shape);
        let (tensor, inside) = match location {
            None => (tensor.head(9, bytes), true),
            Some(location) => {
                let facts =
                    [("location", location), ("offset", &offset.to_string()), ("length", &bytes.to_string())];
                let tensor = facts
                    .iter()
                    .fold(tensor, |tensor, (key, value)| tensor.message(13, &proto::entry(key, value)))
                    .number(14, 1);
                (tensor, false)
            }
        };
        let length = tensor.bytes().len() as u64 + if inside { bytes } else { 0 };
        let message = ProtoWriter::default().head(5, length).then(&tensor);
        starts.push(Start { message, offset, bytes, inside });
    }
    Ok(starts)
}

/// Builds the model message without its graph.
fn model_message(model: &ExportModel<'_>) -> ProtoWriter {
    let config = serde_json::Value::Object(model.config.values().clone()).to_string();
    let opset = ProtoWriter::default().text(1, "").number(2, OPSET);
    ProtoWriter::default()
        .number(1, IR)
        .text(2, "siskin")
        .text(3, env!("CARGO_PKG_VERSION"))
        .message(8, &opset)
        .message(14, &proto::entry("siskin.family", model.descriptor.family.name))
        .message(14, &proto::entry(SETTINGS, &config))
}

/// Builds the graph without weights: nodes, constants, inputs and outputs.
fn form(model: &ExportModel<'_>, entries: &[Entry<'_>], types: &[BlockType]) -> Result<ProtoWriter> {
    let mut nodes = Nodes::default();
    let mut weights = Initializers::new(model, entries, types);
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    let mut memory = HashMap::new();
    let mut mask = None;
    if let Some(graph) = &model.graphs.encoder {
        nodes.scope = "encoder";
        let names = reading(graph, model, &mut inputs);
        mask.clone_from(&names.mask);
        let mut side = GraphLowering::new(graph, &mut nodes, &mut weights, names, (&mut memory, None));
        let out = side.write()?;
        let hidden = side.hidden.take();
        match &model.graphs.decoder {
            Some(_) => {
                outputs.push(output(&mut nodes, graph, "encoder_last_hidden_state", &out, &[BATCH, ROWS]))
            }
            None => reading_outputs(&mut nodes, graph, &out, hidden, &mut outputs),
        }
    }
    if let Some(graph) = &model.graphs.decoder {
        nodes.scope = "decoder";
        let names = match &model.graphs.encoder {
            None => reading(graph, model, &mut inputs),
            Some(_) => {
                inputs.push(proto::value("decoder_input_ids", Element::Int64, &[BATCH, WRITTEN]));
                Inputs { rows: "decoder_input_ids".to_owned(), ..Inputs::default() }
            }
        };
        let rows = if model.graphs.encoder.is_some() { WRITTEN } else { ROWS };
        let mut side = GraphLowering::new(graph, &mut nodes, &mut weights, names, (&mut memory, mask));
        let out = side.write()?;
        outputs.insert(0, output(&mut nodes, graph, "logits", &out, &[BATCH, rows]));
    }
    let graph = nodes.nodes.iter().fold(ProtoWriter::default(), |graph, node| graph.message(1, node));
    let graph = graph.text(2, model.descriptor.family.name);
    let graph = nodes.constants.iter().fold(graph, |graph, constant| graph.message(5, constant));
    let graph = inputs.iter().fold(graph, |graph, input| graph.message(11, input));
    Ok(outputs.iter().fold(graph, |graph, output| graph.message(12, output)))
}

/// Adds the inputs of an encoder graph.
fn reading(graph: &Graph, model: &ExportModel<'_>, inputs: &mut Vec<ProtoWriter>) -> Inputs {
    if graph.frames_per_row() > 0 {
        let sizes = [BATCH, Dimension::Known(model.model_config.features), Dimension::Named("frames")];
        inputs.push(proto::value("input_features", Element::Float, &sizes));
        return Inputs { rows: "input_features".to_owned(), ..Inputs::default() };
    }
    let mut ids = |name: &str| {
        inputs.push(proto::value(name, Element::Int64, &[BATCH, ROWS]));
        name.to_owned()
    };
    let rows = ids("input_ids");
    let mask = Some(ids("attention_mask"));
    let segmented = graph.nodes.iter().any(|node| matches!(node.op, siskin_graph::Op::EmbedSegment(_)));
    let token_types = (segmented && model.model_config.token_types > 1).then(|| ids("token_type_ids"));
    let marks = graph.has_global_attention().then(|| ids("global_attention_mask"));
    Inputs { rows, mask, token_types, marks }
}

fn reading_outputs(
    nodes: &mut Nodes,
    graph: &Graph,
    out: &str,
    mut hidden: Option<String>,
    outputs: &mut Vec<ProtoWriter>,
) {
    match graph.head {
        // A norm may follow the row selection.
        OutputHead::Hidden => hidden = Some(out.to_owned()),
        OutputHead::Class => outputs.push(output(nodes, graph, "logits", out, &[BATCH])),
        OutputHead::Next | OutputHead::Token | OutputHead::Label => {
            outputs.push(output(nodes, graph, "logits", out, &[BATCH, ROWS]))
        }
        OutputHead::Span => {
            for (column, name) in ["start_logits", "end_logits"].into_iter().enumerate() {
                let column = nodes.int(column as i64);
                let scores = nodes.gather(out, &column, 2);
                nodes.named("Identity", &[&scores], name, &[]);
                outputs.push(proto::value(name, Element::Float, &[BATCH, ROWS]));
            }
        }
    }
    if let Some(hidden) = hidden {
        nodes.named("Identity", &[&hidden], "last_hidden_state", &[]);
        let sizes = [BATCH, ROWS, Dimension::Known(graph.values[graph.hidden].columns)];
        outputs.push(proto::value("last_hidden_state", Element::Float, &sizes));
    }
}

/// Names an output of the graph.
fn output(nodes: &mut Nodes, graph: &Graph, name: &str, value: &str, rows: &[Dimension]) -> ProtoWriter {
    nodes.named("Identity", &[value], name, &[]);
    let mut sizes = rows.to_vec();
    sizes.push(Dimension::Known(graph.values[graph.output].columns));
    proto::value(name, Element::Float, &sizes)
}
