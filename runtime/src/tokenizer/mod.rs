//! Tokenizers: text to ids and back, read from a mapped section.
