//! `ops-test`: the HTTP server in operation, with a load balancer and monitoring.

use super::bench_peers::peers;
use super::model;
use super::serve::run_script;
use crate::Subcommand;
use crate::shell::{Result, program, root, run};
use crate::tools;
use std::path::PathBuf;

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "ops-test",
    usage: "",
    about: "run replicas of the HTTP server behind HAProxy, kill one under load, and add a canary that fails; check the alerts and their tests",
    run: |_| check(&need_tools()?),
};

const LOAD_BALANCER: &str = "serve/tests/operations/load_balancer.py";
const CANARY: &str = "serve/tests/operations/canary.py";
const ALERTS: &str = "deploy/prometheus/alerts.yaml";
const ALERT_TESTS: &str = "deploy/prometheus/alerts_test.yaml";

/// What the tests need.
pub(super) struct OperationTools {
    python: PathBuf,
    decoder: PathBuf,
}

/// Returns a Python and a model; HAProxy and Prometheus come from Debian.
pub(super) fn need_tools() -> Result<OperationTools> {
    tools::debian(&[
        ("/usr/sbin/haproxy".to_owned(), "haproxy"),
        ("/usr/bin/promtool".to_owned(), "prometheus"),
    ])?;
    Ok(OperationTools { python: peers::python()?, decoder: model::bring("smollm2")? })
}

pub(super) fn check(OperationTools { python, decoder }: &OperationTools) -> Result {
    run(program("promtool", &["check", "rules"]).arg(root().join(ALERTS)))?;
    run(program("promtool", &["test", "rules"]).arg(root().join(ALERT_TESTS)))?;
    run_script(python, CANARY, &[])?;
    run_script(python, LOAD_BALANCER, &[decoder])
}
