//! The text format of Prometheus.

/// Returns the labels of a model.
pub(crate) fn model_labels(name: &str, version: &str) -> String {
    format!("model={},version={}", label(name), label(version))
}

/// Returns a label's value in quotes.
pub(crate) fn label(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
