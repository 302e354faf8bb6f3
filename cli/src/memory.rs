//! The memory of this process and of this machine, as reported by the operating system.

/// Returns resident memory in MiB: anonymous pages, and file-backed pages. `None` where the system does not report it.
pub(crate) fn resident() -> Option<(f64, f64)> {
    read(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn read(status: &str) -> Option<(f64, f64)> {
    let mebibytes = |name: &str| Some(kibibytes(status, name)? as f64 / 1024.0);
    Some((mebibytes("RssAnon:")?, mebibytes("RssFile:")?))
}

/// The memory of a machine, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SystemMemory {
    /// Physical memory.
    pub(crate) physical: u64,
    /// Swap space.
    pub(crate) swap: u64,
}

/// Returns the memory of this machine. `None` where the system does not report it.
pub(crate) fn system() -> Option<SystemMemory> {
    read_system(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn read_system(report: &str) -> Option<SystemMemory> {
    let bytes = |name: &str| kibibytes(report, name)?.checked_mul(1024);
    Some(SystemMemory { physical: bytes("MemTotal:")?, swap: bytes("SwapTotal:").unwrap_or(0) })
}

/// Returns a field of a report of the system.
fn kibibytes(report: &str, name: &str) -> Option<u64> {
    let line = report.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read() {
        let status = "VmRSS:\t    9000 kB\nRssAnon:\t    2048 kB\nRssFile:\t     512 kB\nRssShmem:\t 0 kB\n";
        assert_eq!(read(status), Some((2.0, 0.5)));
        assert_eq!(read("VmRSS: 1 kB"), None);
        let report = "MemTotal:       2 kB\nMemFree: 1 kB\nSwapTotal:  1 kB\n";
        assert_eq!(read_system(report), Some(SystemMemory { physical: 2048, swap: 1024 }));
        assert_eq!(read_system("MemTotal: 2 kB"), Some(SystemMemory { physical: 2048, swap: 0 }));
        assert_eq!(read_system("SwapTotal: 2 kB"), None);
    }
}
