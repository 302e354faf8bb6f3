//! What routers are told beside the main loss: to use all experts alike, and to keep their scores small.

use serde::{Deserialize, Serialize};
use siskin::graph::{Op, Routing};

use crate::program::{Program, Side};
use crate::real::Real;

/// How much the losses of routers count beside the main loss.
///
/// Each is computed over the tokens of all layers of a side together, as Transformers does it, and counts as often as
/// the main loss of its batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RouterOptions {
    /// Experts · Σ over experts of the share of choices that it gets · its mean probability (Fedus et al., 2021).
    pub balance: f64,
    /// The mean of the squared logarithm of the sum of the exponentials of scores (Zoph et al., 2022).
    pub z: f64,
}

/// What the routers of one side did with a batch.
#[derive(Clone, Debug)]
struct Seen {
    side: Side,
    rows: f64,
    chosen: Vec<f64>,
    shares: Vec<f64>,
    squares: f64,
}

/// What all routers did with a batch.
#[derive(Clone, Debug)]
pub(super) struct Routers {
    options: RouterOptions,
    sides: Vec<Seen>,
}

/// The softmax of a row's scores, and the logarithm of the sum of their exponentials.
fn softmax<T: Real>(scores: &[T]) -> (Vec<f64>, f64) {
    let most = scores.iter().map(|x| x.f64()).fold(f64::NEG_INFINITY, f64::max);
    let mut shares: Vec<f64> = scores.iter().map(|x| (x.f64() - most).exp()).collect();
    let sum: f64 = shares.iter().sum();
    shares.iter_mut().for_each(|share| *share /= sum);
    (shares, most + sum.ln())
}

impl Routers {
    /// For a batch that begins; `None` where nothing is asked of routers.
    pub(super) fn new(options: RouterOptions) -> Option<Self> {
        (options != RouterOptions::default()).then_some(Self { options, sides: Vec::new() })
    }

    /// The routing of a node, and its side.
    pub(super) fn of(program: &Program, node: usize) -> Option<(Routing, Side)> {
        match program.nodes[node].op {
            Op::Route(routing) => Some((routing, program.values[program.nodes[node].output].side)),
            _ => None,
        }
    }

    /// Takes the scores of a layer in, and what was chosen by them.
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

    /// The loss of all routers.
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
