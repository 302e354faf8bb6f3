//! Lowers what reads and writes the cache of a sequence: attention and recurrent states.

use super::PlanStep;
use super::build::{PlanLowering, Planner};
use siskin_format::Result;
use siskin_graph::op::{Attention, CausalConv1d, LinearAttention, StoreCrossKv};
use siskin_graph::{Node, ValueId};

impl PlanLowering for Attention {
    fn aliases(&self, node: &Node) -> Option<ValueId> {
        // Written in place: rows without global attention keep their value.
        node.inputs.get(3).copied()
    }

    fn plan(&self, planner: &mut Planner<'_>, node: &Node) -> Result<()> {
        let to = match self.aliases(node) {
            Some(base) => planner.view(base)?,
            None => planner.allocate(node.output, planner.steps.len()),
        };
        planner.views[node.output] = Some(to);
        if let [_, keys, values, ..] = node.inputs[..] {
            planner.store(self, keys, values)?;
        }
        let queries = planner.view(node.inputs[0])?;
        planner.steps.push(PlanStep::Attention { attention: self.clone(), queries, to });
        Ok(())
    }
}

impl PlanLowering for StoreCrossKv {
    fn plan(&self, planner: &mut Planner<'_>, node: &Node) -> Result<()> {
        planner.store(&self.attention, node.inputs[0], node.inputs[1])
    }
}

impl PlanLowering for CausalConv1d {
    fn plan(&self, planner: &mut Planner<'_>, node: &Node) -> Result<()> {
        let &Self { state, taps, weight } = self;
        let (from, to) = (planner.view(node.inputs[0])?, planner.allocate(node.output, planner.steps.len()));
        planner.steps.push(PlanStep::CausalConv1d { state, taps, weight, from, to });
        Ok(())
    }
}

impl PlanLowering for LinearAttention {
    fn plan(&self, planner: &mut Planner<'_>, node: &Node) -> Result<()> {
        let inputs = node.inputs.iter().map(|&input| planner.view(input)).collect::<Result<_>>()?;
        let to = planner.allocate(node.output, planner.steps.len());
        planner.steps.push(PlanStep::LinearAttention { attention: self.clone(), inputs, to });
        Ok(())
    }
}

impl Planner<'_> {
    fn store(&mut self, attention: &Attention, keys: ValueId, values: ValueId) -> Result<()> {
        let (keys, values) = (self.view(keys)?, self.view(values)?);
        self.steps.push(PlanStep::StoreKv { attention: attention.clone(), keys, values });
        Ok(())
    }
}
