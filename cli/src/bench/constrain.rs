//! Decode speed with and without structured output, for a text.

use super::responses::Responses;
use super::{Args, finish, median};
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
    let mut last = constrained()?;
    plain()?;
    let (mut rates, mut constrained_rates, mut ratios, mut pass_time_ratios) =
        (vec![], vec![], vec![], vec![]);
    for _ in 0..args.repeat {
        let (plain_run, constrained_run) = (plain()?, constrained()?);
        ratios.push(constrained_run.rate() / plain_run.rate());
        pass_time_ratios.push(constrained_run.seconds_per_pass() / plain_run.seconds_per_pass());
        rates.push(plain_run.rate());
        constrained_rates.push(constrained_run.rate());
        last = constrained_run;
    }
    let mut report = responses.report(args);
    let mut add = |name: &'static str, value: Value| report.push((name, value));
    add("generated_tokens", last.tokens.len().into());
    add("passes", last.passes.into());
    add("generate_tok_s", round(median(rates), 1).into());
    add("constrained_tok_s", round(median(constrained_rates), 1).into());
    add("relative_speed", round(median(ratios), 3).into());
    add("relative_pass_time", round(median(pass_time_ratios), 3).into());
    finish(args, &responses.model, report)
}
