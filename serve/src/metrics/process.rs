//! Metrics of the process, under the names that Prometheus' client libraries use. Only Linux has them.

use std::fs;

/// A metric without labels.
pub(super) struct ProcessMetric {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) help: &'static str,
    pub(super) value: f64,
}

/// Clock ticks a second in `/proc`: a constant of Linux' interface, whatever the kernel's own rate.
const TICKS: f64 = 100.0;

/// Returns those metrics that the system has.
pub(super) fn process_metrics() -> Vec<ProcessMetric> {
    let gauge = |name, help, value: Option<f64>| {
        value.map(|value| ProcessMetric { name, kind: "gauge", help, value })
    };
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let bytes = |name| status_number(&status, name).map(|kibibytes| kibibytes * 1024.0);
    let cpu = cpu_seconds(&stat).map(|value| ProcessMetric {
        name: "process_cpu_seconds_total",
        kind: "counter",
        help: "CPU time.",
        value,
    });
    let rest = [
        gauge("process_resident_memory_bytes", "Memory in use, mapped model files included.", bytes("VmRSS")),
        gauge(
            "siskin_process_anonymous_memory_bytes",
            "Memory in use without mapped files, which the system can drop.",
            bytes("RssAnon"),
        ),
        gauge("process_virtual_memory_bytes", "Address space.", bytes("VmSize")),
        gauge("process_threads", "Threads.", status_number(&status, "Threads")),
        gauge(
            "process_start_time_seconds",
            "When the process started, in seconds since 1970.",
            start_time(&stat),
        ),
        gauge("process_open_fds", "Open file descriptors.", open_descriptors()),
        gauge("process_max_fds", "Maximum number of open file descriptors.", max_descriptors()),
        gauge("siskin_memory_limit_bytes", "The memory limit of the control group.", memory_limit()),
    ];
    cpu.into_iter().chain(rest.into_iter().flatten()).collect()
}

/// Returns the number of a line such as `VmRSS:   123 kB`.
fn status_number(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the fields after the program's name, which may contain spaces: the third of `/proc/self/stat` comes first.
fn stat_fields(stat: &str) -> Option<Vec<f64>> {
    let fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some(fields.map(|field| field.parse().unwrap_or(0.0)).collect())
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    let fields = stat_fields(stat)?;
    Some((fields.get(11)? + fields.get(12)?) / TICKS)
}

fn start_time(stat: &str) -> Option<f64> {
    let since_boot = stat_fields(stat)?.get(19)? / TICKS;
    let system = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.parse().ok()?;
    Some(boot + since_boot)
}

fn open_descriptors() -> Option<f64> {
    // One is that of the listing itself.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

fn max_descriptors() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the limit of the process' control group (version 2), if it has one.
fn memory_limit() -> Option<f64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let limit = fs::read_to_string(format!("/sys/fs/cgroup{path}/memory.max")).ok()?;
    limit.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read() {
        assert_eq!(status_number("VmSize:\t 10 kB\nVmRSS:\t  12 kB\n", "VmRSS"), Some(12.0));
        assert_eq!(status_number("VmRSSX: 1\n", "VmRSS"), None);
        let stat = "7 (a ) b) S 1 1 1 0 -1 0 0 0 0 0 250 50 0 0 20 0 3 0 900 0 0";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds(""), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_metrics() {
        let metrics = process_metrics();
        let value = |name| metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value);
        assert!(value("process_resident_memory_bytes").unwrap() > 1e6);
        assert!(value("process_open_fds").unwrap() >= 3.0);
        assert!(value("process_max_fds").unwrap() >= value("process_open_fds").unwrap());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let start = value("process_start_time_seconds").unwrap();
        assert!(start <= now + 1.0 && start > now - 24.0 * 3600.0 * 365.0, "{start} {now}");
    }
}
