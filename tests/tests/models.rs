//! Tests of models: one program, since each contains the whole runtime.

mod adapters;
mod audio;
mod configurations;
mod diagnostics;
mod embeddings;
mod encoders;
mod expert_pages;
mod gguf_readers;
mod gradients;
mod http;
mod http_chat;
mod http_load;
mod http_tasks;
mod kv_cache_types;
mod layers;
mod onnx;
mod onnx_hostile;
mod real_models;
mod request_adapters;
mod routers;
mod search;
mod serving;
mod sessions;
mod speech;
mod trainer_data;
mod training;
