//! Chat options in JSON, with the names that OpenAI's API and other servers give them.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use siskin_chat_template::TemplateData;
use siskin_format::JsonFields;

use super::{ChatOptions, Tool, ToolChoice};
use crate::{Error, Result};

/// The maximum number of tools.
const MAX_TOOLS: usize = 128;
/// The values of `reasoning_effort`.
const EFFORTS: [&str; 6] = ["none", "minimal", "low", "medium", "high", "xhigh"];
/// Variables of templates that have options of their own.
const RESERVED: [&str; 6] =
    ["messages", "tools", "documents", "bos_token", "eos_token", "add_generation_prompt"];

impl ChatOptions {
    /// Takes options from the fields of a JSON object: `tools`, `tool_choice`, `parallel_tool_calls`, `reasoning_effort`,
    /// `reasoning_budget`, and `chat_template_kwargs`, the variables of the template.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument), located at the field.
    pub fn read_json(&mut self, fields: &mut JsonFields<'_>) -> Result<()> {
        self.read_variables(fields)?;
        let tools: Option<&RawValue> = fields.take("tools")?;
        self.tools = tools.map_or(Ok(Vec::new()), |tools| Tool::list_from_json(tools.get()))?;
        if self.tools.len() > MAX_TOOLS {
            let message = format!("expected at most {MAX_TOOLS}, got {}", self.tools.len());
            return Err(Error::argument("tools", message));
        }
        let choice: Option<&RawValue> = fields.take("tool_choice")?;
        self.tool_choice =
            choice.map_or(Ok(ToolChoice::Auto), |choice| ToolChoice::from_json(choice.get()))?;
        self.parallel_tool_calls = fields.take("parallel_tool_calls")?.unwrap_or(true);
        let budget: Option<i64> = fields.take("reasoning_budget")?;
        // As in other servers, -1 is no limit.
        self.reasoning_budget = match budget.filter(|budget| *budget != -1).map(usize::try_from) {
            None => None,
            Some(Ok(budget)) => Some(budget),
            Some(Err(_)) => {
                return Err(Error::argument("reasoning_budget", "expected a number, or -1 for no limit"));
            }
        };
        Ok(())
    }

    /// Sets options from a JSON object with the fields of [`ChatOptions::read_json`].
    ///
    /// # Errors
    /// As [`ChatOptions::read_json`], and if there are other fields.
    pub fn set_json(&mut self, json: &str) -> Result<()> {
        let mut fields = JsonFields::read(json)?;
        self.read_json(&mut fields)?;
        fields.finish()
    }

    fn read_variables(&mut self, fields: &mut JsonFields<'_>) -> Result<()> {
        const VARIABLES: &str = "chat_template_kwargs";
        let mut variables: BTreeMap<String, TemplateData> = fields.take(VARIABLES)?.unwrap_or_default();
        if let Some(reserved) = RESERVED.iter().find(|reserved| variables.contains_key(**reserved)) {
            return Err(Error::argument(VARIABLES, format!("`{reserved}` cannot be set here")));
        }
        let effort: Option<String> = fields.take("reasoning_effort")?;
        if let Some(effort) = effort {
            if !EFFORTS.contains(&effort.as_str()) {
                let message = format!("`{effort}` is not supported; expected one of {}", EFFORTS.join(", "));
                return Err(Error::argument("reasoning_effort", message));
            }
            if effort == "none" {
                for name in ["enable_thinking", "thinking"] {
                    variables.entry(name.to_owned()).or_insert_with(|| false.into());
                }
            }
            variables.entry("reasoning_effort".to_owned()).or_insert_with(|| effort.as_str().into());
        }
        self.template.extra.extend(variables);
        Ok(())
    }
}
