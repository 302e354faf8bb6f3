//! Decode speed with and without draft tokens, for a text.

use super::responses::Responses;
use super::{Args, finish, median};
use crate::options::OpenArgs;
use crate::output::round;
use serde_json::Value;
use siskin::serving::{SchedulerStats, Speculation};
use siskin::{Error, ErrorKind, Result};
use std::path::Path;

/// Generates with and without draft tokens in turns, and prints the report.
pub(super) fn report(args: &Args, open: &OpenArgs, path: &Path) -> Result<()> {
    let responses = Responses::new(args, open, path)?;
    let run = |speculation| responses.generate(speculation, None);
    // Fills the prefix cache, and learns how long passes take.
    let expected = run(Speculation::Auto)?.tokens;
    run(Speculation::Off)?;
    let before = responses.stats();
    let (mut plain, mut drafted, mut gains) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..args.repeat {
        let runs = [run(Speculation::Off)?, run(Speculation::Auto)?];
        if runs.iter().any(|run| run.tokens != expected) {
            let message =
                "speculation changed the tokens, which is an error of the program; please report it";
            return Err(Error::new(ErrorKind::State, "speculation", message));
        }
        let [one, other] = runs.map(|run| run.rate());
        plain.push(one);
        drafted.push(other);
        gains.push(other / one);
    }
    let after = responses.stats();
    let count = |of: fn(&SchedulerStats) -> u64| of(&after) - of(&before);
    let mut report = responses.report(args);
    let mut add = |name: &'static str, value: Value| report.push((name, value));
    add("generated_tokens", expected.len().into());
    add("generate_tok_s", round(median(plain), 1).into());
    add("speculative_tok_s", round(median(drafted), 1).into());
    add("speedup", round(median(gains), 3).into());
    add("draft_tokens", (count(|stats| stats.drafted_tokens) / u64::from(args.repeat)).into());
    add("accepted_tokens", (count(|stats| stats.accepted_tokens) / u64::from(args.repeat)).into());
    finish(args, &responses.model, report)
}
