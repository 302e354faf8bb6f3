//! Finds out how a template expects messages, by rendering one.

use crate::{ChatTemplate, Date, Message, MessageStyle, RenderOptions, TemplateData};

const QUESTION: &str = "probe_question";

/// Returns the style of the template's messages; that of arguments is the usual one.
pub(crate) fn find(template: &ChatTemplate) -> MessageStyle {
    let question = [Message::new("user", QUESTION)];
    let usual = MessageStyle::default();
    let parts = MessageStyle { content_parts: true, ..MessageStyle::default() };
    let shows = |style: &MessageStyle| {
        render(template, &question, style, None).is_some_and(|prompt| prompt.contains(QUESTION))
    };
    if !shows(&usual) && shows(&parts) { parts } else { usual }
}

/// Renders messages; `None` if the template fails.
pub(crate) fn render(
    template: &ChatTemplate,
    messages: &[Message],
    style: &MessageStyle,
    tools: Option<TemplateData>,
) -> Option<String> {
    let options = RenderOptions {
        bos_token: Some(String::new()),
        eos_token: Some(String::new()),
        tools,
        now: Some(Date::now()),
        ..RenderOptions::default()
    };
    template.render(&TemplateData::messages(messages, style), &options).ok()
}
