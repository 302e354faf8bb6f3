//! Options that say what a generated text must be.

use crate::input_path;
use siskin::Result;
use siskin::constraint::StructuredOutput;
use std::path::PathBuf;

/// What the text must be. At most one of these.
#[derive(clap::Args)]
#[command(next_help_heading = "Structured output")]
#[group(multiple = false, id = "structured_output")]
pub(crate) struct StructuredOutputArgs {
    /// Generate JSON that is valid under this JSON Schema, such as '{"type": "object"}'
    #[arg(long, value_name = "SCHEMA")]
    json_schema: Option<String>,
    /// Generate JSON that is valid under the JSON Schema in this file
    #[arg(long, value_name = "FILE")]
    json_schema_file: Option<PathBuf>,
    /// Generate a sentence of this grammar: GBNF, or Lark
    #[arg(long, value_name = "GRAMMAR")]
    grammar: Option<String>,
    /// Generate a sentence of the grammar in this file: GBNF, or Lark
    #[arg(long, value_name = "FILE")]
    grammar_file: Option<PathBuf>,
    /// Generate a match of this regular expression
    #[arg(long, value_name = "REGEX")]
    regex: Option<String>,
    /// Generate this text, or one of several. May be given several times
    #[arg(long, value_name = "TEXT")]
    choice: Vec<String>,
}

impl StructuredOutputArgs {
    /// Returns what the text must be; `None`: anything.
    pub(crate) fn output(&self) -> Result<Option<StructuredOutput>> {
        if !self.choice.is_empty() {
            return Ok(Some(StructuredOutput::Choice(self.choice.clone())));
        }
        if let Some(regex) = &self.regex {
            return Ok(Some(StructuredOutput::Regex(regex.clone())));
        }
        if let Some(schema) = text(self.json_schema.as_ref(), self.json_schema_file.as_ref())? {
            return Ok(Some(StructuredOutput::JsonSchema(schema)));
        }
        let grammar = text(self.grammar.as_ref(), self.grammar_file.as_ref())?;
        Ok(grammar.map(StructuredOutput::grammar))
    }
}

/// Returns the text of an option, or that of a file.
fn text(text: Option<&String>, file: Option<&PathBuf>) -> Result<Option<String>> {
    match (text, file) {
        (Some(text), _) => Ok(Some(text.clone())),
        (None, Some(path)) => input_path::read_text(path).map(Some),
        (None, None) => Ok(None),
    }
}
