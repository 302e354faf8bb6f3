//! Extracts a part of a graph, to resume a computation at an intermediate value.

use crate::op::{ExternalInput, SelectOutputs};
use crate::{Graph, Node, RowKind, ValueId};

/// Returns the part that computes value `to` from value `from`, which the caller passes in. If `to` has batch rows, all
/// of them are outputs; if it has output rows, they stay as they are. Without `from` the part starts at the inputs of
/// the graph.
pub fn part(graph: &Graph, from: Option<ValueId>, to: ValueId) -> Graph {
    let mut part = Graph { exits: Vec::new(), hidden: to, output: to, nodes: Vec::new(), ..graph.clone() };
    let mut needed = vec![false; graph.values.len()];
    needed[to] = true;
    for node in graph.nodes.iter().rev().filter(|node| Some(node.output) != from) {
        if needed[node.output] {
            node.inputs.iter().for_each(|&input| needed[input] = true);
            part.nodes.push(node.clone());
        }
    }
    if let Some(from) = from {
        let op = ExternalInput { columns: graph.values[from].columns }.into();
        part.nodes.push(Node { op, inputs: Vec::new(), output: from });
    }
    part.nodes.reverse();
    if part.values[to].rows == RowKind::Tokens {
        part.output = part.push(SelectOutputs, &[to]);
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, Op, ValueShape};

    #[test]
    fn parts_stop_where_the_next_begins() {
        let mut b = Builder::new(&|_| false);
        let first = b.embed("t", 10, 8);
        let second = b.linear(first, "a", 8);
        let third = b.linear(second, "b", 8);
        let last = b.select_outputs(third);
        let graph = b.finish(last);
        let begin = part(&graph, None, second);
        assert_eq!(begin.nodes[..2], graph.nodes[..2]);
        assert_eq!((begin.nodes.len(), matches!(begin.nodes[2].op, Op::SelectOutputs(_))), (3, true));
        assert_eq!(begin.values[begin.output], ValueShape { rows: RowKind::Outputs, columns: 8 });
        let rest = part(&graph, Some(second), last);
        assert_eq!(
            rest.nodes[0],
            Node { op: ExternalInput { columns: 8 }.into(), inputs: vec![], output: second }
        );
        assert_eq!(rest.nodes[1..], graph.nodes[2..]);
        assert_eq!(rest.output, last);
    }
}
