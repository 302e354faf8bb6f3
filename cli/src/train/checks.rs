//! The table of sanity checks before a run.

use crate::options::OpenArgs;
use crate::output;
use serde_json::{Value, json};
use siskin::Result;
use siskin_trainer::run::{Check, Depth, Outcome, Run};

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Pass => "pass",
        Outcome::Warning => "warn",
        Outcome::Fail => "fail",
    }
}

/// Runs all checks and prints a table. A failed check is an error.
pub(super) fn full(run: &mut Run, as_json: bool) -> Result<()> {
    let checks = run.check(Depth::Full)?;
    if as_json {
        let entry = |check: &Check| {
            json!({
                "check": check.name, "outcome": word(check.outcome), "result": check.result,
                "advice": check.advice,
            })
        };
        output::json(&Value::Array(checks.iter().map(entry).collect()))?;
    } else {
        let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
        for Check { name, outcome, result, advice } in &checks {
            output::line(format!("{name:<width$}  {:<4}  {result}", word(*outcome)))?;
            if !advice.is_empty() {
                output::line(format!("{:<width$}        {advice}", ""))?;
            }
        }
    }
    Check::reject(&checks)
}

/// Runs the quick checks and prints only warnings.
pub(super) fn brief(run: &mut Run, open: &OpenArgs) -> Result<()> {
    let checks = run.check(Depth::Brief)?;
    for check in checks.iter().filter(|check| check.outcome == Outcome::Warning) {
        output::note(open.quiet, format!("note: {}: {}; {}", check.name, check.result, check.advice));
    }
    Check::reject(&checks).map_err(|error| error.within("before the first step"))
}
