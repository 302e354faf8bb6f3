//! Auxiliary losses of MoE routers: load balancing, and the z-loss.

use serde::{Deserialize, Serialize};
use siskin::graph::{Op, Routing};

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
    pub balance: f64,
    /// The router z-loss of ST-MoE (arXiv:2202.08906): the mean of the squared log-sum-exp of the scores.
    pub z: f64,
}

/// Router statistics of one side over a batch.
#[derive(Clone, Debug)]
struct Seen {
    side: Side,
    rows: f64,
    chosen: Vec<f64>,
    shares: Vec<f64>,
    squares: f64,
}

/// The statistics of all routers over a batch.
#[derive(Clone, Debug)]
pub(super) struct RouterStatistics {
    options: RouterOptions,
    sides: Vec<Seen>,
}

/// Returns the softmax of a row's scores, and their log-sum-exp.
fn softmax<T: Real>(scores: &[T]) -> (Vec<f64>, f64) {
    let most = scores.iter().map(|x| x.f64()).fold(f64::NEG_INFINITY, f64::max);
    let mut shares: Vec<f64> = scores.iter().map(|x| (x.f64() - most).exp()).collect();
    let sum: f64 = shares.iter().sum();
    shares.iter_mut().for_each(|share| *share /= sum);
    (shares, most + sum.ln())
}

impl RouterStatistics {
    /// Starts a batch; `None` without auxiliary losses.
    pub(super) fn new(options: RouterOptions) -> Option<Self> {
        (options != RouterOptions::default()).then_some(Self { options, sides: Vec::new() })
    }

    /// Returns the routing of a node, and its side.
    pub(super) fn of(program: &Program, node: usize) -> Option<(Routing, Side)> {
        match program.nodes[node].op {
            Op::Route(routing) => Some((routing, program.values[program.nodes[node].output].side)),
            _ => None,
        }
    }

    /// Adds the scores of a layer and the chosen experts.
    pub(super) fn see<T: Real>(&mut self, (routing, side): (Routing, Side), scores: &[T], routed: &[T]) {
        let place = self.sides.iter().position(|seen| seen.side == side).unwrap_or_else(|| {
            let zeros = vec![0.0; routing.experts];
            self.sides.push(Seen { side, rows: 0.0, chosen: zeros.clone(), shares: zeros, squares: 0.0 });
            self.sides.len() - 1
        });
        let seen = &mut self.sides[place];
        let rows = scores.chunks_exact(routing.experts).zip(routed.chunks_exact(2 * routing.chosen));
        for (scores, routed) in rows {
            let (shares, logarithm) = softmax(scores);
            seen.rows += 1.0;
            seen.shares.iter_mut().zip(shares).for_each(|(sum, share)| *sum += share);
            seen.squares += logarithm * logarithm;
            for number in &routed[routing.chosen..] {
                if let Some(count) = seen.chosen.get_mut(number.f64() as usize) {
                    *count += 1.0;
                }
            }
        }
    }

    /// Returns the auxiliary loss of all routers.
    pub(super) fn loss(&self) -> f64 {
        let of = |seen: &Seen| {
            let rows = seen.rows.max(1.0);
            let along: f64 = seen.chosen.iter().zip(&seen.shares).map(|(count, share)| count * share).sum();
            let balance = seen.chosen.len() as f64 * along / (rows * rows);
            self.options.balance * balance + self.options.z * seen.squares / rows
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
        let Some(seen) = self.sides.iter().find(|seen| seen.side == side) else { return };
        let rows = seen.rows.max(1.0);
        let balance = factor * self.options.balance * routing.experts as f64 / (rows * rows);
        let steep: Vec<f64> = seen.chosen.iter().map(|count| balance * count).collect();
        let z = 2.0 * factor * self.options.z / rows;
        for (scores, to) in scores.chunks_exact(routing.experts).zip(to.chunks_exact_mut(routing.experts)) {
            let (shares, logarithm) = softmax(scores);
            let along: f64 = shares.iter().zip(&steep).map(|(share, steep)| share * steep).sum();
            for ((to, share), steep) in to.iter_mut().zip(&shares).zip(&steep) {
                *to += T::of(share * (steep - along + z * logarithm));
            }
        }
    }
}
