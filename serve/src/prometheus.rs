//! The text format of Prometheus.

use std::fmt::{Display, Write};

/// Returns the labels of a model.
pub(crate) fn model_labels(name: &str, version: &str) -> String {
    format!("model={},version={}", label(name), label(version))
}

/// Returns a label's value in quotes.
pub(crate) fn label(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

/// Appends a line.
pub(crate) fn write_line(page: &mut String, line: impl Display) {
    // Writing to a string cannot fail.
    let _ = writeln!(page, "{line}");
}

/// Appends what comes before the series of a metric.
pub(crate) fn write_head(page: &mut String, name: &str, kind: &str, help: &str) {
    write_line(page, format_args!("# HELP {name} {help}"));
    write_line(page, format_args!("# TYPE {name} {kind}"));
}
