//! What nodes are called where people read of them.

use siskin::graph::Op;

use super::{Program, recompute};

/// The name of an operation, without what it is done with.
pub fn of_op(op: &Op) -> String {
    let text = format!("{op:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

/// The layer that a tensor belongs to, such as `blk.3`; none where it belongs to the whole model.
pub fn layer_of(tensor: &str) -> Option<&str> {
    let (prefix, rest) = tensor.split_once("blk.")?;
    let digits = rest.find('.')?;
    Some(&tensor[..prefix.len() + "blk.".len() + digits])
}

impl Program {
    /// The names of all nodes, each once: number, operation, and the first tensor or the layer.
    pub fn names(&self) -> Vec<String> {
        let (layers, names) = recompute::layers(self);
        let name = |(number, (node, layer)): (usize, (&super::Node, &Option<usize>))| {
            let op = of_op(&node.op);
            let tensor = node.op.weights().first().map(|&weight| self.weights[weight].name.as_str());
            let beside = tensor.or_else(|| layer.map(|layer| names[layer].as_str()));
            match beside {
                Some(beside) => format!("{number:03}.{op}.{beside}"),
                None => format!("{number:03}.{op}"),
            }
        };
        self.nodes.iter().zip(&layers).enumerate().map(name).collect()
    }

    /// A node in an error: number, operation, and all tensors that it is done with.
    pub fn title(&self, number: usize) -> String {
        let op = &self.nodes[number].op;
        let names: Vec<&str> =
            op.weights().iter().map(|&weight| self.weights[weight].name.as_str()).collect();
        let with = if names.is_empty() { String::new() } else { format!(" with {}", names.join(", ")) };
        format!("operation {number}, {}{with}", of_op(op))
    }

    /// The longest text of which every table of positions has all; none where there is no such table.
    pub fn longest(&self) -> Option<usize> {
        let limit = |node: &super::Node| match node.op {
            Op::EmbedPosition { table, offset } => Some(self.weights[table].rows.saturating_sub(offset)),
            _ => None,
        };
        self.nodes.iter().filter_map(limit).min()
    }
}
