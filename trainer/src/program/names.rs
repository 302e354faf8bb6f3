//! The names of nodes in errors, profiles and reports.

use siskin_graph::Node;
use siskin_graph::op::EmbedPosition;

use super::{Program, Side, recompute};

impl Program {
    /// Returns unique names of all nodes: number, operation, and the first tensor or the layer.
    pub fn names(&self) -> Vec<String> {
        let (layers, names) = recompute::layers(self);
        let name = |(number, (node, layer)): (usize, (&Node, &Option<usize>))| {
            let op = node.op.name();
            let tensor = node.op.weights().first().map(|&weight| self.graph.weights[weight].name.as_str());
            let subject = tensor.or_else(|| layer.map(|layer| names[layer].as_str()));
            match subject {
                Some(subject) => format!("{number:03}.{op}.{subject}"),
                None => format!("{number:03}.{op}"),
            }
        };
        self.graph.nodes.iter().zip(&layers).enumerate().map(name).collect()
    }

    /// Returns the name of a node in errors: number, operation, and all its tensors.
    pub fn title(&self, number: usize) -> String {
        let op = &self.graph.nodes[number].op;
        let names: Vec<&str> =
            op.weights().iter().map(|&weight| self.graph.weights[weight].name.as_str()).collect();
        let with = if names.is_empty() { String::new() } else { format!(" with {}", names.join(", ")) };
        format!("operation {number}, {}{with}", op.name())
    }

    /// Returns the longest sequence that the position tables of a side cover; `None` without position tables.
    pub fn max_positions(&self, side: Side) -> Option<usize> {
        let limit = |node: &Node| {
            let embed =
                node.op.downcast_ref::<EmbedPosition>().filter(|_| self.sides[node.output] == side)?;
            Some(self.graph.weights[embed.table].rows.saturating_sub(embed.offset))
        };
        self.graph.nodes.iter().filter_map(limit).min()
    }
}
