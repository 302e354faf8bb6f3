//! How many threads to use: at most one per core, and by default one for each core that keeps up with the fastest.
//!
//! Phones and some laptops have heterogeneous cores (big.LITTLE). A phase ends with its last chunk, so a core that is
//! much slower costs more than it contributes.

use std::ops::RangeInclusive;
use std::sync::OnceLock;
use std::thread;

pub(super) use measure::usable;

/// Core counts for which speeds are measured; with fewer, all cores are used, and machines with more have uniform
/// cores.
const MEASURED: RangeInclusive<usize> = 3..=16;
/// The minimum speed of a core, relative to the fastest.
const MIN_RATE: f64 = 0.5;

/// Returns how many cores are worth a thread; measured once.
pub(crate) fn worth_using() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        // This accounts for CPU quotas, which the measurement does not.
        let available = thread::available_parallelism().map_or(1, usize::from);
        if MEASURED.contains(&available) {
            keeping_up(&measure::rates()).unwrap_or(available).min(available)
        } else {
            available
        }
    })
}

/// Counts the rates of at least [`MIN_RATE`] times the largest; `None` if no rate is known.
fn keeping_up(rates: &[f64]) -> Option<usize> {
    let fastest = rates.iter().copied().fold(0.0, f64::max);
    (fastest > 0.0).then(|| rates.iter().filter(|rate| **rate >= MIN_RATE * fastest).count())
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod measure {
    use std::mem;
    use std::thread;
    use std::time::{Duration, Instant};

    use siskin_kernels::Cpu;
    use siskin_kernels::ops::peak;

    /// How long all cores run: long enough for their clock frequencies to ramp up.
    const PATIENCE: Duration = Duration::from_millis(8);
    /// Iterations of the loop between two readings of the clock.
    const ROUNDS: usize = 4096;

    /// Measures the speed of each allowed core while all are busy; cores whose thread cannot be spawned are left out.
    pub(super) fn rates() -> Vec<f64> {
        thread::scope(|scope| {
            let threads =
                allowed().map(|core| thread::Builder::new().spawn_scoped(scope, move || rate(core)));
            let threads: Vec<_> = threads.collect();
            threads.into_iter().filter_map(|thread| thread.ok()?.join().ok()?).collect()
        })
    }

    /// Returns the best rate of a loop of multiply-adds on a core.
    fn rate(core: usize) -> Option<f64> {
        stay_on(core)?;
        let run = peak::for_cpu(Cpu::detect());
        let (start, mut best) = (Instant::now(), f64::INFINITY);
        while start.elapsed() < PATIENCE {
            let begun = Instant::now();
            run(ROUNDS, std::hint::black_box(&mut [1.0; 16]));
            best = best.min(begun.elapsed().as_secs_f64());
        }
        Some(1.0 / best)
    }

    /// Returns how many cores this thread may run on right now. Not cached: the system may change the affinity, as
    /// Android does for background apps.
    pub(in crate::thread_pool) fn usable() -> usize {
        match allowed().count() {
            0 => usize::MAX,
            count => count,
        }
    }

    fn allowed() -> impl Iterator<Item = usize> {
        // SAFETY: all zeros are an empty set, which the call fills, or leaves as it is if it fails.
        let set = unsafe {
            let mut set: libc::cpu_set_t = mem::zeroed();
            libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
            set
        };
        // SAFETY: the numbers are inside the set.
        (0..8 * size_of_val(&set)).filter(move |core| unsafe { libc::CPU_ISSET(*core, &set) })
    }

    /// Pins this thread, which ends with the measurement, to a core.
    fn stay_on(core: usize) -> Option<()> {
        // SAFETY: all zeros are an empty set; `allowed` gave a number inside it.
        let kept = unsafe {
            let mut set: libc::cpu_set_t = mem::zeroed();
            libc::CPU_SET(core, &mut set);
            libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
        };
        (kept == 0).then_some(())
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn every_core_has_a_rate() {
            let rates = rates();
            assert_eq!(rates.len(), usable());
            assert!(rates.iter().all(|rate| rate.is_finite() && *rate > 0.0), "{rates:?}");
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod measure {
    use std::sync::OnceLock;
    use std::thread;

    /// Returns no rates: affinity cannot be set on this system.
    pub(super) fn rates() -> Vec<f64> {
        Vec::new()
    }

    /// Returns no limit: threads may run on every core.
    pub(in crate::thread_pool) fn usable() -> usize {
        static COUNT: OnceLock<usize> = OnceLock::new();
        *COUNT.get_or_init(|| thread::available_parallelism().map_or(usize::MAX, usize::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_far_behind_the_fastest_are_left_alone() {
        assert_eq!(keeping_up(&[3.0, 2.5, 2.4, 2.6, 1.1, 1.2, 1.0, 1.1]), Some(4));
        assert_eq!(keeping_up(&[2.0, 2.1, 1.05]), Some(3));
        assert_eq!(keeping_up(&[]), None);
        assert!((1..=thread::available_parallelism().map_or(1, usize::from)).contains(&worth_using()));
    }
}
