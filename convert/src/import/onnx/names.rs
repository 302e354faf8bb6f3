//! Restores the names that a graph's tensors have in the model that it was exported from.
//!
//! Exporters keep the names of biases, norms and embedding tables, and drop those of matrices that they transpose or
//! fold. Such a matrix is identified by its use: the module scopes that newer exporters record for each node, the
//! node's name, which is a module path with other exporters, or the bias that is added to the product.

use super::model::{OnnxGraph, OnnxNode, Setting};
use super::tensor::OnnxTensor;
use std::collections::HashMap;

/// Maximum number of nodes between a value and the tensor that it is derived from.
const MAX_STEPS: usize = 8;

/// The layout of a tensor relative to the original model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorOrder {
    /// As in the model, or transposed.
    AsNamed {
        /// Whether rows and columns are swapped.
        transposed: bool,
    },
    /// Inputs are rows, outputs are columns.
    InputsFirst,
    /// Outputs are rows, inputs are columns.
    OutputsFirst,
}

/// A tensor with a restored name.
#[derive(Clone, Copy, Debug)]
pub struct NamedTensorView<'g, 'a> {
    /// The tensor.
    pub tensor: &'g OnnxTensor<'a>,
    /// Its layout.
    pub order: TensorOrder,
}

/// Returns the tensors of a graph by the names that they may have in the model. A tensor can occur more than once.
pub fn recover<'g, 'a>(graph: &'g OnnxGraph<'a>) -> HashMap<String, NamedTensorView<'g, 'a>> {
    let links = Links::new(graph);
    let mut names = HashMap::new();
    for tensor in &links.tensors {
        let named = NamedTensorView { tensor, order: TensorOrder::AsNamed { transposed: false } };
        names.entry(tensor.name.to_owned()).or_insert(named);
    }
    for node in &links.nodes {
        for output in &node.outputs {
            if let Some((tensor, transposed)) = links.tensor(output) {
                let named = NamedTensorView { tensor, order: TensorOrder::AsNamed { transposed } };
                names.entry((*output).to_owned()).or_insert(named);
            }
        }
    }
    for node in &links.nodes {
        let Some(named) = links.operand(node) else { continue };
        for name in links.names_by_use(node) {
            names.entry(name).or_insert(named);
        }
    }
    names
}

/// Returns the weights of matrix products, and embedding tables.
pub fn weights<'g, 'a>(graph: &'g OnnxGraph<'a>) -> Vec<&'g OnnxTensor<'a>> {
    let links = Links::new(graph);
    let mut weights: Vec<&OnnxTensor<'_>> =
        links.nodes.iter().filter_map(|node| Some(links.operand(node)?.tensor)).collect();
    weights.sort_unstable_by_key(|tensor| std::ptr::from_ref(*tensor));
    weights.dedup_by_key(|tensor| std::ptr::from_ref(*tensor));
    weights
}

/// Producers and consumers of values.
struct Links<'g, 'a> {
    nodes: Vec<&'g OnnxNode<'a>>,
    tensors: Vec<&'g OnnxTensor<'a>>,
    given: HashMap<&'a str, &'g OnnxTensor<'a>>,
    makers: HashMap<&'a str, &'g OnnxNode<'a>>,
    /// The additions that consume a value.
    sums: HashMap<&'a str, &'g OnnxNode<'a>>,
}

impl<'g, 'a> Links<'g, 'a> {
    fn new(graph: &'g OnnxGraph<'a>) -> Self {
        let (nodes, tensors) = (graph.all_nodes(), graph.all_tensors());
        let given = tensors.iter().map(|tensor| (tensor.name, *tensor)).collect();
        let (mut makers, mut sums) = (HashMap::new(), HashMap::new());
        for &node in &nodes {
            makers.extend(node.outputs.iter().map(|output| (*output, node)));
            if node.operator == "Add" {
                sums.extend(node.inputs.iter().map(|input| (*input, node)));
            }
        }
        Self { nodes, tensors, given, makers, sums }
    }

    /// Returns the tensor that a value is derived from, and whether it is transposed.
    fn tensor(&self, value: &str) -> Option<(&'g OnnxTensor<'a>, bool)> {
        let (mut value, mut transposed) = (value, false);
        for _ in 0..MAX_STEPS {
            if let Some(tensor) = self.given.get(value).copied() {
                return Some((tensor, transposed));
            }
            let node = self.makers.get(value).copied()?;
            match (node.operator, node.setting("value")) {
                ("Constant", Some(Setting::Tensor(tensor))) => return Some((tensor, transposed)),
                ("Identity" | "Cast", _) => {}
                ("Transpose", _) => match node.setting("perm") {
                    Some(Setting::Integers(order)) if order == &[1, 0] => transposed = !transposed,
                    _ => return None,
                },
                _ => return None,
            }
            value = node.inputs.first().copied()?;
        }
        None
    }

    /// Returns the matrix or table that a node uses.
    fn operand(&self, node: &OnnxNode<'a>) -> Option<NamedTensorView<'g, 'a>> {
        let (value, outputs_first) = match node.operator {
            "MatMul" => (node.inputs.get(1)?, false),
            "Gemm" => (node.inputs.get(1)?, node.integer("transB").unwrap_or(0) != 0),
            "Gather" => (node.inputs.first()?, true),
            _ => return None,
        };
        let (tensor, transposed) = self.tensor(value)?;
        let floats = matches!(tensor.type_name(), "F32" | "F16" | "BF16");
        if tensor.shape.len() != 2 || !floats {
            return None;
        }
        let order = match node.operator {
            "Gather" => TensorOrder::AsNamed { transposed },
            _ if outputs_first != transposed => TensorOrder::OutputsFirst,
            _ => TensorOrder::InputsFirst,
        };
        Some(NamedTensorView { tensor, order })
    }

    /// Returns the possible names of a node's weight, the most reliable first.
    fn names_by_use(&self, node: &OnnxNode<'a>) -> Vec<String> {
        let mut names = Vec::new();
        // A list in Python syntax: every string is a module, the last is the operation.
        let scopes: Vec<&str> = node.scopes.split('\'').skip(1).step_by(2).collect();
        names.extend(scopes.iter().rev().filter(|scope| !scope.is_empty()).map(|scope| (*scope).to_owned()));
        if let Some((modules, _)) = node.name.strip_prefix('/').and_then(|path| path.rsplit_once('/')) {
            names.push(modules.replace('/', "."));
        }
        let sum = node.outputs.first().and_then(|output| self.sums.get(output));
        let bias = sum.into_iter().flat_map(|sum| &sum.inputs).find_map(|input| {
            let (tensor, _) = self.tensor(input)?;
            input.strip_suffix(".bias").or_else(|| tensor.name.strip_suffix(".bias"))
        });
        names.extend(bias.map(str::to_owned));
        names.iter_mut().for_each(|name| name.push_str(".weight"));
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    fn tensor(name: &str) -> OnnxTensor<'_> {
        let data = crate::import::onnx::TensorData::Here(Cow::Owned(vec![0; 24]));
        OnnxTensor { name, kind: 1, shape: vec![2, 3], data }
    }

    fn node<'a>(operator: &'a str, name: &'a str, inputs: &[&'a str], output: &'a str) -> OnnxNode<'a> {
        OnnxNode { operator, name, inputs: inputs.to_vec(), outputs: vec![output], ..OnnxNode::default() }
    }

    #[test]
    fn matrices_are_found_by_module_path_and_bias() {
        let mut noted = node("MatMul", "node_MatMul_86", &["x", "val_87"], "n");
        noted.scopes = "['', 'encoder.layer.0', 'encoder.layer.0.query', 'linear']";
        let graph = OnnxGraph {
            nodes: vec![
                node("MatMul", "/encoder/layer.1/dense/MatMul", &["x", "onnx::MatMul_1"], "a"),
                node("MatMul", "MatMul_7", &["x", "9"], "b"),
                node("Add", "Add_8", &["layer.2.dense.bias", "b"], "c"),
                noted,
                node("Identity", "", &["layer.2.dense.bias"], "layer.3.dense.bias"),
            ],
            tensors: ["onnx::MatMul_1", "9", "val_87", "layer.2.dense.bias"].map(tensor).to_vec(),
            ..OnnxGraph::default()
        };
        let names = recover(&graph);
        for (name, tensor, order) in [
            ("encoder.layer.1.dense.weight", "onnx::MatMul_1", TensorOrder::InputsFirst),
            ("layer.2.dense.weight", "9", TensorOrder::InputsFirst),
            ("encoder.layer.0.query.weight", "val_87", TensorOrder::InputsFirst),
            ("layer.3.dense.bias", "layer.2.dense.bias", TensorOrder::AsNamed { transposed: false }),
        ] {
            assert_eq!((names[name].tensor.name, names[name].order), (tensor, order), "{name}");
        }
        assert_eq!(weights(&graph).len(), 3);
    }
}
