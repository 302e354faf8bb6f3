//! Auxiliary losses of MoE routers: load balancing, and the z-loss.

use serde::{Deserialize, Serialize};
use siskin_graph::Routing;
use siskin_graph::op::Route;

use crate::program::{Program, Side};
use crate::real::Real;

/// The weights of the auxiliary losses of routers.
///
/// Each is computed over the tokens of all layers of a side together, as in Transformers, and is weighted like the
/// main loss of its batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RouterOptions {
    /// The load-balancing loss of Switch Transformers (arXiv:2101.03961): experts · Σ over experts of the fraction of
    /// choices that it gets · its mean probability.
    pub aux_loss_coef: f64,
    /// The router z-loss of ST-MoE (arXiv:2202.08906): the mean of the squared log-sum-exp of the scores.
    pub z_loss_coef: f64,
}

/// Router statistics of one side over a batch.
#[derive(Clone, Debug)]
struct SideStatistics {
    side: Side,
    rows: f64,
    chosen: Vec<f64>,
    probabilities: Vec<f64>,
    squared_log_sums: f64,
}

/// The statistics of all routers over a batch.
#[derive(Clone, Debug)]
pub(super) struct RouterStatistics {
    options: RouterOptions,
    sides: Vec<SideStatistics>,
}

/// Returns the softmax of a row's scores, and their log-sum-exp.
fn softmax<T: Real>(scores: &[T]) -> (Vec<f64>, f64) {
    let max = scores.iter().map(|x| x.f64()).fold(f64::NEG_INFINITY, f64::max);
    let mut probabilities: Vec<f64> = scores.iter().map(|x| (x.f64() - max).exp()).collect();
    let sum: f64 = probabilities.iter().sum();
    probabilities.iter_mut().for_each(|probability| *probability /= sum);
    (probabilities, max + sum.ln())
}

impl RouterStatistics {
    /// Starts a batch; `None` without auxiliary losses.
    pub(super) fn new(options: RouterOptions) -> Option<Self> {
        (options != RouterOptions::default()).then_some(Self { options, sides: Vec::new() })
    }

    /// Returns the routing of a node, and its side.
    pub(super) fn of(program: &Program, node: usize) -> Option<(Routing, Side)> {
        let node = &program.graph.nodes[node];
        Some((node.op.downcast_ref::<Route>()?.routing, program.sides[node.output]))
    }

    /// Adds the scores of a layer and the chosen experts.
    pub(super) fn record<T: Real>(&mut self, (routing, side): (Routing, Side), scores: &[T], routed: &[T]) {
        let place = self.sides.iter().position(|statistics| statistics.side == side).unwrap_or_else(|| {
            let zeros = vec![0.0; routing.experts];
            self.sides.push(SideStatistics {
                side,
                rows: 0.0,
                chosen: zeros.clone(),
                probabilities: zeros,
                squared_log_sums: 0.0,
            });
            self.sides.len() - 1
        });
        let statistics = &mut self.sides[place];
        let rows = scores.chunks_exact(routing.experts).zip(routed.chunks_exact(2 * routing.top_k));
        for (scores, routed) in rows {
            let (probabilities, logarithm) = softmax(scores);
            statistics.rows += 1.0;
            statistics
                .probabilities
                .iter_mut()
                .zip(probabilities)
                .for_each(|(sum, probability)| *sum += probability);
            statistics.squared_log_sums += logarithm * logarithm;
            for number in &routed[routing.top_k..] {
                if let Some(count) = statistics.chosen.get_mut(number.f64() as usize) {
                    *count += 1.0;
                }
            }
        }
    }

    /// Returns the auxiliary loss of all routers.
    pub(super) fn loss(&self) -> f64 {
        let of = |statistics: &SideStatistics| {
            let rows = statistics.rows.max(1.0);
            let inner: f64 = statistics
                .chosen
                .iter()
                .zip(&statistics.probabilities)
                .map(|(count, probability)| count * probability)
                .sum();
            let balance = statistics.chosen.len() as f64 * inner / (rows * rows);
            self.options.aux_loss_coef * balance
                + self.options.z_loss_coef * statistics.squared_log_sums / rows
        };
        self.sides.iter().map(of).sum()
    }

    /// Adds the gradient of that loss, times `factor`, to the gradient of a layer's scores.
    pub(super) fn add<T: Real>(
        &self,
        (routing, side): (Routing, Side),
        scores: &[T],
        factor: f64,
        to: &mut [T],
    ) {
        let Some(statistics) = self.sides.iter().find(|statistics| statistics.side == side) else { return };
        let rows = statistics.rows.max(1.0);
        let balance = factor * self.options.aux_loss_coef * routing.experts as f64 / (rows * rows);
        let probability_gradient: Vec<f64> = statistics.chosen.iter().map(|count| balance * count).collect();
        let z = 2.0 * factor * self.options.z_loss_coef / rows;
        for (scores, to) in scores.chunks_exact(routing.experts).zip(to.chunks_exact_mut(routing.experts)) {
            let (probabilities, logarithm) = softmax(scores);
            let inner: f64 = probabilities
                .iter()
                .zip(&probability_gradient)
                .map(|(probability, probability_gradient)| probability * probability_gradient)
                .sum();
            for ((to, probability), probability_gradient) in
                to.iter_mut().zip(&probabilities).zip(&probability_gradient)
            {
                *to += T::of(probability * (probability_gradient - inner + z * logarithm));
            }
        }
    }
}
