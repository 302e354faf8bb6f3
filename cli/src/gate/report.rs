//! What was compared, and the bounds.

use serde_json::{Value, json};
use std::fmt::Write;

/// A comparison and its bound.
pub(super) struct GateCheck {
    name: String,
    value: f64,
    bound: f64,
    is_minimum: bool,
    /// The values of the baseline and of the candidate.
    compared: Option<(f64, f64)>,
}

impl GateCheck {
    pub(super) fn at_most(name: impl Into<String>, value: f64, bound: f64) -> Self {
        Self { name: name.into(), value, bound, is_minimum: false, compared: None }
    }

    pub(super) fn at_least(name: impl Into<String>, value: f64, bound: f64) -> Self {
        Self { is_minimum: true, ..Self::at_most(name, value, bound) }
    }

    /// Sets what the value was computed from.
    pub(super) fn comparing(self, baseline: f64, candidate: f64) -> Self {
        Self { compared: Some((baseline, candidate)), ..self }
    }

    fn has_passed(&self) -> bool {
        // NaN passes nothing.
        if self.is_minimum { self.value >= self.bound } else { self.value <= self.bound }
    }

    fn line(&self) -> String {
        let state = if self.has_passed() { "passed" } else { "FAILED" };
        let relation = if self.is_minimum { "at least" } else { "at most" };
        let compared = self.compared.map_or_else(String::new, |(baseline, candidate)| {
            format!(" (baseline {baseline:.4}, candidate {candidate:.4})")
        });
        format!("{state}  {}: {:.4}, {relation} {}{compared}", self.name, self.value, self.bound)
    }
}

#[derive(Default)]
pub(super) struct Report {
    checks: Vec<GateCheck>,
}

impl Report {
    pub(super) fn push(&mut self, check: GateCheck) {
        self.checks.push(check);
    }

    pub(super) fn has_passed(&self) -> bool {
        self.checks.iter().all(GateCheck::has_passed)
    }

    pub(super) fn text(&self) -> String {
        self.checks.iter().map(|check| check.line() + "\n").collect()
    }

    pub(super) fn json(&self) -> Value {
        let check = |check: &GateCheck| {
            json!({
                "name": check.name,
                "value": check.value,
                "bound": check.bound,
                "bound_is": if check.is_minimum { "minimum" } else { "maximum" },
                "passed": check.has_passed(),
                "baseline": check.compared.map(|(baseline, _)| baseline),
                "candidate": check.compared.map(|(_, candidate)| candidate),
            })
        };
        let checks: Vec<Value> = self.checks.iter().map(check).collect();
        json!({"passed": self.has_passed(), "checks": checks})
    }

    pub(super) fn junit(&self) -> String {
        let failed = self.checks.iter().filter(|check| !check.has_passed()).count();
        let mut text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"siskin gate\" tests=\"{}\" failures=\"{failed}\">\n",
            self.checks.len()
        );
        for check in &self.checks {
            let (name, line) = (escaped(&check.name), escaped(&check.line()));
            // A string takes everything.
            let _ = match check.has_passed() {
                true => {
                    writeln!(text, "  <testcase name=\"{name}\"><system-out>{line}</system-out></testcase>")
                }
                false => {
                    writeln!(text, "  <testcase name=\"{name}\"><failure message=\"{line}\"/></testcase>")
                }
            };
        }
        text + "</testsuite>\n"
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive_and_nan_fails() {
        for (check, passes) in [
            (GateCheck::at_most("a", 1.0, 1.0), true),
            (GateCheck::at_most("a", 1.1, 1.0), false),
            (GateCheck::at_least("a", 1.0, 1.0), true),
            (GateCheck::at_least("a", 0.9, 1.0), false),
            (GateCheck::at_most("a", f64::NAN, 1.0), false),
            (GateCheck::at_least("a", f64::NAN, 1.0), false),
        ] {
            assert_eq!(check.has_passed(), passes, "{}", check.line());
        }
    }

    #[test]
    fn reports_say_what_failed() {
        let mut report = Report::default();
        report.push(GateCheck::at_most("a < \"b\"", 2.0, 1.0).comparing(1.0, 3.0));
        report.push(GateCheck::at_least("c", 2.0, 1.0));
        assert!(!report.has_passed());
        assert!(
            report
                .text()
                .starts_with("FAILED  a < \"b\": 2.0000, at most 1 (baseline 1.0000, candidate 3.0000)\n")
        );
        assert_eq!(report.json()["checks"][0]["passed"], false);
        let junit = report.junit();
        assert!(
            junit.contains("failures=\"1\"") && junit.contains("name=\"a &lt; &quot;b&quot;\""),
            "{junit}"
        );
    }
}
