//! The memory of this process, as reported by the operating system.

/// Returns resident memory in MiB: anonymous pages, and file-backed pages. `None` where the system does not report it.
pub(crate) fn resident() -> Option<(f64, f64)> {
    read(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn read(status: &str) -> Option<(f64, f64)> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kibibytes / 1024.0)
    };
    Some((field("RssAnon:")?, field("RssFile:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read() {
        let status = "VmRSS:\t    9000 kB\nRssAnon:\t    2048 kB\nRssFile:\t     512 kB\nRssShmem:\t 0 kB\n";
        assert_eq!(read(status), Some((2.0, 0.5)));
        assert_eq!(read("VmRSS: 1 kB"), None);
    }
}
