//! Log-likelihoods of continuations.

use siskin::{Error, ErrorKind, Result, Session};

/// Returns the log-likelihood of each continuation after its context, and whether greedy decoding would generate it, in
/// order. Sorted pairs share prefixes with their predecessors, which are computed once.
pub(crate) fn log_likelihoods(
    session: &mut Session,
    pairs: &[(Vec<u32>, Vec<u32>)],
    vocabulary: usize,
) -> Result<Vec<(f64, bool)>> {
    let sequences: Vec<Vec<u32>> =
        pairs.iter().map(|(before, after)| [&before[..], &after[..]].concat()).collect();
    if let Some(token) = sequences.iter().flatten().find(|token| **token as usize >= vocabulary) {
        let message = format!("{token} is not in the vocabulary of {vocabulary} tokens");
        return Err(Error::argument("tokens", message));
    }
    let mut order: Vec<usize> = (0..pairs.len()).collect();
    order.sort_by(|&a, &b| sequences[a].cmp(&sequences[b]));
    let mut scores = vec![(0.0, true); pairs.len()];
    session.reset();
    let mut held: &[u32] = &[];
    for index in order {
        let (before, after) = &pairs[index];
        if before.is_empty() {
            return Err(Error::argument("context", "expected at least one token, such as BOS"));
        }
        // The last token has no successor; the logits after the context's last one are needed.
        let all = &sequences[index][..before.len() + after.len().saturating_sub(1)];
        let mut common = held.iter().zip(all).take_while(|(a, b)| a == b).count().min(before.len() - 1);
        match session.truncate(common) {
            // Recurrent states and sliding windows cannot be rewound.
            Err(error) if error.kind() == ErrorKind::State => {
                session.reset();
                common = 0;
            }
            truncated => truncated?,
        }
        let (mut sum, mut is_greedy) = (0.0, true);
        session.score(&all[common..], &mut |position, logits| {
            let next = (common + position + 1).checked_sub(before.len()).and_then(|next| after.get(next));
            if let Some(&token) = next {
                let (log_probability, is_top) = score(logits, token);
                sum += log_probability;
                is_greedy &= is_top;
            }
        })?;
        scores[index] = (sum, is_greedy);
        held = all;
    }
    Ok(scores)
}

/// Returns the log-probability of a token, and whether its logit is the first of the highest.
fn score(logits: &[f32], token: u32) -> (f64, bool) {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&logit| f64::from(logit - highest).exp()).sum();
    let own = logits.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY);
    let is_top = logits.iter().position(|&logit| logit == highest) == Some(token as usize);
    (f64::from(own - highest) - sum.ln(), is_top)
}
