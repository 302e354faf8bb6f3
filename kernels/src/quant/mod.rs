//! Block codecs of the GGUF weight types.
