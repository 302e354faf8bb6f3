//! The ONNX form of a mixture of experts: all experts compute all rows.

use super::lower::{GraphLowering, OnnxLowering, OnnxValue};
use siskin_format::{Error, Result};
use siskin_graph::Node;
use siskin_graph::op::{Combine, Dispatch, ExpertLinear, Route};

impl OnnxLowering for Route {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, node: &Node) -> Result<OnnxValue> {
        let scores = lowering.input(node, 0)?;
        Ok(OnnxValue::Routed(lowering.route(&scores, &self.routing)))
    }
}

impl OnnxLowering for Dispatch {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, node: &Node) -> Result<OnnxValue> {
        let x = lowering.input(node, 0)?;
        Ok(OnnxValue::Experts(vec![x; self.routing.experts]))
    }
}

impl OnnxLowering for ExpertLinear {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, node: &Node) -> Result<OnnxValue> {
        let Some(OnnxValue::Experts(inputs)) = lowering.values.get(&node.inputs[0]).cloned() else {
            return Err(Error::unsupported("graph", "the input of experts must be dispatched rows"));
        };
        let products = inputs.iter().zip(&self.weights).enumerate();
        let products = products
            .map(|(expert, (x, &weight))| lowering.product(x, weight, self.biases.get(expert).copied()));
        products.collect::<Result<_>>().map(OnnxValue::Experts)
    }
}

impl OnnxLowering for Combine {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, node: &Node) -> Result<OnnxValue> {
        let (Some(OnnxValue::Experts(parts)), Some(OnnxValue::Routed(shares))) =
            (lowering.values.get(&node.inputs[0]).cloned(), lowering.values.get(&node.inputs[1]).cloned())
        else {
            return Err(Error::unsupported("graph", "the input of the combination must be expert outputs"));
        };
        let mut sum: Option<String> = None;
        for (expert, part) in parts.iter().enumerate() {
            let share = lowering.nodes.slice(&shares, -1, expert as i64, expert as i64 + 1, 1);
            let part = lowering.nodes.add("Mul", &[part, &share]);
            sum = Some(match sum {
                Some(sum) => lowering.nodes.add("Add", &[&sum, &part]),
                None => part,
            });
        }
        sum.map(OnnxValue::Plain).ok_or_else(|| Error::unsupported("graph", "there are no experts"))
    }
}
