//! ONNX models: their graphs, the external data of those, and what describes the model.

use super::transformers::describes;

/// The graphs that are taken if none is asked for, the most preferred first.
const PREFERRED: [&str; 4] =
    ["onnx/model.onnx", "model.onnx", "onnx/encoder_model.onnx", "encoder_model.onnx"];
const ENCODER: &str = "encoder_model.onnx";
/// The decoders of an encoder–decoder model, in the order of preference of the importer.
const DECODERS: [&str; 2] = ["decoder_model.onnx", "decoder_model_merged.onnx"];
/// How the name of a file with external data continues that of its graph.
const EXTERNAL_DATA: [&str; 2] = ["_data", ".data"];
/// The folder of graphs within the folder that describes the model.
const WITHIN: &str = "onnx/";

/// Returns the preferred graph, if it is there.
pub(super) fn preferred(paths: &[String]) -> Option<&String> {
    PREFERRED.iter().find_map(|name| paths.iter().find(|path| path == name))
}

/// Returns a graph, followed by what the importer reads with it.
pub(super) fn with_companions(paths: &[String], graph: &str) -> Vec<String> {
    let (folder, name) = graph.split_at(graph.rfind('/').map_or(0, |at| at + 1));
    let there = |name: &str| paths.iter().any(|path| path.strip_prefix(folder) == Some(name));
    let decoder = DECODERS.into_iter().find(|name| there(name)).filter(|_| there(ENCODER));
    let mut graphs = vec![name];
    if let Some(decoder) = decoder.filter(|_| name == ENCODER || DECODERS.contains(&name)) {
        graphs.extend([ENCODER, decoder].into_iter().filter(|other| *other != name));
    }
    let home = match folder.strip_suffix(WITHIN).filter(|above| above.is_empty() || above.ends_with('/')) {
        Some(above) if !there("config.json") && paths.contains(&format!("{above}config.json")) => above,
        _ => folder,
    };
    let is_companion = |path: &&String| {
        let is_read = path.strip_prefix(folder).is_some_and(|file| {
            graphs[1..].contains(&file) || graphs.iter().any(|graph| is_external_data(file, graph))
        });
        is_read || path.strip_prefix(home).is_some_and(describes)
    };
    std::iter::once(graph.to_owned()).chain(paths.iter().filter(is_companion).cloned()).collect()
}

/// Returns true for files such as `model.onnx_data`, `model.onnx.data` and `model.onnx_data_1`.
fn is_external_data(file: &str, graph: &str) -> bool {
    let rest = file.strip_prefix(graph).filter(|rest| !rest.contains('/'));
    rest.is_some_and(|rest| EXTERNAL_DATA.iter().any(|start| rest.starts_with(start)))
}
