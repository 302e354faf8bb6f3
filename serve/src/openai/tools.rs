//! The fields about tools and reasoning.

use serde::Deserialize;
use serde_json::value::RawValue;
use siskin::chat::{Tool, ToolChoice};
use siskin::template::RenderOptions;
use siskin_format::JsonFields;

use crate::error::ApiError;

/// The maximum number of tools.
const MAX_TOOLS: usize = 128;

/// `tool_choice`, if it names a tool.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedChoice {
    #[serde(rename = "type")]
    kind: String,
    function: NamedFunction,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedFunction {
    name: String,
}

/// Takes `tools` and `tool_choice`.
pub(super) fn take(fields: &mut JsonFields<'_>) -> Result<(Vec<Tool>, ToolChoice), ApiError> {
    let list: Option<&RawValue> = fields.take("tools")?;
    let tools = list.map_or(Ok(Vec::new()), |list| Tool::list_from_json(list.get()))?;
    if tools.len() > MAX_TOOLS {
        return Err(ApiError::invalid("tools", format!("expected at most {MAX_TOOLS}, got {}", tools.len())));
    }
    let choice: Option<&RawValue> = fields.take("tool_choice")?;
    let choice = choice.map_or(Ok(ToolChoice::Auto), |choice| tool_choice(choice.get()))?;
    Ok((tools, choice))
}

fn tool_choice(json: &str) -> Result<ToolChoice, ApiError> {
    let expected = "expected none, auto, required, or {\"type\": \"function\", \"function\": {\"name\": …}}";
    if let Ok(name) = serde_json::from_str::<String>(json) {
        return match name.as_str() {
            "none" => Ok(ToolChoice::None),
            "auto" => Ok(ToolChoice::Auto),
            "required" => Ok(ToolChoice::Required),
            other => Err(ApiError::invalid("tool_choice", format!("`{other}` is not supported; {expected}"))),
        };
    }
    match serde_json::from_str::<NamedChoice>(json) {
        Ok(choice) if choice.kind == "function" => Ok(ToolChoice::Named(choice.function.name)),
        _ => Err(ApiError::invalid("tool_choice", expected)),
    }
}

/// Takes `reasoning_effort`, a variable of the chat template, and the maximum number of tokens of reasoning.
pub(super) fn take_reasoning(
    fields: &mut JsonFields<'_>,
    template: &mut RenderOptions,
) -> Result<Option<usize>, ApiError> {
    let effort: Option<String> = fields.take("reasoning_effort")?;
    if let Some(effort) = effort {
        if !["none", "minimal", "low", "medium", "high", "xhigh"].contains(&effort.as_str()) {
            let message =
                format!("`{effort}` is not supported; expected none, minimal, low, medium, high or xhigh");
            return Err(ApiError::invalid("reasoning_effort", message));
        }
        let is_set = |name: &str| template.extra.iter().any(|(known, _)| known == name);
        let mut variables = vec![("reasoning_effort", effort.as_str().into())];
        if effort == "none" {
            variables.push(("enable_thinking", false.into()));
        }
        variables.retain(|(name, _)| !is_set(name));
        template.extra.extend(variables.into_iter().map(|(name, value)| (name.to_owned(), value)));
    }
    let budget: Option<i64> = fields.take("reasoning_budget")?;
    // As in other servers, -1 is no limit.
    Ok(budget.and_then(|budget| usize::try_from(budget).ok()))
}
