//! Stop strings, found while the text streams.

use crate::{Error, Result};

/// The longest that all stop strings together may be, in bytes.
const LONGEST: usize = 1 << 16;
const ROOT: usize = 0;

/// Finds stop strings in a stream of text, wherever the pieces are cut.
///
/// Text is handed on as soon as it cannot belong to a stop string any more. Where several could match, the
/// one that ends first does, and of those that end together the longest. The time to match a byte does not
/// depend on the number or length of the stop strings, and no more text is held than the longest of them.
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
    /// One for each beginning of a stop string (Aho-Corasick); the root is the empty one.
    nodes: Vec<Node>,
    node: usize,
    /// The text since the last character handed on.
    pub(super) held: String,
    hit: Option<usize>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    /// Sorted by byte.
    children: Vec<(u8, usize)>,
    depth: usize,
    /// The node of the longest other beginning that this one ends with.
    shorter: usize,
    /// The longest stop string that this beginning ends with: its length and its place in the list.
    stop: Option<(usize, usize)>,
}

impl StopStrings {
    /// A matcher at the beginning of the text.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) when a stop string is empty or they are too
    /// long.
    pub fn new(stops: &[impl AsRef<str>]) -> Result<Self> {
        let mut nodes = vec![Node::default()];
        let mut room = LONGEST;
        for (index, stop) in stops.iter().enumerate() {
            let stop = stop.as_ref();
            if stop.is_empty() {
                return Err(Error::argument(format!("stop[{index}]"), "is empty; leave it out"));
            }
            room = room.checked_sub(stop.len()).ok_or_else(|| {
                let message = format!("is too long; give at most {LONGEST} bytes in all");
                Error::argument(format!("stop[{index}]"), message)
            })?;
            insert(&mut nodes, stop, index);
        }
        link(&mut nodes);
        Ok(Self { nodes, node: ROOT, held: String::new(), hit: None })
    }

    /// Takes the next text, and appends to `output` what cannot belong to a stop string. Returns whether
    /// the text has come to a stop string; what follows one is dropped.
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
        // Beginnings of stop strings begin with a whole character.
        let ready = self.held.len() - self.nodes[self.node].depth;
        output.push_str(&self.held[..ready]);
        self.held.drain(..ready);
        false
    }

    /// Ends the text: appends what was held to `output`.
    pub fn finish(&mut self, output: &mut String) {
        output.push_str(&self.held);
        self.held.clear();
        self.node = ROOT;
    }

    /// Which stop string the text came to.
    pub fn hit(&self) -> Option<usize> {
        self.hit
    }

    /// Goes back to the beginning of a text.
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

/// Fills in `shorter` and inherited `stop`, nearest to the root first.
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
