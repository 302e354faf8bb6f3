//! Tools for models whose chat template has none: a system message explains them, in the format of Hermes.

use super::tool::Tool;
use crate::Message;

/// Returns the conversation with its tools, tool calls and results as text. Without `has_system_role`, the explanation
/// is at the beginning of the first message.
pub fn with_tools(messages: &[Message], tools: &[Tool], has_system_role: bool) -> Vec<Message> {
    let mut shown: Vec<Message> = Vec::with_capacity(messages.len() + 1);
    let mut was_result = false;
    for message in messages {
        let is_result = message.role == "tool";
        let text = match is_result {
            true => format!("<tool_response>\n{}\n</tool_response>", message.text()),
            false => with_calls(message),
        };
        match shown.last_mut().filter(|_| is_result && was_result) {
            // Results of parallel calls are one message, since many templates require that roles alternate.
            Some(last) => *last = Message::new("user", format!("{}\n{text}", last.text())),
            None if is_result => shown.push(Message::new("user", text)),
            None => shown.push(Message { tool_calls: Vec::new(), ..changed(message, text) }),
        }
        was_result = is_result;
    }
    if !tools.is_empty() {
        explain(&mut shown, &explanation(tools), has_system_role);
    }
    shown
}

/// Returns the message with another content.
fn changed(message: &Message, text: String) -> Message {
    Message { content: Message::new("", text).content, ..message.clone() }
}

/// Returns the text of a message, with its tool calls.
fn with_calls(message: &Message) -> String {
    let mut text = message.text().into_owned();
    for call in &message.tool_calls {
        if !text.is_empty() {
            text.push('\n');
        }
        let name = serde_json::Value::from(call.name.as_str());
        let arguments = &call.arguments;
        text += &format!("<tool_call>\n{{\"name\": {name}, \"arguments\": {arguments}}}\n</tool_call>");
    }
    text
}

fn explain(messages: &mut Vec<Message>, explanation: &str, has_system_role: bool) {
    match messages.first_mut() {
        Some(first) if first.role == "system" || !has_system_role => {
            let text = first.text().into_owned();
            let joined = match first.role.as_str() {
                "system" => format!("{text}\n\n{explanation}"),
                _ => format!("{explanation}\n\n{text}"),
            };
            *first = changed(first, joined);
        }
        _ => messages.insert(0, Message::new("system", explanation)),
    }
}

fn explanation(tools: &[Tool]) -> String {
    let list: Vec<&str> = tools.iter().map(Tool::definition).collect();
    format!(
        "# Tools\n\n\
        To answer the user, these functions can be called; each is described by a JSON Schema:\n\
        <tools>\n{}\n</tools>\n\n\
        To call a function, write a JSON object with its name and its arguments between <tool_call> tags:\n\
        <tool_call>\n{{\"name\": \"FUNCTION\", \"arguments\": {{\"PARAMETER\": \"VALUE\"}}}}\n</tool_call>\n\
        The results are returned between <tool_response> tags.",
        list.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ToolCall;

    #[test]
    fn tools_become_text() {
        let call = ToolCall { id: None, name: "add".into(), arguments: "{\"a\": 1}".into() };
        let messages = [
            Message::new("user", "1 + 1?"),
            Message { tool_calls: vec![call.clone(), call], ..Message::new("assistant", "") },
            Message::tool_result("1", "2"),
            Message::tool_result("2", "two"),
        ];
        let tool = Tool::new("add", "Adds.", "{}").unwrap();
        let shown = with_tools(&messages, &[tool], true);
        let roles: Vec<&str> = shown.iter().map(|message| message.role.as_str()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "user"]);
        assert!(shown[0].text().contains(r#"{"name": "add", "description": "Adds.", "parameters": {}}"#));
        assert_eq!(
            shown[2].text().matches("<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}").count(),
            2
        );
        assert!(shown[2].tool_calls.is_empty());
        assert_eq!(
            shown[3].text(),
            "<tool_response>\n2\n</tool_response>\n<tool_response>\ntwo\n</tool_response>"
        );
        let merged = with_tools(&messages[..1], &[Tool::new("add", "", "{}").unwrap()], false);
        assert_eq!(merged.len(), 1);
        assert!(merged[0].text().starts_with("# Tools") && merged[0].text().ends_with("\n\n1 + 1?"));
    }
}
