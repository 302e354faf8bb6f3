//! What a chat template supports, found by rendering short conversations.

use super::reasoning::ReasoningTags;
use super::tool::Tool;
use super::tool_format::{self, ToolFormat};
use crate::style::{self, render};
use crate::{ChatTemplate, Message, MessageStyle, TemplateData, ToolCall};

/// What a template supports.
#[derive(Clone, Debug, Default)]
pub struct TemplateTraits {
    /// How it expects messages.
    pub style: MessageStyle,
    /// How the template renders tool calls; `None`: in no format that is known.
    pub format: Option<&'static ToolFormat>,
    /// Whether tools are a variable of the system message.
    pub has_system_tools: bool,
    /// Whether it shows system messages.
    pub has_system_role: bool,
    /// The tags around reasoning, if it has any.
    pub reasoning: Option<ReasoningTags>,
}

const SYSTEM: &str = "probe_instruction";
const QUESTION: &str = "probe_question";
const ARGUMENT: &str = "probe_value";
const THOUGHT: &str = "probe_thought";
const TOOL: &str = "probe_tool";
const CALL_ID: &str = "probe1234";

impl TemplateTraits {
    pub(crate) fn of(template: &ChatTemplate) -> Self {
        let mut traits = Self { style: style::find(template), ..Self::default() };
        let system = [Message::new("system", SYSTEM), Message::new("user", QUESTION)];
        let rendered = render(template, &system, &traits.style, None);
        traits.has_system_role = rendered.is_some_and(|prompt| prompt.contains(SYSTEM));
        traits.find_tools(template);
        traits.find_reasoning(template);
        traits
    }

    fn find_tools(&mut self, template: &ChatTemplate) {
        let call = ToolCall {
            id: Some(CALL_ID.to_owned()),
            name: TOOL.to_owned(),
            arguments: format!(r#"{{"key": "{ARGUMENT}"}}"#),
        };
        let result = Message { name: Some(TOOL.to_owned()), ..Message::tool_result(CALL_ID, "probe_result") };
        let answer = Message { tool_calls: vec![call], ..Message::new("assistant", "") };
        let conversation = [Message::new("user", QUESTION), answer, result];
        let tools = tools_data();
        for arguments_as_text in [false, true] {
            let style = MessageStyle { arguments_as_text, ..self.style.clone() };
            let Some(prompt) = render(template, &conversation, &style, tools.clone()) else { continue };
            let call = prompt.rfind(QUESTION).map_or("", |start| &prompt[start..]);
            if call.contains(ARGUMENT) {
                self.style = style;
                self.format = tool_format::detect(call);
                return;
            }
        }
        // A template may show tools without showing calls.
        let tag = template.source().contains("<|tool|>") && template.source().contains("'tools' in message");
        if tag {
            self.format = ToolFormat::named("phi");
            self.has_system_tools = true;
        }
    }

    fn find_reasoning(&mut self, template: &ChatTemplate) {
        let answer = Message {
            reasoning_content: Some(THOUGHT.to_owned()),
            ..Message::new("assistant", "probe_answer")
        };
        let conversation = [Message::new("user", QUESTION), answer];
        let rendered = render(template, &conversation, &self.style, None);
        let before = rendered.as_deref().and_then(|prompt| prompt.split_once(THOUGHT));
        let found = before.and_then(|(before, _)| ReasoningTags::before(before));
        let found = found.or_else(|| ReasoningTags::in_source(template.source()));
        // Harmony tells reasoning by its channel.
        let is_harmony = self.format.is_some_and(ToolFormat::is_harmony);
        self.reasoning = found.filter(|_| !is_harmony);
    }
}

fn tools_data() -> Option<TemplateData> {
    let parameters = r#"{"type": "object", "properties": {"key": {"type": "string", "description": "key"}}}"#;
    let tool = Tool::new(TOOL, "description", parameters).ok()?;
    TemplateData::from_json(&format!("[{}]", tool.definition())).ok()
}
