//! `siskin serve`: the HTTP server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::model_arg::ServedModelArg;
use super::repository::FileRepository;
use super::{Args, MetricNames};
use crate::options::OpenArgs;
use crate::{interrupt, output};
use siskin::{Error, Result};
use siskin_serve::{AccessLog, ApiKeys, OperationLog, ServedModel, Server, ServerOptions, TlsFiles};

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
    if args.models_dir.is_some() && !options.api_keys.as_ref().is_some_and(|keys| keys.has_admin()) {
        let message = "needs --api-key-file with a key that may load models: siskin api-key NAME --admin";
        return Err(Error::argument("--models-dir", message));
    }
    if served.len() > 1 && !args.lora.is_empty() {
        let message = "with several models it is not clear which of them an adapter belongs to; serve one";
        return Err(Error::argument("--lora", message));
    }
    if served.len() > 1 && args.draft.is_given() {
        return Err(Error::argument("--draft-model, --draft-skip-layers", "require exactly one model"));
    }
    let repository = Arc::new(FileRepository::new(served, args, open)?);
    let models = served.iter().map(|arg| repository.open_arg(arg)).collect::<Result<Vec<_>>>()?;
    let options = ServerOptions { repository: Some(repository), ..options };
    let names = |model: &ServedModel| {
        let adapters = model.model.adapters().map(str::to_owned);
        std::iter::once(model.name.clone()).chain(adapters).collect::<Vec<_>>()
    };
    let names: Vec<_> = models.iter().flat_map(names).collect();
    let server = Server::bind(&options, models)?;
    let shutdown = server.shutdown_handle();
    interrupt::listen_with(move || shutdown.shut_down())?;
    let names = if names.is_empty() { "no models yet".to_owned() } else { names.join(", ") };
    let note = format!("serving {names} on {}", server.url());
    output::note(open.quiet, note);
    server.run()
}

fn tls_files(args: &Args) -> Option<TlsFiles> {
    let (certificates, key) = (args.tls_certificates.clone()?, args.tls_key.clone()?);
    Some(TlsFiles { certificates, key })
}
