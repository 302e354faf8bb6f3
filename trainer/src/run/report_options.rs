//! The options of a report.

use serde::{Deserialize, Serialize};
use siskin_format::{Error, Result};
use siskin_graph::OutputHead;

use crate::program::{Program, Side};
use crate::settings::within;

/// What the report of a run contains besides curves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReportOptions {
    /// Prompts that the model continues at each validation.
    pub prompts: Vec<String>,
    /// Tokens per sample.
    pub max_new_tokens: usize,
    /// The sampling temperature; 0 for greedy decoding.
    pub temperature: f64,
}

impl Default for ReportOptions {
    fn default() -> Self {
        Self { prompts: Vec::new(), max_new_tokens: 80, temperature: 0.8 }
    }
}

impl ReportOptions {
    /// Rejects prompts for models that do not generate text.
    pub(super) fn check(&self, program: &Program) -> Result<()> {
        within("report.temperature", self.temperature, 0.0..=100.0)?;
        let writes =
            program.graph.head == OutputHead::Next && program.sides.iter().all(|&side| side == Side::Decoder);
        if self.prompts.is_empty() || writes {
            return Ok(());
        }
        let message = "only causal language models generate samples; remove the prompts";
        Err(Error::argument("report.prompts", message))
    }
}
