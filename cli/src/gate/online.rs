//! `siskin gate --online`: whether a canary may get more requests.

use crate::output;
use serde_json::json;
use siskin::{Error, ErrorKind, Result};
use siskin_serve::online_gate::{
    OnlineGate, OnlineGateOptions, OnlineReport, OnlineVerdict, disable_traffic,
};
use std::path::PathBuf;
use std::time::Duration;

/// Options for running servers.
#[derive(clap::Args)]
pub(super) struct OnlineArgs {
    /// Compare the metrics of two running servers, such as http://127.0.0.1:8081 http://127.0.0.1:8084, until it is clear
    /// whether the canary fails more often or is slower: exits with 0 if it does not, with 1 if it does, and with 2 if
    /// there were too few requests to tell
    #[arg(long, num_args = 2, value_names = ["STABLE_URL", "CANARY_URL"], help_heading = "Running servers")]
    online: Vec<String>,
    /// Socket of HAProxy, with the level admin: a canary that is worse gets no further requests
    #[arg(
        long,
        value_name = "PATH",
        requires = "online",
        requires = "server",
        help_heading = "Running servers"
    )]
    haproxy_socket: Option<PathBuf>,
    /// The canary in the configuration of HAProxy
    #[arg(
        long,
        value_name = "BACKEND/SERVER",
        requires = "haproxy_socket",
        help_heading = "Running servers"
    )]
    server: Option<String>,
    /// Compare only requests to this model; default: all
    #[arg(long, value_name = "NAME", requires = "online", help_heading = "Running servers")]
    model: Option<String>,
    /// Maximum increase of the share of failed requests in percentage points
    #[arg(
        long,
        default_value_t = 1.0,
        value_name = "POINTS",
        requires = "online",
        help_heading = "Running servers"
    )]
    max_error_increase: f64,
    /// Maximum increase of the share of requests that are slower than p95 of the stable server, in percentage points
    #[arg(
        long,
        default_value_t = 5.0,
        value_name = "POINTS",
        requires = "online",
        help_heading = "Running servers"
    )]
    max_slow_increase: f64,
    /// Time after which the comparison ends undecided
    #[arg(
        long,
        default_value_t = 600,
        value_name = "SECONDS",
        requires = "online",
        help_heading = "Running servers"
    )]
    max_time: u64,
}

impl OnlineArgs {
    pub(super) fn is_given(&self) -> bool {
        !self.online.is_empty()
    }
}

pub(super) fn command(args: &OnlineArgs, is_json: bool, quiet: bool) -> Result<()> {
    let [stable, canary] = args.online.as_slice() else {
        return Err(Error::argument("--online", "expected two URLs"));
    };
    let options = OnlineGateOptions {
        model: args.model.clone(),
        max_error_increase: args.max_error_increase / 100.0,
        max_slow_increase: args.max_slow_increase / 100.0,
        max_time: Duration::from_secs(args.max_time),
        ..OnlineGateOptions::default()
    };
    let gate = OnlineGate::new(stable, canary, options)?;
    // Not the exit code of a worse canary.
    let undecided = |error: Error| Error::argument("--online", error.to_string());
    let report = gate.run(&mut |_| {}).map_err(undecided)?;
    let is_worse = report.verdict() == OnlineVerdict::Regression;
    let disabled = match (&args.haproxy_socket, &args.server) {
        (Some(socket), Some(server)) if is_worse => Some(disable_traffic(socket, server)),
        _ => None,
    };
    print(&report, matches!(disabled, Some(Ok(()))), is_json)?;
    if let (Some(Ok(())), Some(server)) = (&disabled, &args.server) {
        output::note(quiet, format!("{server} gets no further requests"));
    }
    disabled.transpose()?;
    match report.verdict() {
        OnlineVerdict::Passed => Ok(()),
        OnlineVerdict::Regression => {
            Err(Error::new(ErrorKind::Numeric, "gate", "the canary is worse than the stable server"))
        }
        // The exit code of arguments: a longer time would help.
        OnlineVerdict::Undecided => Err(Error::argument(
            "--max-time",
            format!("no decision within {} s: the canary had too few requests", args.max_time),
        )),
    }
}

fn print(report: &OnlineReport, is_disabled: bool, is_json: bool) -> Result<()> {
    if !is_json {
        return output::write(&report.text());
    }
    let mut object = report.to_json();
    object["traffic_disabled"] = json!(is_disabled);
    output::json(&object)
}
