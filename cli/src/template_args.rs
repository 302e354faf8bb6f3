//! Variables of chat templates: `--template-var`, `--tools` and `--documents`.

use crate::{input_path, output};
use siskin::chat::Tool;
use siskin::template::{RenderOptions, TemplateData};
use siskin::{Error, Model, Result};
use std::path::{Path, PathBuf};

/// Chat template options.
#[derive(clap::Args)]
#[command(next_help_heading = "Chat template")]
pub(crate) struct TemplateArgs {
    /// Set a chat template variable to a JSON value or a string, such as enable_thinking=false. May be given several
    /// times
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    template_var: Vec<(String, String)>,
    /// Tools that the model may call: a file with a JSON list of function schemas
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// Documents for retrieval-augmented generation: a file with a JSON list
    #[arg(long, value_name = "FILE")]
    documents: Option<PathBuf>,
}

/// Splits NAME=VALUE.
fn variable(text: &str) -> std::result::Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE, such as enable_thinking=false")?;
    match name {
        "" => Err("missing name; expected NAME=VALUE, such as enable_thinking=false".to_owned()),
        "messages" => Err("the messages are those of the conversation and cannot be set".to_owned()),
        _ => Ok((name.to_owned(), value.to_owned())),
    }
}

impl TemplateArgs {
    /// Returns true if any variable was given.
    pub(crate) fn are_given(&self) -> bool {
        !self.template_var.is_empty() || self.tools.is_some() || self.documents.is_some()
    }

    /// Returns whether --tools was given.
    pub(crate) fn has_tools(&self) -> bool {
        self.tools.is_some()
    }

    /// Returns the tools for a chat whose response is parsed. `None` without --tools, and with a warning if they are not in
    /// OpenAI's form, unless that is required: then only the template knows what they are.
    pub(crate) fn tools(&self, is_required: bool) -> Result<Option<Vec<Tool>>> {
        let Some(path) = &self.tools else { return Ok(None) };
        let tools = Tool::list_from_json(&input_path::read_text(path)?);
        if is_required {
            return tools.map(Some).map_err(|error| error.within(&path.display().to_string()));
        }
        let warn = |error: &Error| {
            let location = path.display();
            output::warn(format_args!("{location}: {error}; tool calls are not parsed"));
        };
        Ok(tools.inspect_err(warn).ok())
    }

    /// Returns the variables for a model. Fails if there are some and it has no chat template; a variable that the
    /// template does not use gives a warning.
    pub(crate) fn options(&self, model: &Model) -> Result<RenderOptions> {
        let options = RenderOptions {
            tools: self.tools.as_deref().map(list).transpose()?,
            documents: self.documents.as_deref().map(list).transpose()?,
            extra: self.template_var.iter().map(|(name, value)| (name.clone(), data(value))).collect(),
            ..RenderOptions::default()
        };
        let given = [("tools", self.tools.is_some()), ("documents", self.documents.is_some())];
        let given = given.into_iter().filter_map(|(name, is_given)| is_given.then_some(name));
        let names: Vec<&str> = given.chain(self.template_var.iter().map(|(name, _)| name.as_str())).collect();
        if names.is_empty() {
            return Ok(options);
        }
        let template = model.template()?.ok_or_else(|| {
            Error::argument("--template-var, --tools, --documents", "the model has no chat template")
        })?;
        for name in names.iter().filter(|name| !template.uses(name)) {
            output::warn(format_args!("the model's chat template does not use `{name}`"));
        }
        Ok(options)
    }
}

/// Returns a JSON value, or the text itself if it is not JSON.
fn data(text: &str) -> TemplateData {
    TemplateData::from_json(text).unwrap_or_else(|_| text.into())
}

/// Reads a file with a JSON list.
fn list(path: &Path) -> Result<TemplateData> {
    let location = path.display().to_string();
    let text = input_path::read_text(path)?;
    if !text.trim_start().starts_with('[') {
        return Err(Error::argument(location, "not a JSON list"));
    }
    TemplateData::from_json(&text).map_err(|error| error.within(&location))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_json_or_text() {
        assert_eq!(variable("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(variable("a").is_err() && variable("=a").is_err() && variable("messages=[]").is_err());
        assert_eq!(data("false"), false.into());
        assert_eq!(data("3"), 3.into());
        assert_eq!(data("a \"b\""), "a \"b\"".into());
    }
}
