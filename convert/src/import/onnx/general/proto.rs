//! Converts a parsed model to tract's protobuf types: checked, with all data inline, and with f16 and bf16 widened to
//! f32.

use crate::import::onnx::{
    ExternalData, OnnxDimension, OnnxGraph, OnnxModel, OnnxNode, OnnxPort, OnnxTensor, Setting,
};
use siskin_format::{Error, Result};
use siskin_kernels::quant::BlockType;
use tract_onnx::pb;

/// Maximum number of elements that a constant of the file may request.
const MAX_NUMBERS: i64 = 1 << 28;
/// ONNX element type ids.
const FLOAT: u64 = 1;
const HALF: u64 = 10;
const BRAIN: u64 = 16;
/// Operators whose output shape is a constant input, and the index of that input.
const MAKERS: &[(&str, usize)] =
    &[("ConstantOfShape", 0), ("Expand", 1), ("Tile", 1), ("OneHot", 1), ("EyeLike", 0)];

/// Returns the element type used for computing.
fn widened(kind: u64) -> u64 {
    if matches!(kind, HALF | BRAIN) { FLOAT } else { kind }
}

/// Converts the model to tract's form.
pub(super) fn model(model: &OnnxModel<'_>, store: &mut ExternalData) -> Result<pb::ModelProto> {
    if let Some(name) = model.functions.first() {
        let name = crate::import::onnx::model::short(name);
        return Err(Error::unsupported(
            "functions",
            format!("the model-local function `{name}` is not supported"),
        ));
    }
    let version = i64::try_from(model.opset).unwrap_or(0);
    Ok(pb::ModelProto {
        opset_import: vec![pb::OperatorSetIdProto { domain: String::new(), version }],
        graph: Some(graph(&model.graph, store)?),
        ..Default::default()
    })
}

fn graph(graph: &OnnxGraph<'_>, store: &mut ExternalData) -> Result<pb::GraphProto> {
    check_sizes(graph)?;
    let given: Vec<_> = graph.tensors.iter().map(|tensor| tensor.name).collect();
    let given: std::collections::HashSet<_> = given.into_iter().collect();
    let inputs = graph.inputs.iter().filter(|port| !given.contains(port.name));
    let location = |name: &str| crate::import::onnx::model::short(name);
    Ok(pb::GraphProto {
        node: graph
            .nodes
            .iter()
            .map(|each| node(each, store).map_err(|error| error.within(&location(each.name))))
            .collect::<Result<_>>()?,
        initializer: graph
            .tensors
            .iter()
            .map(|each| tensor(each, store).map_err(|error| error.within(&location(each.name))))
            .collect::<Result<_>>()?,
        input: inputs.map(port).collect(),
        output: graph.outputs.iter().map(port).collect(),
        ..Default::default()
    })
}

/// Rejects graphs that request more elements than any machine has.
fn check_sizes(graph: &OnnxGraph<'_>) -> Result<()> {
    let constant = |name: &str| -> Option<Vec<i64>> {
        let given = graph.tensors.iter().find(|tensor| tensor.name == name);
        let made = || {
            let node = graph.nodes.iter().find(|node| node.outputs.contains(&name))?;
            match node.setting("value") {
                Some(Setting::Tensor(tensor)) => Some(tensor),
                _ => None,
            }
        };
        given.or_else(made)?.integers()
    };
    for node in &graph.nodes {
        let Some((_, input)) = MAKERS.iter().find(|(name, _)| *name == node.operator) else { continue };
        let Some(sizes) = node.inputs.get(*input).and_then(|name| constant(name)) else { continue };
        let count = sizes.iter().try_fold(1_i64, |product, &size| product.checked_mul(size.max(1)));
        if count.is_none_or(|count| count > MAX_NUMBERS) {
            let message = format!("requests {sizes:?} values");
            return Err(Error::corrupt(node.operator, message));
        }
    }
    Ok(())
}

fn node(node: &OnnxNode<'_>, store: &mut ExternalData) -> Result<pb::NodeProto> {
    let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let mut attributes = Vec::with_capacity(node.attributes.len());
    for attribute in &node.attributes {
        use pb::attribute_proto::AttributeType as Kind;
        let mut made = pb::AttributeProto { name: attribute.name.to_owned(), ..Default::default() };
        let kind = match &attribute.value {
            Setting::Float(number) => {
                made.f = *number;
                Kind::Float
            }
            Setting::Integer(number) => {
                let is_type = matches!(attribute.name, "to" | "dtype" | "output_dtype");
                made.i = if is_type { widened(*number as u64) as i64 } else { *number };
                Kind::Int
            }
            Setting::Text(text) => {
                made.s = text.to_vec();
                Kind::String
            }
            Setting::Tensor(each) => {
                made.t = Some(tensor(each, store)?);
                Kind::Tensor
            }
            Setting::Graph(each) => {
                made.g = Some(graph(each, store)?);
                Kind::Graph
            }
            Setting::Floats(numbers) => {
                made.floats = numbers.clone();
                Kind::Floats
            }
            Setting::Integers(numbers) => {
                made.ints = numbers.clone();
                Kind::Ints
            }
            Setting::Texts(list) => {
                made.strings = list.iter().map(|text| text.to_vec()).collect();
                Kind::Strings
            }
            Setting::Other => Kind::Undefined,
        };
        made.r#type = kind as i32;
        attributes.push(made);
    }
    Ok(pb::NodeProto {
        input: texts(&node.inputs),
        output: texts(&node.outputs),
        name: node.name.to_owned(),
        op_type: node.operator.to_owned(),
        domain: node.domain.to_owned(),
        attribute: attributes,
        ..Default::default()
    })
}

fn tensor(tensor: &OnnxTensor<'_>, store: &mut ExternalData) -> Result<pb::TensorProto> {
    let data = store.data(tensor)?;
    let block = match tensor.kind {
        HALF => Some(BlockType::F16),
        BRAIN => Some(BlockType::BF16),
        _ => None,
    };
    let raw_data = match block {
        None => data.to_vec(),
        Some(block) => {
            let mut floats = vec![0.0; data.len() / 2];
            if !block.dequantize_row(&data, &mut floats) {
                return Err(Error::corrupt("numbers", "wrong number of values"));
            }
            floats.into_iter().flat_map(f32::to_le_bytes).collect()
        }
    };
    Ok(pb::TensorProto {
        dims: tensor.shape.iter().map(|&size| i64::try_from(size).unwrap_or(i64::MAX)).collect(),
        data_type: i32::try_from(widened(tensor.kind)).unwrap_or(0),
        name: tensor.name.to_owned(),
        raw_data,
        ..Default::default()
    })
}

fn port(port: &OnnxPort<'_>) -> pb::ValueInfoProto {
    use pb::tensor_shape_proto::{Dimension, dimension::Value};
    let dimension = |size: &OnnxDimension<'_>| {
        let value = match size {
            OnnxDimension::Fixed(size) => Some(Value::DimValue(i64::try_from(*size).unwrap_or(-1))),
            // Dynamic dimensions are given with each call.
            OnnxDimension::Named(_) | OnnxDimension::Unknown => None,
        };
        Dimension { value, ..Default::default() }
    };
    let shape =
        port.shape.as_ref().map(|sizes| pb::TensorShapeProto { dim: sizes.iter().map(dimension).collect() });
    let tensor = pb::type_proto::Tensor { elem_type: i32::try_from(widened(port.kind)).unwrap_or(0), shape };
    let value = (port.kind != 0).then_some(pb::type_proto::Value::TensorType(tensor));
    let r#type = value.map(|value| pb::TypeProto { value: Some(value), ..Default::default() });
    pb::ValueInfoProto { name: port.name.to_owned(), r#type, ..Default::default() }
}
