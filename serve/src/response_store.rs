//! Responses that later requests refer to, in bounded memory.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use siskin::template::{ContentPart, Message};

/// The maximum number of responses, and of the bytes of their texts.
const MAX_RESPONSES: usize = 1024;
const MAX_BYTES: usize = 64 << 20;

/// A response and the conversation that it ends.
pub(crate) struct StoredResponse {
    /// The name of the API key of its client, which alone sees it.
    pub(crate) client: Option<String>,
    /// All messages, the response included.
    pub(crate) messages: Vec<Message>,
    /// What the request added, as items of the API: their ids and their JSON.
    pub(crate) input_items: Vec<(String, String)>,
    /// The response as JSON.
    pub(crate) object: String,
}

/// The last responses, by id.
#[derive(Default)]
pub(crate) struct ResponseStore {
    responses: HashMap<String, (Arc<StoredResponse>, usize)>,
    /// Ids, from the oldest to the newest.
    order: VecDeque<String>,
    /// By client.
    bytes: HashMap<Option<String>, usize>,
}

impl ResponseStore {
    /// Adds a response. If there are too many, removes the oldest ones of the client that holds the most.
    pub(crate) fn insert(&mut self, id: &str, response: StoredResponse) {
        let size = size(&response);
        if size > MAX_BYTES {
            return;
        }
        while self.responses.len() >= MAX_RESPONSES || self.bytes.values().sum::<usize>() + size > MAX_BYTES {
            if !self.evict() {
                break;
            }
        }
        *self.bytes.entry(response.client.clone()).or_default() += size;
        self.responses.insert(id.to_owned(), (Arc::new(response), size));
        self.order.push_back(id.to_owned());
    }

    /// Returns a response of a client.
    pub(crate) fn get(&self, id: &str, client: Option<&str>) -> Option<Arc<StoredResponse>> {
        let (response, _) = self.responses.get(id)?;
        (response.client.as_deref() == client).then(|| Arc::clone(response))
    }

    /// Removes a response of a client. Returns whether there was one.
    pub(crate) fn remove(&mut self, id: &str, client: Option<&str>) -> bool {
        if self.get(id, client).is_none() {
            return false;
        }
        self.forget(id);
        true
    }

    /// Removes the oldest response of the client that holds the most. Returns whether there was one.
    fn evict(&mut self) -> bool {
        let Some(client) = self.bytes.iter().max_by_key(|(_, bytes)| **bytes).map(|(client, _)| client)
        else {
            return false;
        };
        let is_of_client =
            |id: &&String| self.responses.get(*id).is_some_and(|(response, _)| response.client == *client);
        let Some(id) = self.order.iter().find(is_of_client).cloned() else { return false };
        self.forget(&id);
        true
    }

    fn forget(&mut self, id: &str) {
        let Some((response, size)) = self.responses.remove(id) else { return };
        self.order.retain(|known| known != id);
        if let Some(bytes) = self.bytes.get_mut(&response.client) {
            *bytes -= size;
            if *bytes == 0 {
                self.bytes.remove(&response.client);
            }
        }
    }
}

/// What a response takes besides its texts.
const OVERHEAD: usize = 256;

fn size(response: &StoredResponse) -> usize {
    let items: usize = response.input_items.iter().map(|(id, item)| OVERHEAD + id.len() + item.len()).sum();
    let messages: usize = response.messages.iter().map(message_size).sum();
    OVERHEAD + items + messages + response.object.len()
}

fn message_size(message: &Message) -> usize {
    let calls: usize =
        message.tool_calls.iter().map(|call| OVERHEAD + call.name.len() + call.arguments.len()).sum();
    let text = |part: &ContentPart| match part {
        ContentPart::Text(text) => text.len(),
        _ => OVERHEAD,
    };
    let content: usize = message.content.iter().map(text).sum();
    let reasoning = message.reasoning_content.as_ref().map_or(0, String::len);
    OVERHEAD + content + reasoning + calls
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(client: Option<&str>, length: usize) -> StoredResponse {
        StoredResponse {
            client: client.map(str::to_owned),
            messages: vec![Message::new("user", "x".repeat(length))],
            input_items: Vec::new(),
            object: String::new(),
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
        assert!(store.get("large", None).is_some() && store.bytes.values().sum::<usize>() <= MAX_BYTES);
        store.insert("too large", response(None, MAX_BYTES));
        assert!(store.get("too large", None).is_none() && store.get("large", None).is_some());
    }

    #[test]
    fn responses_belong_to_their_clients() {
        let mut store = ResponseStore::default();
        store.insert("a", response(Some("one"), 1));
        assert!(store.get("a", None).is_none() && store.get("a", Some("two")).is_none());
        assert!(!store.remove("a", Some("two")) && store.remove("a", Some("one")));
        assert!(store.get("a", Some("one")).is_none() && store.bytes.is_empty());
    }

    #[test]
    fn a_client_evicts_its_own_responses_first() {
        let mut store = ResponseStore::default();
        store.insert("mine", response(Some("one"), 1000));
        for index in 0..40 {
            store.insert(&index.to_string(), response(Some("two"), 4 << 20));
        }
        assert!(store.get("mine", Some("one")).is_some());
        assert!(store.get("0", Some("two")).is_none() && store.get("39", Some("two")).is_some());
    }
}
