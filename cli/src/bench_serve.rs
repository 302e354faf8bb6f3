//! `siskin bench-serve`: the latency and throughput of servers under load.

use crate::bench::median;
use crate::output;
use serde_json::{Value, json};
use siskin::{Error, ErrorKind, Result};
use siskin_serve::load::{LatencyTargets, LoadOptions, LoadPlan, LoadReport, Target, Workload};
use std::time::Duration;

/// Measure HTTP servers with the OpenAI API under load
///
/// Prompts, lengths and arrival times depend on the seed and the round alone. Several servers take turns, one round after the
/// other.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Servers, such as http://127.0.0.1:8080
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// Name of the model; default: the first that each server lists
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Kind of requests
    #[arg(long, default_value = "chat", value_name = "NAME", value_parser = workload_names())]
    workload: String,
    /// Number of requests
    #[arg(long, default_value_t = 64, value_name = "N")]
    requests: usize,
    /// Requests per second in the mean, which arrive whatever the server does (open loop); latencies count from the arrival
    #[arg(long, value_name = "N", conflicts_with = "concurrency")]
    rate: Option<f64>,
    /// Number of clients, each of which sends one request after the other (closed loop)
    #[arg(long, default_value_t = 8, value_name = "N")]
    concurrency: usize,
    /// Maximum number of tokens of each text in a prompt; the server needs a context for several of them
    #[arg(long, default_value_t = 2048, value_name = "N")]
    max_prompt: usize,
    /// Maximum number of tokens of a response
    #[arg(long, default_value_t = 512, value_name = "N")]
    max_output: usize,
    /// Let the model end responses; servers then do not generate equally much
    #[arg(long)]
    respect_eos: bool,
    /// Let agents answer with any text instead of JSON
    #[arg(long)]
    no_schema: bool,
    /// Seed of prompts, lengths and arrival times
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Time to the first token that a request must meet to count for the goodput
    #[arg(long, default_value_t = 500, value_name = "MS")]
    first_token_target: u64,
    /// Mean time per further token that a request must meet to count for the goodput
    #[arg(long, default_value_t = 50, value_name = "MS")]
    per_token_target: u64,
    /// Number of rounds; medians are reported
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

fn workload_names() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(Workload::ALL.map(|(name, _)| name))
}

/// The values of a round that are reported, as paths in its JSON, with their names and units.
const LINES: &[(&[&str], &str, &str)] = &[
    (&["generated_tokens_per_s"], "decode", "tokens/s"),
    (&["requests_per_s"], "requests", "per s"),
    (&["goodput_per_s"], "goodput", "per s"),
    (&["first_token_ms", "p50"], "first token, median", "ms"),
    (&["first_token_ms", "p95"], "first token, p95", "ms"),
    (&["first_token_ms", "p99"], "first token, p99", "ms"),
    (&["gap_ms", "p50"], "gap, median", "ms"),
    (&["gap_ms", "p99"], "gap, p99", "ms"),
    (&["gap_ms", "max"], "gap, maximum", "ms"),
    (&["per_token_ms", "p50"], "time per token, median", "ms"),
    (&["total_ms", "p50"], "whole response, median", "ms"),
    (&["total_ms", "p99"], "whole response, p99", "ms"),
    (&["failed"], "failed", "requests"),
];

pub(crate) fn command(args: &Args, quiet: bool) -> Result<()> {
    let options = LoadOptions {
        requests: args.requests,
        rate: args.rate,
        concurrency: args.concurrency,
        max_prompt: args.max_prompt,
        max_output: args.max_output,
        ignore_eos: !args.respect_eos,
        schema: !args.no_schema,
        seed: args.seed,
    };
    let workload = Workload::ALL.iter().find(|(name, _)| *name == args.workload);
    let (_, workload) = workload.ok_or_else(|| Error::argument("--workload", "not a workload"))?;
    if args.no_schema && *workload != Workload::Agents {
        return Err(Error::argument("--no-schema", "no effect without --workload agents"));
    }
    // Each round has prompts of its own, which no server has cached.
    let plan = |round: u16| {
        let options = LoadOptions { seed: options.seed.wrapping_add(round.into()), ..options.clone() };
        LoadPlan::new(*workload, &options)
    };
    let targets = LatencyTargets {
        first_token: Duration::from_millis(args.first_token_target),
        per_token: Duration::from_millis(args.per_token_target),
    };
    let target = |url: &String| Target::new(url, args.model.clone());
    let servers = args.urls.iter().map(target).collect::<Result<Vec<_>>>()?;
    let mut rounds: Vec<Vec<Value>> = vec![Vec::new(); servers.len()];
    let mut succeeded = 0;
    for round in 0..args.rounds {
        let plan = plan(round)?;
        for (server, rounds) in servers.iter().zip(&mut rounds) {
            let report = plan.run(server)?;
            note_failures(&report, quiet);
            succeeded += report.succeeded;
            rounds.push(report.to_json(&targets));
        }
    }
    if args.json {
        print_json(args, &rounds)?
    } else {
        print_tables(args, &rounds)?
    }
    match succeeded {
        0 => Err(Error::new(ErrorKind::Unsupported, "bench-serve", "no request succeeded")),
        _ => Ok(()),
    }
}

/// Prints how many requests failed, and why the first one did.
fn note_failures(report: &LoadReport, quiet: bool) {
    let Some(error) = report.errors.first() else { return };
    let failed = match report.errors.len() {
        1 => "1 request".to_owned(),
        count => format!("{count} requests"),
    };
    output::note(quiet, format!("{failed} failed, the first with: {error}"));
}

fn print_json(args: &Args, rounds: &[Vec<Value>]) -> Result<()> {
    let server = |(url, rounds): (&String, &Vec<Value>)| json!({"url": url, "rounds": rounds});
    let servers: Vec<_> = args.urls.iter().zip(rounds).map(server).collect();
    output::line(json!({"workload": args.workload, "seed": args.seed, "servers": servers}).to_string())
}

/// Prints the median of each value, with the minimum and the maximum of several rounds.
fn print_tables(args: &Args, rounds: &[Vec<Value>]) -> Result<()> {
    let width = LINES.iter().map(|(_, name, _)| name.len()).max().unwrap_or(0);
    for (url, rounds) in args.urls.iter().zip(rounds) {
        output::line(format!("{url}, {}", args.workload))?;
        for (path, name, unit) in LINES {
            let value = |round: &Value| path.iter().fold(round, |value, key| &value[key]).as_f64();
            let mut values: Vec<f64> =
                rounds.iter().filter_map(value).map(|value| output::round(value, 2)).collect();
            values.sort_by(f64::total_cmp);
            let spread = match values.as_slice() {
                [least, .., most] => format!(" ({least} to {most})"),
                _ => String::new(),
            };
            let line = match values.is_empty() {
                true => "-".to_owned(),
                false => format!("{} {unit}{spread}", output::round(median(values), 2)),
            };
            output::line(format!("  {name:<width$}  {line}"))?;
        }
    }
    Ok(())
}
