//! Batched tokenization of documents.

use rayon::prelude::*;
use siskin_format::{Error, Result};
use siskin_tokenizer::{EncodeOptions, EncodeScratch, TokenSpan, Tokenizer};

use super::records::{Sink, TokenizedDocument};
use super::source::{Body, Document, Documents};

/// The maximum number of documents per chunk.
const CHUNK: usize = 256;
/// Bytes of text at which a chunk is full.
const CHUNK_BYTES: usize = 1 << 22;

/// How text is tokenized.
#[derive(Clone, Copy, Debug)]
pub struct DocumentTokenizer<'a> {
    /// The model's tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// The number of threads; 0 for the shared thread pool, one thread per core.
    pub threads: usize,
    /// Whether special tokens spelled out in the text are parsed. Leave it off for untrusted text.
    pub parse_special: bool,
}

impl DocumentTokenizer<'_> {
    /// Passes the records of documents to `sink`, in order for any number of threads, and returns their number.
    /// Special tokens are not added.
    ///
    /// The texts of at most 2 × 256 documents, or of 2 × 4 MiB and two documents if that is less, are in memory.
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

    fn chunk(&self, documents: &[Document]) -> Result<Vec<TokenizedDocument>> {
        documents
            .par_iter()
            .map_init(Default::default, |(scratch, tokens), document| self.record(document, scratch, tokens))
            .collect()
    }

    fn record(
        &self,
        document: &Document,
        scratch: &mut EncodeScratch,
        tokens: &mut Vec<TokenSpan>,
    ) -> Result<TokenizedDocument> {
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
        Ok(TokenizedDocument { parts, label: document.label, hash: document.hash() })
    }
}

/// Returns the next chunk of documents; empty at the end.
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
