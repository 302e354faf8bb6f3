//! DRY: a penalty that grows with the length of the repetition that a token would continue.

use super::history::TokenHistory;
use super::{Edit, SamplerOptions};

/// The natural logarithm of the largest `f32`.
const MAX_EXPONENT: f32 = 88.722_84;

struct Dry {
    multiplier: f32,
    base: f32,
    allowed_length: usize,
    /// Sorted, so that those with the same first token are adjacent.
    breakers: Vec<Vec<u32>>,
    history: TokenHistory,
    /// `matches[k]`: the length of the common suffix of the history and the history without its last `k` tokens.
    matches: Vec<u32>,
    /// One plus the length of the longest repetition that each token would continue; zero for tokens not in `touched`.
    longest: Vec<u32>,
    touched: Vec<u32>,
}

/// Builds the edit if `options` enable it.
pub(super) fn build(options: &SamplerOptions, vocabulary_size: usize) -> Option<Box<dyn Edit>> {
    if options.dry_multiplier == 0.0 || options.dry_last_n == 0 {
        return None;
    }
    let mut breakers = options.dry_sequence_breakers.clone();
    breakers.sort_unstable();
    Some(Box::new(Dry {
        multiplier: options.dry_multiplier,
        base: options.dry_base,
        allowed_length: options.dry_allowed_length,
        breakers,
        history: TokenHistory::new(options.dry_last_n),
        matches: Vec::with_capacity(options.dry_last_n),
        longest: vec![0; vocabulary_size],
        touched: Vec::with_capacity(options.dry_last_n),
    }))
}

/// Returns the breakers that begin with `head`.
fn starting_with(breakers: &[Vec<u32>], head: u32) -> &[Vec<u32>] {
    let start = breakers.partition_point(|breaker| breaker.first() < Some(&head));
    let end = breakers.partition_point(|breaker| breaker.first() <= Some(&head));
    &breakers[start..end]
}

/// Returns the number of tokens after the last breaker: no repetition reaches further back.
fn limit(window: &[u32], breakers: &[Vec<u32>]) -> usize {
    for start in (0..window.len()).rev() {
        let rest = &window[start..];
        let matching =
            starting_with(breakers, window[start]).iter().filter(|breaker| rest.starts_with(breaker));
        if let Some(length) = matching.map(Vec::len).max() {
            return rest.len() - length;
        }
    }
    window.len()
}

/// Computes the Z function of the reversed window, with each value capped at `limit`.
fn match_ends(window: &[u32], limit: usize, matches: &mut Vec<u32>) {
    let length = window.len();
    let token = |back: usize| window[length - 1 - back];
    matches.clear();
    matches.resize(length, 0);
    let (mut left, mut right) = (0, 0);
    for shift in 1..length {
        let known = if shift < right { (matches[shift - left] as usize).min(right - shift) } else { 0 };
        let mut matched = known;
        while shift + matched < length && token(matched) == token(shift + matched) {
            matched += 1;
        }
        if shift + matched > right {
            (left, right) = (shift, shift + matched);
        }
        matches[shift] = matched as u32;
    }
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    for matched in matches.iter_mut() {
        *matched = (*matched).min(limit);
    }
}

impl Dry {
    fn penalty(&self, repeated: usize) -> f32 {
        let mut exponent = repeated - self.allowed_length;
        if self.base > 1.000_001 {
            exponent = exponent.min((MAX_EXPONENT / libm::logf(self.base)) as usize);
        }
        (self.multiplier * libm::powf(self.base, exponent as f32)).min(f32::MAX)
    }

    fn breaks(&self, id: u32) -> bool {
        starting_with(&self.breakers, id).iter().any(|breaker| breaker.len() == 1)
    }
}

impl Edit for Dry {
    fn apply(&mut self, scores: &mut [f32]) {
        let window = self.history.window();
        if window.len() <= self.allowed_length {
            return;
        }
        let limit = limit(window, &self.breakers);
        if limit < self.allowed_length {
            return;
        }
        match_ends(window, limit, &mut self.matches);
        for shift in 1..window.len() {
            let matched = self.matches[shift];
            let next = window[window.len() - shift];
            let Some(longest) = self.longest.get_mut(next as usize) else { continue };
            if (matched as usize) < self.allowed_length {
                continue;
            }
            if *longest == 0 {
                self.touched.push(next);
            }
            *longest = (*longest).max(matched + 1);
        }
        while let Some(id) = self.touched.pop() {
            let longest = std::mem::take(&mut self.longest[id as usize]);
            let penalty = self.penalty(longest as usize - 1);
            if let Some(score) = scores.get_mut(id as usize).filter(|_| !self.breaks(id)) {
                *score = (*score - penalty).min(f32::MAX);
            }
        }
    }

    fn accept(&mut self, id: u32) {
        self.history.push(id);
    }

    fn reset(&mut self) {
        self.history.clear();
    }

    fn fork(&self) -> Box<dyn Edit> {
        Box::new(Self {
            breakers: self.breakers.clone(),
            history: self.history.fork(),
            matches: Vec::with_capacity(self.matches.capacity()),
            longest: self.longest.clone(),
            touched: Vec::with_capacity(self.touched.capacity()),
            ..*self
        })
    }
}
