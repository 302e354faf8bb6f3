//! Scores of a model on a text, and its agreement with another one.

use siskin::{Result, Session};

/// Number of tokens scored at a time; bounds the memory for the other model's logits.
const PIECE: usize = 64;

/// Running sums of the negative log-likelihood.
#[derive(Default)]
pub(crate) struct Sum {
    nats: f64,
    squares: f64,
    pub(crate) tokens: usize,
}

impl Sum {
    pub(crate) fn add(&mut self, nats: f64) {
        self.nats += nats;
        self.squares += nats * nats;
        self.tokens += 1;
    }

    pub(crate) fn perplexity(&self) -> f64 {
        (self.nats / self.tokens as f64).exp()
    }

    /// Returns the standard error of the perplexity.
    pub(crate) fn deviation(&self) -> f64 {
        let count = self.tokens as f64;
        let mean = self.nats / count;
        let variance = (self.squares / count - mean * mean).max(0.0);
        (variance / (count - 1.0).max(1.0)).sqrt() * self.perplexity()
    }
}

/// Running sums of the agreement between two models.
#[derive(Default)]
pub(crate) struct Agreement {
    agreed: usize,
    /// The KL divergence of each token, in nats.
    divergences: Vec<f32>,
}

impl Agreement {
    /// Adds one token: compares its logits with those of the other model.
    fn add(&mut self, logits: &[f32], other: &[f32]) {
        self.agreed += usize::from(likeliest(logits) == likeliest(other));
        self.divergences.push(divergence(other, logits) as f32);
    }

    /// Returns the fraction of tokens where both models have the same top token.
    pub(crate) fn agreement(&self) -> f64 {
        self.agreed as f64 / self.divergences.len() as f64
    }

    /// Returns the mean KL divergence of the model from the other one, in nats.
    pub(crate) fn divergence(&self) -> f64 {
        self.divergences.iter().map(|nats| f64::from(*nats)).sum::<f64>() / self.divergences.len() as f64
    }

    /// Returns the KL divergence that 99% of the tokens do not exceed.
    pub(crate) fn divergence_p99(&self) -> f64 {
        let mut sorted = self.divergences.clone();
        sorted.sort_by(f32::total_cmp);
        let last = sorted.len().saturating_sub(1);
        sorted.get(last * 99 / 100).map_or(0.0, |nats| f64::from(*nats))
    }
}

/// The sessions of both models, and the results so far.
pub(crate) struct Scores {
    session: Session,
    other: Option<Session>,
    pub(crate) sum: Sum,
    /// Of the other model.
    pub(crate) other_sum: Sum,
    pub(crate) agreement: Agreement,
    /// Logits of the other model.
    kept: Vec<f32>,
}

impl Scores {
    /// Compares `session` with that of another model, if there is one.
    pub(crate) fn new(session: Session, other: Option<Session>) -> Self {
        Self {
            session,
            other,
            sum: Sum::default(),
            other_sum: Sum::default(),
            agreement: Agreement::default(),
            kept: Vec::new(),
        }
    }

    /// Scores the second half of a chunk.
    pub(crate) fn add(&mut self, chunk: &[u32]) -> Result<()> {
        let first = chunk.len() / 2;
        for session in std::iter::once(&mut self.session).chain(&mut self.other) {
            session.reset();
            // Scoring the very first token makes the session reserve logits for many tokens; later calls use that
            // space.
            session.score(&chunk[..1], &mut |_, _| {})?;
            session.prefill(&chunk[1..first])?;
        }
        let mut pairs = chunk[first..chunk.len() - 1].chunks(PIECE).zip(chunk[first + 1..].chunks(PIECE));
        pairs.try_for_each(|(tokens, targets)| self.score(tokens, targets))
    }

    /// Scores `targets` with the logits of both models at `tokens`.
    fn score(&mut self, tokens: &[u32], targets: &[u32]) -> Result<()> {
        let Self { session, other, sum, other_sum, agreement, kept } = self;
        kept.clear();
        if let Some(other) = other {
            other.score(tokens, &mut |_, logits| kept.extend_from_slice(logits))?;
        }
        session.score(tokens, &mut |index, logits| {
            if let Some(&target) = targets.get(index) {
                sum.add(surprise(logits, target));
            }
            if let Some(other) = kept.chunks_exact(logits.len()).nth(index) {
                agreement.add(logits, other);
                targets.get(index).inspect(|target| other_sum.add(surprise(other, **target)));
            }
        })
    }
}

/// Returns the negative log-likelihood of `target`, in nats.
pub(crate) fn surprise(logits: &[f32], target: u32) -> f64 {
    let logit = logits.get(target as usize).copied().unwrap_or(f32::NEG_INFINITY);
    total(logits) - f64::from(logit)
}

/// Returns log-sum-exp of the logits: a logit minus this is a log-probability.
fn total(logits: &[f32]) -> f64 {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = logits.iter().map(|&logit| f64::from(logit - highest).exp()).sum();
    total.ln() + f64::from(highest)
}

/// Returns the KL divergence of `found` from `truth`, both given as logits, in nats.
fn divergence(truth: &[f32], found: &[f32]) -> f64 {
    let (of_truth, of_found) = (total(truth), total(found));
    let terms = truth.iter().zip(found).map(|(&truth, &found)| {
        let logarithm = f64::from(truth) - of_truth;
        let probability = logarithm.exp();
        // Tokens of probability 0 in `truth` contribute nothing.
        if probability > 0.0 { probability * (logarithm - (f64::from(found) - of_found)) } else { 0.0 }
    });
    // Rounding alone can make the sum negative.
    terms.sum::<f64>().max(0.0)
}

/// Returns the token with the highest logit, the first of ties.
fn likeliest(logits: &[f32]) -> usize {
    let best = |best: (usize, f32), (index, &logit): (usize, &f32)| {
        if logit > best.1 { (index, logit) } else { best }
    };
    logits.iter().enumerate().fold((0, f32::NEG_INFINITY), best).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_odds_are_the_logarithm_of_the_count() {
        assert!((surprise(&[3.0; 8], 5) - 8f64.ln()).abs() < 1e-12);
        // softmax([0, ln 3]) is [1/4, 3/4]
        assert!((surprise(&[0.0, 3f32.ln()], 0) - 4f64.ln()).abs() < 1e-6);
    }

    #[test]
    fn forecasts_differ_by_the_divergence_of_their_odds() {
        // [1/4, 3/4] against [1/2, 1/2]: 1/4 ln 1/2 + 3/4 ln 3/2; the reverse: 1/2 ln 2 + 1/2 ln 2/3
        let (uneven, even) = ([5.0, 5.0 + 3f32.ln()], [7.0; 2]);
        let expected = 0.25 * 0.5f64.ln() + 0.75 * 1.5f64.ln();
        assert!((divergence(&uneven, &even) - expected).abs() < 1e-6);
        assert!((divergence(&even, &uneven) - 0.5 * (4.0 / 3.0f64).ln()).abs() < 1e-6);
        // Tokens of probability 0 contribute nothing.
        assert!(divergence(&[1.0, f32::NEG_INFINITY], &[1.0, f32::NEG_INFINITY]) == 0.0);
    }

    #[test]
    fn agreement_is_of_the_likeliest_tokens() {
        let mut agreement = Agreement::default();
        agreement.add(&[0.0, 1.0, 0.5], &[0.1, 3.0, 2.9]);
        agreement.add(&[0.0, 1.0, 0.5], &[0.1, 2.0, 2.9]);
        assert_eq!(agreement.agreement(), 0.5);
        let mut same = Agreement::default();
        same.add(&[0.0, 1.0, 0.5], &[0.0, 1.0, 0.5]);
        assert_eq!((same.agreement(), same.divergence()), (1.0, 0.0));
    }

    #[test]
    fn perplexity_of_even_odds_is_the_count() {
        let mut sum = Sum::default();
        (0..10).for_each(|_| sum.add(8f64.ln()));
        assert!((sum.perplexity() - 8.0).abs() < 1e-12 && sum.deviation() < 1e-6);
    }
}
