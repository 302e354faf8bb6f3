//! Documents to tokens, many at a time.

use rayon::prelude::*;
use siskin::tokenizer::{EncodeOptions, Scratch, Token, Tokenizer};
use siskin::{Error, Result};

use super::records::{Record, Sink};
use super::source::{Body, Document, Documents};

/// Documents that are taken at once, at most.
const CHUNK: usize = 256;
/// Bytes of text beyond which no further document is taken.
const CHUNK_BYTES: usize = 1 << 22;

/// How texts become tokens.
#[derive(Clone, Copy, Debug)]
pub struct Tokenising<'a> {
    /// The model's tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// Threads that work; 0 for those that are there already, one for each core.
    pub threads: usize,
    /// Whether control tokens that are spelt out in texts become these tokens. Leave it off for texts from strangers.
    pub parse_special: bool,
}

impl Tokenising<'_> {
    /// Gives the records of documents to `sink`, in the order of the documents whatever the number of threads, and
    /// returns how many there were. Special tokens are not added.
    ///
    /// In memory are the texts of 2 × 256 documents, or of 2 × 4 MiB and two documents where those are fewer.
    pub fn run(&self, documents: Documents, sink: &mut dyn Sink) -> Result<u64> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(self.threads);
        let pool = match self.threads {
            0 => None,
            _ => Some(pool.build().map_err(|error| Error::argument("threads", error.to_string()))?),
        };
        let mut documents = documents;
        let mut chunk = gather(&mut documents)?;
        let mut count = 0;
        while !chunk.is_empty() {
            let mut step = || rayon::join(|| gather(&mut documents), || self.chunk(&chunk));
            let (next, records) = match &pool {
                Some(pool) => pool.install(step),
                None => step(),
            };
            for (record, document) in records?.iter().zip(&chunk) {
                sink.push(record).map_err(|error| error.within(&document.place))?;
                count += 1;
            }
            chunk = next?;
        }
        Ok(count)
    }

    fn chunk(&self, documents: &[Document]) -> Result<Vec<Record>> {
        documents
            .par_iter()
            .map_init(Default::default, |(scratch, tokens), document| self.record(document, scratch, tokens))
            .collect()
    }

    fn record(&self, document: &Document, scratch: &mut Scratch, tokens: &mut Vec<Token>) -> Result<Record> {
        let options = EncodeOptions { add_special: false, parse_special: self.parse_special };
        let parts = match &document.body {
            Body::Tokens(parts) => parts.clone(),
            Body::Texts(texts) => {
                let encode = |text: &String| {
                    let done = self.tokenizer.encode_into(text, options, scratch, tokens);
                    done.map_err(|error| error.within(&document.place))?;
                    Ok(tokens.iter().map(|token| token.id).collect())
                };
                texts.iter().map(encode).collect::<Result<_>>()?
            }
        };
        Ok(Record { parts, label: document.label, hash: document.hash() })
    }
}

/// The next documents; none at the end.
fn gather(documents: &mut Documents) -> Result<Vec<Document>> {
    let (mut chunk, mut bytes) = (Vec::new(), 0);
    while chunk.len() < CHUNK && bytes < CHUNK_BYTES {
        let Some(document) = documents.next().transpose()? else { break };
        bytes += match &document.body {
            Body::Texts(texts) => texts.iter().map(String::len).sum::<usize>(),
            Body::Tokens(parts) => parts.iter().map(|part| 4 * part.len()).sum(),
        };
        chunk.push(document);
    }
    Ok(chunk)
}
