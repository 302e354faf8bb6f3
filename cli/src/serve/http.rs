//! `siskin serve`: the HTTP server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::model_arg::ServedModelArg;
use super::{Args, MetricNames};
use crate::options::{OpenArgs, SamplerArgs};
use crate::{interrupt, output};
use siskin::serving::{Admission, DiskCacheOptions, SchedulingOptions, ServedModelOptions};
use siskin::{Error, KvBudget, Model, Result};
use siskin_serve::{
    AccessLog, ApiKeys, DriftBaseline, OperationLog, ServedModel, Server, ServerOptions, TlsFiles,
};

/// How long a request stays whose client does not read.
const PAUSE_LIMIT: Duration = Duration::from_secs(30);

/// How many rows of a pass can have logits: prompts are scored in chunks of this size.
const OUTPUT_ROWS: usize = 64;

/// Answers requests until the program is interrupted.
pub(super) fn run(served: &[ServedModelArg], args: &Args, open: &OpenArgs) -> Result<()> {
    let options = ServerOptions {
        address: SocketAddr::new(args.host, args.port),
        threads: args.model_args.threads,
        api_keys: args.api_key_file.as_ref().map(ApiKeys::read).transpose()?.map(Arc::new),
        allows_anyone: args.insecure,
        allowed_hosts: args.allow_host.clone(),
        allowed_origins: args.allow_origin.clone(),
        access_log: args.log_requests.then(|| AccessLog::new(|line| output::to_stderr(line))),
        operation_log: Some(OperationLog::new(|message| output::to_stderr(message))),
        aliases: args.aliases.clone(),
        agent_check: args.agent_check,
        quality_sample: args.quality_sample,
        integrity_interval: Some(Duration::from_secs(args.self_test_interval.saturating_mul(60))),
        degrade_after: args.degrade_after.map(Duration::from_secs),
        fallback: args.fallback.clone(),
        tls: tls_files(args),
        has_vllm_metric_names: args.metrics_names == MetricNames::Vllm,
        inherits_socket: true,
        drain_delay: Duration::from_secs(args.drain_delay),
        memory_budget: args.memory_budget.map(|megabytes| megabytes.saturating_mul(1 << 20)),
        max_tokens: args.max_tokens.unwrap_or(usize::MAX),
        ..ServerOptions::default()
    };
    options.check()?;
    if served.len() > 1 && !args.lora.is_empty() {
        let message = "with several models it is not clear which of them an adapter belongs to; serve one";
        return Err(Error::argument("--lora", message));
    }
    if served.len() > 1 && args.draft.is_given() {
        return Err(Error::argument("--draft-model, --draft-skip-layers", "require exactly one model"));
    }
    let mut models = Vec::new();
    let baselines = drift_baselines(args, served)?;
    for ServedModelArg { name, version, path } in served {
        let model = open.model_with_adapters(path, &args.model_args, &args.lora)?;
        let mut served = ServedModel::new(name, model);
        served.options = served_model_options(args, args.draft.open(path, &args.model_args, open)?)?;
        served.version = version.clone().unwrap_or(served.version);
        served.drift_baseline = baselines.iter().find(|(of, _)| of == name).map(|(_, read)| read.clone());
        models.push(served);
    }
    let names = |model: &ServedModel| {
        let adapters = model.model.adapters().map(str::to_owned);
        std::iter::once(model.name.clone()).chain(adapters).collect::<Vec<_>>()
    };
    let names: Vec<_> = models.iter().flat_map(names).collect();
    let server = Server::bind(&options, models)?;
    let shutdown = server.shutdown_handle();
    interrupt::listen_with(move || shutdown.shut_down())?;
    let note = format!("serving {} on {}", names.join(", "), server.url());
    output::note(open.quiet, note);
    server.run()
}

fn tls_files(args: &Args) -> Option<TlsFiles> {
    let (certificates, key) = (args.tls_certificates.clone()?, args.tls_key.clone()?);
    Some(TlsFiles { certificates, key })
}

/// Reads the files of --drift-baseline, with the names of their models.
fn drift_baselines(args: &Args, served: &[ServedModelArg]) -> Result<Vec<(String, DriftBaseline)>> {
    let read = |text: &String| {
        let is_model = |name: &str| served.iter().any(|model| model.name == name);
        match (text.split_once('=').filter(|(name, _)| is_model(name)), served) {
            (Some((name, path)), _) => Ok((name.to_owned(), DriftBaseline::read(path)?)),
            (None, [model]) => Ok((model.name.clone(), DriftBaseline::read(text)?)),
            (None, _) => Err(Error::argument(
                "--drift-baseline",
                "expected NAME=FILE, with the name of a served model",
            )),
        }
    };
    args.drift_baseline.iter().map(read).collect()
}

fn served_model_options(args: &Args, draft: Option<Model>) -> Result<ServedModelOptions> {
    if args.parallel == 0 {
        return Err(Error::argument("--parallel", "must be at least 1"));
    }
    let kv_budget = args.kv_memory.map(|megabytes| KvBudget { bytes: megabytes.saturating_mul(1 << 20) });
    Ok(ServedModelOptions {
        session: args.context.session(&args.model_args, &SamplerArgs::default(), &[])?,
        kv_budget,
        output_rows: OUTPUT_ROWS,
        draft,
        disk_cache: args.prefix_cache_dir.clone().map(|folder| DiskCacheOptions {
            folder,
            max_bytes: args.prefix_cache_size.saturating_mul(1 << 20),
        }),
        scheduling: SchedulingOptions {
            max_running: args.parallel,
            max_waiting: args.max_waiting,
            max_sessions: 0,
            admission: Admission::Overcommit,
            decode_budget: Duration::from_millis(args.decode_budget),
            pause_limit: PAUSE_LIMIT,
            ..SchedulingOptions::default()
        },
    })
}
