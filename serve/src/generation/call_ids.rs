//! The ids of tool calls.

use siskin::template::Message;

/// Gives ids to the tool calls of a response.
pub(crate) struct CallIds {
    response: String,
    length: Option<usize>,
}

impl CallIds {
    /// Creates ids that no other response has: of `length` letters and digits if the model requires that.
    pub(crate) fn new(response: &str, length: Option<usize>) -> Self {
        Self { response: response.to_owned(), length }
    }

    /// Sets the ids of the calls of a choice.
    pub(crate) fn assign(&self, choice: usize, message: &mut Message) {
        for (index, call) in message.tool_calls.iter_mut().enumerate() {
            call.id = Some(self.id(choice, index, call.id.as_deref()));
        }
    }

    /// Returns the id of a call: the one that the model gave it, if it did.
    pub(crate) fn id(&self, choice: usize, index: usize, given: Option<&str>) -> String {
        const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        const LENGTH: usize = 24;
        // Short ids that a model gives are not unique in a conversation.
        let is_usable = |id: &&str| self.length.map_or(id.len() >= 8, |length| id.len() == length);
        if let Some(given) = given.filter(is_usable) {
            return given.to_owned();
        }
        let hash = blake3::hash(format!("{}/{choice}/{index}", self.response).as_bytes());
        let letters = hash.as_bytes().iter().map(|&byte| LETTERS[usize::from(byte) % LETTERS.len()] as char);
        match self.length {
            Some(length) => letters.take(length).collect(),
            None => "call_".chars().chain(letters.take(LENGTH)).collect(),
        }
    }
}
