//! Decode speed with and without structured output, for a text.

use super::responses::Responses;
use super::{Args, finish, measured, median};
use crate::options::OpenArgs;
use crate::output::round;
use serde_json::Value;
use siskin::serving::Speculation;
use siskin::{Error, Result};
use std::path::Path;

/// Generates with and without structured output in turns, both without draft tokens, and prints the report.
pub(super) fn report(args: &Args, open: &OpenArgs, path: &Path) -> Result<()> {
    let Some(output) = args.structured_output.output()? else {
        return Err(Error::argument("--constrain", "requires --json-schema or another structured output"));
    };
    let responses = Responses::new(args, open, path)?;
    let plain = || responses.generate(Speculation::Off, None);
    let constrained = || responses.generate(Speculation::Off, Some(&output));
    // Fills the prefix cache, and compiles the constraint.
    let last = constrained()?;
    plain()?;
    let (mut rates, mut constrained_rates, mut gains, mut costs) = (vec![], vec![], vec![], vec![]);
    for _ in 0..args.repeat {
        let (one, other) = (plain()?, constrained()?);
        gains.push(other.rate() / one.rate());
        costs.push(other.seconds_per_pass() / one.seconds_per_pass());
        rates.push(one.rate());
        constrained_rates.push(other.rate());
    }
    let mut report = measured(args, &responses.model, 0.0);
    report.retain(|(name, _)| *name != "open_ms");
    let mut add = |name: &'static str, value: Value| report.push((name, value));
    add("generated_tokens", last.tokens.len().into());
    add("passes", last.passes.into());
    add("generate_tok_s", round(median(rates), 1).into());
    add("constrained_tok_s", round(median(constrained_rates), 1).into());
    add("speedup", round(median(gains), 3).into());
    add("pass_cost", round(median(costs), 3).into());
    finish(args, &responses.model, report)
}
