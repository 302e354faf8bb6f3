//! Responses that later requests refer to, in bounded memory.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;
use siskin::template::Message;

/// The maximum number of responses, and of the bytes of their texts.
const MAX_RESPONSES: usize = 1024;
const MAX_BYTES: usize = 64 << 20;

/// A response and the conversation that it ends.
#[derive(Clone)]
pub(crate) struct StoredResponse {
    /// The name of the API key of its client, which alone sees it.
    pub(crate) client: Option<String>,
    /// All messages, the response included.
    pub(crate) messages: Vec<Message>,
    /// What the request added, as items of the API.
    pub(crate) input_items: Vec<Value>,
    pub(crate) object: Value,
}

/// The last responses, by id.
#[derive(Default)]
pub(crate) struct ResponseStore {
    responses: HashMap<String, (StoredResponse, usize)>,
    /// From the oldest to the newest.
    order: VecDeque<String>,
    bytes: usize,
}

impl ResponseStore {
    /// Adds a response, and removes the oldest ones if there are too many.
    pub(crate) fn insert(&mut self, id: &str, response: StoredResponse) {
        let size = size(&response);
        if size > MAX_BYTES {
            return;
        }
        while self.responses.len() >= MAX_RESPONSES || self.bytes + size > MAX_BYTES {
            let Some(oldest) = self.order.pop_front() else { break };
            self.forget(&oldest);
        }
        self.bytes += size;
        self.responses.insert(id.to_owned(), (response, size));
        self.order.push_back(id.to_owned());
    }

    /// Returns a response of a client.
    pub(crate) fn get(&self, id: &str, client: Option<&str>) -> Option<&StoredResponse> {
        let (response, _) = self.responses.get(id)?;
        (response.client.as_deref() == client).then_some(response)
    }

    /// Removes a response of a client. Returns whether there was one.
    pub(crate) fn remove(&mut self, id: &str, client: Option<&str>) -> bool {
        if self.get(id, client).is_none() {
            return false;
        }
        self.forget(id);
        self.order.retain(|known| known != id);
        true
    }

    fn forget(&mut self, id: &str) {
        if let Some((_, size)) = self.responses.remove(id) {
            self.bytes -= size;
        }
    }
}

fn size(response: &StoredResponse) -> usize {
    let items: usize = response.input_items.iter().map(|item| item.to_string().len()).sum();
    let messages: usize = response.messages.iter().map(|message| message.to_json().to_string().len()).sum();
    items + messages + response.object.to_string().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(client: Option<&str>, length: usize) -> StoredResponse {
        StoredResponse {
            client: client.map(str::to_owned),
            messages: vec![Message::new("user", "x".repeat(length))],
            input_items: Vec::new(),
            object: Value::Null,
        }
    }

    #[test]
    fn the_oldest_responses_are_forgotten() {
        let mut store = ResponseStore::default();
        for index in 0..MAX_RESPONSES + 2 {
            store.insert(&index.to_string(), response(None, 1));
        }
        assert!(store.get("1", None).is_none() && store.get("2", None).is_some());
        store.insert("large", response(None, MAX_BYTES - 1000));
        assert!(store.get("large", None).is_some() && store.bytes <= MAX_BYTES);
        store.insert("too large", response(None, MAX_BYTES));
        assert!(store.get("too large", None).is_none() && store.get("large", None).is_some());
    }

    #[test]
    fn responses_belong_to_their_clients() {
        let mut store = ResponseStore::default();
        store.insert("a", response(Some("one"), 1));
        assert!(store.get("a", None).is_none() && store.get("a", Some("two")).is_none());
        assert!(!store.remove("a", Some("two")) && store.remove("a", Some("one")));
        assert!(store.get("a", Some("one")).is_none() && store.bytes == 0);
    }
}
