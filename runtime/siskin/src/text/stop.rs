//! Stop strings in streamed text.

use crate::{Error, Result};

/// The maximum total length of all stop strings, in bytes.
const MAX_STOP_BYTES: usize = 1 << 16;
const ROOT: usize = 0;

/// Finds stop strings in a stream of text, across the boundaries of its pieces.
///
/// Text is returned as soon as it can no longer belong to a stop string. Of several matches the one that ends first
/// counts, and of those that end together the longest. The time per byte does not depend on the number or length of the
/// stop strings, and no more text is held back than the longest of them.
///
/// ```
/// use siskin::text::StopStrings;
///
/// let (mut stops, mut text) = (StopStrings::new(&["\nUser:"])?, String::new());
/// assert!(!stops.push("Hello\nUs", &mut text));
/// assert_eq!(text, "Hello");
/// assert!(stops.push("er: and more", &mut text));
/// assert_eq!(text, "Hello");
/// # Ok::<(), siskin::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct StopStrings {
    /// The trie of the Aho–Corasick automaton, one node per prefix of a stop string; the root is the empty prefix.
    nodes: Vec<Node>,
    node: usize,
    /// The text that is held back.
    pub(super) held: String,
    hit: Option<usize>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    /// Sorted by byte.
    children: Vec<(u8, usize)>,
    depth: usize,
    /// The failure link: the node of the longest proper suffix of this prefix that is also a prefix.
    shorter: usize,
    /// The longest stop string that is a suffix of this prefix: its length and its index.
    stop: Option<(usize, usize)>,
}

impl StopStrings {
    /// Creates a matcher.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if a stop string is empty or they are too long.
    pub fn new(stops: &[impl AsRef<str>]) -> Result<Self> {
        let mut nodes = vec![Node::default()];
        let mut room = MAX_STOP_BYTES;
        for (index, stop) in stops.iter().enumerate() {
            let stop = stop.as_ref();
            if stop.is_empty() {
                return Err(Error::argument(format!("stop[{index}]"), "empty; leave it out"));
            }
            room = room.checked_sub(stop.len()).ok_or_else(|| {
                let message = format!("too long; at most {MAX_STOP_BYTES} bytes in total are supported");
                Error::argument(format!("stop[{index}]"), message)
            })?;
            insert(&mut nodes, stop, index);
        }
        link(&mut nodes);
        Ok(Self { nodes, node: ROOT, held: String::new(), hit: None })
    }

    /// Processes the next piece of text, and appends the text that cannot belong to a stop string to `output`. Returns
    /// whether a stop string was found; the text after it is dropped.
    pub fn push(&mut self, text: &str, output: &mut String) -> bool {
        if self.hit.is_some() {
            return true;
        }
        let before = self.held.len();
        self.held.push_str(text);
        for (offset, byte) in text.bytes().enumerate() {
            self.node = step(&self.nodes, self.node, byte);
            if let Some((length, index)) = self.nodes[self.node].stop {
                self.hit = Some(index);
                let end = before + offset + 1;
                output.push_str(&self.held[..end - length]);
                self.held.clear();
                return true;
            }
        }
        // Prefixes of stop strings begin at a character boundary.
        let ready = self.held.len() - self.nodes[self.node].depth;
        output.push_str(&self.held[..ready]);
        self.held.drain(..ready);
        false
    }

    /// Ends the text: appends the text that was held back to `output`.
    pub fn finish(&mut self, output: &mut String) {
        output.push_str(&self.held);
        self.held.clear();
        self.node = ROOT;
    }

    /// Returns the index of the stop string that was found.
    pub fn hit(&self) -> Option<usize> {
        self.hit
    }

    /// Resets the matcher for a new text.
    pub fn reset(&mut self) {
        self.held.clear();
        self.node = ROOT;
        self.hit = None;
    }
}

fn child(nodes: &[Node], node: usize, byte: u8) -> Option<usize> {
    let children = &nodes[node].children;
    children.binary_search_by_key(&byte, |(byte, _)| *byte).ok().map(|place| children[place].1)
}

fn insert(nodes: &mut Vec<Node>, stop: &str, index: usize) {
    let mut node = ROOT;
    for byte in stop.bytes() {
        let added = nodes.len();
        let depth = nodes[node].depth + 1;
        let children = &mut nodes[node].children;
        node = match children.binary_search_by_key(&byte, |(byte, _)| *byte) {
            Ok(place) => children[place].1,
            Err(place) => {
                children.insert(place, (byte, added));
                nodes.push(Node { depth, ..Node::default() });
                added
            }
        };
    }
    nodes[node].stop.get_or_insert((stop.len(), index));
}

/// Computes the failure links and inherited `stop`, in breadth-first order.
fn link(nodes: &mut [Node]) {
    let mut queue = vec![ROOT];
    let mut next = 0;
    while let Some(&parent) = queue.get(next) {
        next += 1;
        for place in 0..nodes[parent].children.len() {
            let (byte, node) = nodes[parent].children[place];
            queue.push(node);
            if parent != ROOT {
                let shorter = step(nodes, nodes[parent].shorter, byte);
                nodes[node].shorter = shorter;
                nodes[node].stop = nodes[node].stop.or(nodes[shorter].stop);
            }
        }
    }
}

fn step(nodes: &[Node], mut node: usize, byte: u8) -> usize {
    loop {
        if let Some(next) = child(nodes, node, byte) {
            return next;
        }
        if node == ROOT {
            return ROOT;
        }
        node = nodes[node].shorter;
    }
}
