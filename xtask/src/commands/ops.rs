//! `ops-test`: the HTTP server in operation, with a load balancer and monitoring.

use super::bench_peers::peers;
use super::model;
use super::serve::{ClientScript, run_script};
use crate::Subcommand;
use crate::shell::{Result, program, root, run};
use crate::tools;
use std::path::PathBuf;

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "ops-test",
    usage: "",
    about: "run replicas of the HTTP server behind HAProxy and Ray Serve under load, kill some, and add a canary that fails; check Prometheus, alerts and manifests",
    run: |_| check(&need_tools()?),
};

const SCRIPTS: [&str; 4] = [
    "serve/tests/operations/canary.py",
    "serve/tests/operations/load_balancer.py",
    "serve/tests/operations/prometheus.py",
    "serve/tests/operations/chaos.py",
];
/// Those with large packages.
const CLIENT_SCRIPTS: [ClientScript; 2] = [
    ClientScript {
        path: "serve/tests/operations/ray_serve.py",
        environment: Some("ray"),
        installs: &[("ray.serve, httpx", &["ray[serve]==2.60.0", "httpx==0.28.1"])],
    },
    ClientScript {
        path: "serve/tests/operations/kserve_manifests.py",
        environment: None,
        installs: &[("kserve", &["kserve==0.21.0"])],
    },
];
const ALERTS: &str = "deploy/prometheus/alerts.yaml";
const ALERT_TESTS: &str = "deploy/prometheus/alerts_test.yaml";

/// What the tests need.
pub(super) struct OperationTools {
    decoder: PathBuf,
    /// The scripts, each with a Python that has its packages.
    scripts: Vec<(PathBuf, &'static str)>,
}

/// Returns Pythons and a model; HAProxy and Prometheus come from Debian.
pub(super) fn need_tools() -> Result<OperationTools> {
    tools::debian(&[
        ("/usr/sbin/haproxy".to_owned(), "haproxy"),
        ("/usr/bin/prometheus".to_owned(), "prometheus"),
    ])?;
    let python = peers::python()?;
    let mut scripts: Vec<_> = SCRIPTS.iter().map(|path| (python.clone(), *path)).collect();
    for script in &CLIENT_SCRIPTS {
        match script.need() {
            Ok(python) => scripts.push((python, script.path)),
            Err(why) => eprintln!("skipped: {}: {why}", script.path),
        }
    }
    Ok(OperationTools { decoder: model::bring("smollm2")?, scripts })
}

pub(super) fn check(OperationTools { decoder, scripts }: &OperationTools) -> Result {
    run(program("promtool", &["check", "rules"]).arg(root().join(ALERTS)))?;
    run(program("promtool", &["test", "rules"]).arg(root().join(ALERT_TESTS)))?;
    scripts.iter().try_for_each(|(python, script)| run_script(python, script, &[decoder]))
}
