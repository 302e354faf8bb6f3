//! The HTML page.

use std::fmt::Write;

use serde_json::Value;

use super::RunReport;
use super::curve::{chart, format_number};
use super::html::escape;

/// The number of validations whose samples are shown.
const SHOWN_VALIDATIONS: usize = 8;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:760px;margin:2em auto;padding:0 1em;\
color:#1f2937;background:#fff}h1{font-size:1.5em}h2{font-size:1.1em;margin:1.6em 0 .3em}svg{width:100%}\
svg text{font-size:11px;fill:#6b7280}.grid{stroke:#e5e7eb}polyline{fill:none;stroke-width:1.6}\
.legend{margin:0}.legend span{margin-right:1em}table{border-collapse:collapse;font-size:13px}\
td,th{padding:.1em .7em .1em 0;text-align:right}td:first-child,th:first-child{text-align:left}\
pre{background:#f3f4f6;padding:.8em;overflow:auto;white-space:pre-wrap;overflow-wrap:anywhere}\
b{font-weight:600}.bad{color:#dc2626}";

impl RunReport {
    /// Returns the page; `title` names the run.
    pub fn html(&self, title: &str) -> String {
        let title = escape(title);
        let mut out = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width\"/>\n<title>{title}</title>\n\
             <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        );
        self.summary(&mut out);
        out.push_str(&chart("Loss", &[("training", &self.training), ("validation", &self.validation)]));
        out.push_str(&chart("Learning rate", &[("learning rate", &self.learning_rate)]));
        out.push_str(&chart("Gradient norm", &[("gradient norm", &self.grad_norm)]));
        out.push_str(&chart("Tokens per second", &[("tokens per second", &self.tokens_per_second)]));
        out.push_str(&chart("Model FLOPs utilization (%)", &[("MFU", &self.mfu)]));
        self.show_samples(&mut out);
        self.show_memory(&mut out);
        self.show_statistics(&mut out);
        if !self.config.is_empty() {
            let _ = write!(out, "<h2>Config</h2>\n<pre>{}</pre>\n", escape(&self.config));
        }
        out.push_str("</body>\n</html>\n");
        out
    }

    fn summary(&self, out: &mut String) {
        let Some((step, loss)) = self.training.last() else {
            out.push_str("<p>No steps yet.</p>\n");
            return;
        };
        let of = if self.steps > 0 { format!(" of {}", self.steps) } else { String::new() };
        let _ = write!(out, "<p>Step {step}{of}, training loss {}", format_number(*loss));
        let best = self.validation.iter().min_by(|one, other| one.1.total_cmp(&other.1));
        if let Some((step, loss)) = best {
            let _ = write!(out, "; best validation loss {} after step {step}", format_number(*loss));
        }
        out.push_str(".</p>\n");
    }

    fn show_samples(&self, out: &mut String) {
        if self.samples.is_empty() {
            return;
        }
        out.push_str("<h2>Samples</h2>\n");
        for (step, samples) in self.samples.iter().rev().take(SHOWN_VALIDATIONS) {
            let _ = writeln!(out, "<h3>After step {step}</h3>");
            for sample in samples {
                let (prompt, text) = (escape(&sample.prompt), escape(&sample.text));
                let _ = writeln!(out, "<pre><b>{prompt}</b>{text}</pre>");
            }
        }
    }

    fn show_memory(&self, out: &mut String) {
        if self.memory.is_empty() {
            return;
        }
        out.push_str("<h2>Memory</h2>\n<table>\n<tr><th>part</th><th>MiB</th></tr>\n");
        for (name, bytes) in &self.memory {
            let _ = writeln!(
                out,
                "<tr><td>{}</td><td>{:.1}</td></tr>",
                escape(name),
                *bytes as f64 / f64::from(1 << 20)
            );
        }
        out.push_str("</table>\n");
    }

    fn show_statistics(&self, out: &mut String) {
        let Some((step, rows)) = &self.statistics else { return };
        let _ = write!(out, "<h2>Tensor statistics of step {step}</h2>\n<table>\n<tr><th>tensor</th>");
        let columns = ["mean", "rms", "max_abs", "zero_fraction", "non_finite_fraction"];
        for name in ["mean", "root mean square", "largest magnitude", "zeros", "non-finite"] {
            let _ = write!(out, "<th>{name}</th>");
        }
        out.push_str("</tr>\n");
        for (name, row) in rows {
            let non_finite = row["non_finite_fraction"].as_f64().is_some_and(|fraction| fraction > 0.0);
            let class = if non_finite { " class=\"bad\"" } else { "" };
            let _ = write!(out, "<tr{class}><td>{}</td>", escape(name));
            for column in columns {
                let number = row.get(column).and_then(Value::as_f64);
                let _ = write!(out, "<td>{}</td>", number.map(format_number).unwrap_or_default());
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</table>\n");
    }
}
