//! `siskin serve`: answers requests over HTTP, or as JSON lines with `--stdio`.

mod answers;
mod base64;
mod http;
mod json_lines;
mod model_arg;
mod repository;
mod request;
mod request_queue;
mod stdio;
mod worker;

use crate::draft::DraftArgs;
use crate::lora::LoraArg;
use crate::options::{ContextArgs, ModelArgs, OpenArgs};
use model_arg::ServedModelArg;
use siskin::{Error, Result};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// The names of metrics.
#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum MetricNames {
    Siskin,
    Vllm,
}

/// Serve models over an OpenAI-compatible HTTP API, or as JSON lines with --stdio
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    /// Models: names (see `siskin pull --help`), files or folders. Requests select a model by NAME, or else by its file name without the
    /// extension. A number as file name, as in models/NAME/3.siskin, is the version of the model NAME
    #[arg(required_unless_present = "models_dir", value_name = "[NAME=]MODEL")]
    models: Vec<ServedModelArg>,
    /// Directory with further models, which clients with an admin key can load and unload while the server runs. The names
    /// are those of the files and folders; of folders with numbered files, as in NAME/3.siskin, the highest version is loaded
    #[arg(long, value_name = "DIR", help_heading = "HTTP")]
    models_dir: Option<PathBuf>,
    /// Address to listen on; one that other machines reach, such as 0.0.0.0, requires --api-key-file
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS", value_parser = address, help_heading = "HTTP")]
    host: IpAddr,
    /// Port to listen on; 0 means any free one
    #[arg(short, long, default_value_t = 8080, value_name = "N", help_heading = "HTTP")]
    port: u16,
    /// File with the API keys that clients need, as `siskin api-key` makes them
    #[arg(long, value_name = "FILE", help_heading = "HTTP")]
    api_key_file: Option<PathBuf>,
    /// Let other machines use the server without API keys
    #[arg(long, conflicts_with = "api_key_file", help_heading = "HTTP")]
    insecure: bool,
    /// Host name by which clients without API keys may address the server, besides localhost; repeatable
    #[arg(long, value_name = "NAME", help_heading = "HTTP")]
    allow_host: Vec<String>,
    /// Origin of web pages that may use the server (CORS), such as https://app.example; repeatable
    #[arg(long, value_name = "ORIGIN", value_parser = origin, help_heading = "HTTP")]
    allow_origin: Vec<String>,
    /// Print a line about each request to standard error, as JSON: id, client, route, status, bytes and seconds, no texts
    #[arg(long, help_heading = "HTTP")]
    log_requests: bool,
    /// File with further names of models, as JSON or TOML: {"chat": "smollm2-v2"}. A file that replaces it is used within a
    /// second, unless it is not valid
    #[arg(long, value_name = "FILE", help_heading = "HTTP")]
    aliases: Option<PathBuf>,
    /// Address and port for agent checks of HAProxy, which say how many requests the server wants: fewer when requests fail
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "HTTP")]
    agent_check: Option<SocketAddr>,
    /// Share of the responses, such as 0.01, that are scored again when nothing else runs, for the metrics of quality
    /// (perplexity, entropy, repetition); texts are not kept
    #[arg(long, default_value_t = 0.0, value_name = "SHARE", value_parser = share, help_heading = "HTTP")]
    quality_sample: f64,
    /// Baseline from `siskin drift-baseline`, which enables drift metrics; repeatable. With several models, NAME is required
    #[arg(long, value_name = "[NAME=]FILE", help_heading = "HTTP")]
    drift_baseline: Vec<String>,
    /// Interval between self-tests, which compare each model's outputs with its recorded goldens, or with those at startup, in
    /// minutes; 0 disables them
    #[arg(long, default_value_t = 60, value_name = "MINUTES", help_heading = "HTTP")]
    self_test_interval: u64,
    /// Shed load when the predicted queue time exceeds SECONDS: first disable speculative decoding; at twice, 4, 8 and 16
    /// times as long also defer low-priority requests, shorten responses, use --fallback, and reject requests. Default: off
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86400), help_heading = "HTTP")]
    degrade_after: Option<u64>,
    /// Model that answers requests with `allow_fallback` when the queue is too long
    #[arg(long, value_name = "NAME", requires = "degrade_after", help_heading = "HTTP")]
    fallback: Option<String>,
    /// Certificates for TLS in a PEM file: that of the server first; needs a build with the feature `tls`
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = "HTTP")]
    tls_certificates: Option<PathBuf>,
    /// Private key of the certificate in a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_certificates", help_heading = "HTTP")]
    tls_key: Option<PathBuf>,
    /// Names of the metrics: `vllm` adds those that autoscalers and gateways for vLLM read
    #[arg(long, value_enum, default_value_t = MetricNames::Siskin, value_name = "NAMES", help_heading = "HTTP")]
    metrics_names: MetricNames,
    /// How long further requests are answered after SIGTERM, in seconds, so that load balancers notice that the server is
    /// not ready; then running ones have 30 seconds to end
    #[arg(long, default_value_t = 0, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=3600), help_heading = "HTTP")]
    drain_delay: u64,
    /// LoRA adapter that requests select by its name, as if it were a model; repeatable. The name defaults to that of the
    /// file or folder
    #[arg(long, value_name = "[NAME=]PATH", group = "adapters", conflicts_with_all = ["stdio", "adapter"], help_heading = "HTTP")]
    lora: Vec<LoraArg>,
    /// Maximum number of concurrently running requests per model
    #[arg(long, default_value_t = 16, value_name = "N", help_heading = "HTTP")]
    parallel: usize,
    /// Maximum number of queued requests per model; further requests get status 429
    #[arg(long, default_value_t = 256, value_name = "N", help_heading = "HTTP")]
    max_waiting: usize,
    /// How long a forward pass may take while responses are being generated, in milliseconds, twice as long with tokens of
    /// short or late prompts: more speeds up prompts beside them, and widens the gaps between their tokens
    #[arg(long, default_value_t = 15, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..), help_heading = "HTTP")]
    decode_budget: u64,
    /// Memory for the KV cache of each model in MiB; default: enough for --parallel requests of the maximum length
    #[arg(long, value_name = "MIB", help_heading = "HTTP")]
    kv_memory: Option<usize>,
    /// Memory for the KV caches and activations of all models in MiB; the server does not start with models that need more.
    /// Model files are mapped, and do not count
    #[arg(long, value_name = "MIB", help_heading = "HTTP")]
    memory_budget: Option<usize>,
    /// Directory for prefixes that leave the prefix cache, where later requests and later runs of the server find them. Its
    /// files contain the tokens of prompts and responses
    #[arg(long, value_name = "DIR", help_heading = "HTTP")]
    prefix_cache_dir: Option<PathBuf>,
    /// Maximum size of --prefix-cache-dir in MiB; the least recently used prefixes are removed
    #[arg(long, default_value_t = 4096, value_name = "MIB", requires = "prefix_cache_dir", value_parser = clap::value_parser!(u64).range(1..), help_heading = "HTTP")]
    prefix_cache_size: u64,
    /// Read requests from standard input and write responses to standard output, one JSON object per line
    #[arg(long, conflicts_with_all = ["models_dir", "host", "port", "parallel", "max_waiting", "decode_budget", "kv_memory", "memory_budget", "prefix_cache_dir", "api_key_file", "insecure", "allow_host", "allow_origin", "log_requests", "aliases", "agent_check", "quality_sample", "drift_baseline", "self_test_interval", "degrade_after", "fallback", "metrics_names", "tls_certificates", "drain_delay"], help_heading = "JSON lines")]
    stdio: bool,
    /// Maximum size of a request in bytes: longer requests are rejected. Also the capacity of the request queue in
    /// bytes
    #[arg(long, default_value_t = 16 << 20, value_name = "BYTES", requires = "stdio", help_heading = "JSON lines")]
    max_request_bytes: usize,
    /// Upper limit for max_tokens in every request
    #[arg(long, value_name = "N")]
    max_tokens: Option<usize>,
    #[command(flatten)]
    draft: DraftArgs,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    model_args: ModelArgs,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    match args.models.as_slice() {
        _ if args.stdio && args.draft.is_given() => {
            Err(Error::argument("--draft-model, --draft-skip-layers", "no effect with --stdio"))
        }
        [model] if args.stdio => stdio::run(&model.path, args, open),
        _ if args.stdio => Err(Error::argument("--stdio", "takes a single model")),
        models => http::run(models, args, open),
    }
}

/// Parses the origin of a web page.
fn origin(text: &str) -> std::result::Result<String, String> {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '*', '?', '#', '@'])) {
        true => Ok(text.to_owned()),
        false => Err("expected a scheme and a host, such as https://app.example".to_owned()),
    }
}

/// Parses a number from 0 to 1.
fn share(text: &str) -> std::result::Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

/// Parses an address to listen on.
fn address(text: &str) -> std::result::Result<IpAddr, String> {
    if text == "localhost" {
        return Ok(IpAddr::from([127, 0, 0, 1]));
    }
    text.parse().map_err(|_| "expected an IP address, such as 127.0.0.1 or ::1".to_owned())
}
