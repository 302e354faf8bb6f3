//! Messages in saved sessions.
//!
//! A text is its length (u32) and its bytes; an optional text is preceded by 1, or is only 0 (u32). A message is its role;
//! the parts of its content, a count and their texts; optional texts for its reasoning, the id of a tool call and a name;
//! its tool calls, a count, then an optional id, the name and the arguments of each; and two lists, which are empty for
//! messages that were not generated: the tokens of the content, and the end of each in the content.

use super::conversation::{ConversationMessage, Generated};
use super::saved_bytes::{Reader, put, put_all};
use crate::{Error, Result};
use siskin_chat_template::{ContentPart, Message, ToolCall};

/// Appends a message.
pub(super) fn put_message(out: &mut Vec<u8>, turn: &ConversationMessage) -> Result<()> {
    let ConversationMessage { message, generated } = turn;
    put_text(out, &message.role)?;
    put(out, message.content.len())?;
    message.content.iter().try_for_each(|part| match part {
        ContentPart::Text(text) => put_text(out, text),
        _ => Err(Error::unsupported("session", "only messages of text can be saved")),
    })?;
    for text in [&message.reasoning_content, &message.tool_call_id, &message.name] {
        put_optional(out, text.as_deref())?;
    }
    put(out, message.tool_calls.len())?;
    for ToolCall { id, name, arguments } in &message.tool_calls {
        put_optional(out, id.as_deref())?;
        put_text(out, name)?;
        put_text(out, arguments)?;
    }
    let nothing = Generated::default();
    let Generated { ids, ends } = generated.as_ref().unwrap_or(&nothing);
    put_all(out, ids)?;
    put(out, ends.len())?;
    ends.iter().try_for_each(|&end| put(out, end))
}

fn put_text(out: &mut Vec<u8>, text: &str) -> Result<()> {
    put(out, text.len())?;
    out.extend(text.as_bytes());
    Ok(())
}

fn put_optional(out: &mut Vec<u8>, text: Option<&str>) -> Result<()> {
    put(out, usize::from(text.is_some()))?;
    text.map_or(Ok(()), |text| put_text(out, text))
}

/// Reads a message.
pub(super) fn read_message(reader: &mut Reader<'_>) -> Result<ConversationMessage> {
    let role = reader.text()?.to_owned();
    let mut message = Message { role, ..Message::default() };
    for _ in 0..reader.word()? {
        message.content.push(ContentPart::Text(reader.text()?.to_owned()));
    }
    message.reasoning_content = read_optional(reader)?;
    message.tool_call_id = read_optional(reader)?;
    message.name = read_optional(reader)?;
    for _ in 0..reader.word()? {
        let id = read_optional(reader)?;
        let (name, arguments) = (reader.text()?.to_owned(), reader.text()?.to_owned());
        message.tool_calls.push(ToolCall { id, name, arguments });
    }
    let (ids, ends) = (reader.words()?, reader.words()?);
    let ends: Vec<usize> = ends.into_iter().map(|end| end as usize).collect();
    let text = message.text();
    let fits = ends.iter().all(|&end| text.is_char_boundary(end));
    if ids.len() != ends.len() || !ends.is_sorted() || !fits {
        return Err(Error::corrupt("saved.messages", "tokens do not match their text"));
    }
    drop(text);
    Ok(ConversationMessage { message, generated: (!ids.is_empty()).then_some(Generated { ids, ends }) })
}

fn read_optional(reader: &mut Reader<'_>) -> Result<Option<String>> {
    match reader.word()? {
        0 => Ok(None),
        1 => Ok(Some(reader.text()?.to_owned())),
        _ => Err(Error::corrupt("saved.messages", "expected 0 or 1 before an optional text")),
    }
}
