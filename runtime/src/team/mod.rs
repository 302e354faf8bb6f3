//! The threads that compute: the only place that starts any.
//!
//! A team's members stay for its life. A job runs on all of them at once, the caller's thread included, and
//! they meet at barriers inside it. Waiting spins briefly and then yields; between jobs members park.

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread};

use crate::{Error, ErrorKind, Result};

/// Rounds of spinning before a waiting thread gives its core away.
const SPINS: usize = 4096;
/// Rounds of yielding before a member without a job parks.
const YIELDS: usize = 64;

/// A job without its type: what it captured, and how to call it.
#[derive(Clone, Copy)]
struct Job {
    captured: *const (),
    call: unsafe fn(*const (), &Worker<'_>),
}

/// Calls the job of type `F` whose captures are at `captured`.
///
/// # Safety
/// `captured` must point to an `F` that lives.
unsafe fn call<F: Fn(&Worker<'_>) + Sync>(captured: *const (), worker: &Worker<'_>) {
    // SAFETY: the caller's promise.
    let job = unsafe { &*captured.cast::<F>() };
    job(worker);
}

/// What the members share.
struct Shared {
    size: usize,
    /// Counts jobs; a change tells the members to begin.
    generation: AtomicUsize,
    /// Members that have finished the job.
    finished: AtomicUsize,
    job: UnsafeCell<Option<Job>>,
    arrived: AtomicUsize,
    phase: AtomicUsize,
    /// The work counters of even and odd phases; the last to arrive clears the one of the phase after next.
    counters: [AtomicUsize; 2],
    /// Set when a member panicked: nobody may wait for it.
    broken: AtomicBool,
    closing: AtomicBool,
}

// SAFETY: `job` is written only between jobs by the one thread that owns the team, and read by members only
// after they saw the new generation; everything else is atomic.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

/// Some threads that work on one job at a time.
pub(crate) struct Team {
    shared: Arc<Shared>,
    members: Vec<JoinHandle<()>>,
    handles: Vec<Thread>,
}

/// One thread's view of the job it takes part in.
pub(crate) struct Worker<'a> {
    shared: &'a Shared,
    /// From 0 to the team's size; 0 is the caller.
    pub index: usize,
}

impl Team {
    /// A team of `size` threads, the caller's included.
    pub(crate) fn new(size: usize) -> Result<Self> {
        let shared = Arc::new(Shared {
            size: size.max(1),
            generation: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            arrived: AtomicUsize::new(0),
            phase: AtomicUsize::new(0),
            counters: [AtomicUsize::new(0), AtomicUsize::new(0)],
            broken: AtomicBool::new(false),
            closing: AtomicBool::new(false),
        });
        let mut team = Self { shared, members: Vec::new(), handles: Vec::new() };
        for index in 1..size {
            let shared = Arc::clone(&team.shared);
            let member = thread::Builder::new()
                .name(format!("siskin-{index}"))
                .spawn(move || member(&shared, index))
                .map_err(|error| Error::new(ErrorKind::Memory, "threads", error.to_string()))?;
            team.handles.push(member.thread().clone());
            team.members.push(member);
        }
        Ok(team)
    }

    /// Runs `job` on every member and waits for all of them.
    pub(crate) fn run<F: Fn(&Worker<'_>) + Sync>(&mut self, job: &F) -> Result<()> {
        let shared = &*self.shared;
        if shared.broken.load(Ordering::Acquire) {
            return Err(broken());
        }
        let job = Job { captured: std::ptr::from_ref(job).cast(), call: call::<F> };
        // SAFETY: all members have finished the last job, so nobody reads.
        unsafe { *shared.job.get() = Some(job) };
        shared.finished.store(0, Ordering::Relaxed);
        shared.counters.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
        shared.generation.fetch_add(1, Ordering::Release);
        self.handles.iter().for_each(Thread::unpark);
        work(shared, 0);
        let mut round = 0;
        while shared.finished.load(Ordering::Acquire) < shared.size {
            pause(&mut round);
        }
        if shared.broken.load(Ordering::Acquire) { Err(broken()) } else { Ok(()) }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        self.handles.iter().for_each(Thread::unpark);
        for member in self.members.drain(..) {
            let _ = member.join();
        }
    }
}

fn broken() -> Error {
    Error::new(ErrorKind::State, "threads", "a worker failed; open the session again")
}

/// Spins, then yields.
fn pause(round: &mut usize) {
    *round += 1;
    if *round < SPINS { std::hint::spin_loop() } else { thread::yield_now() }
}

/// The current job on one member; a panic breaks the team instead of leaving the others to wait.
fn work(shared: &Shared, index: usize) {
    // SAFETY: the job was set before the generation changed and stays until all have finished.
    let job = unsafe { *shared.job.get() };
    if let Some(job) = job {
        let worker = Worker { shared, index };
        // SAFETY: `run` keeps the job alive until all members have finished.
        if catch_unwind(AssertUnwindSafe(|| unsafe { (job.call)(job.captured, &worker) })).is_err() {
            shared.broken.store(true, Ordering::Release);
        }
    }
    shared.finished.fetch_add(1, Ordering::AcqRel);
}

/// A member's life.
fn member(shared: &Shared, index: usize) {
    let mut seen = 0;
    loop {
        let mut round = 0;
        loop {
            if shared.closing.load(Ordering::Acquire) {
                return;
            }
            let generation = shared.generation.load(Ordering::Acquire);
            if generation != seen {
                seen = generation;
                break;
            }
            if round < SPINS + YIELDS { pause(&mut round) } else { thread::park() }
        }
        work(shared, index);
    }
}

impl Worker<'_> {
    /// Threads of the team.
    pub(crate) fn team_size(&self) -> usize {
        self.shared.size
    }

    /// Waits until every member is here.
    pub(crate) fn barrier(&self) {
        let shared = self.shared;
        let phase = shared.phase.load(Ordering::Acquire);
        if shared.arrived.fetch_add(1, Ordering::AcqRel) + 1 == shared.size {
            shared.arrived.store(0, Ordering::Relaxed);
            // The counter of the phase that just ended: it serves again in the phase after next.
            shared.counters[phase % 2].store(0, Ordering::Relaxed);
            shared.phase.store(phase.wrapping_add(1), Ordering::Release);
            return;
        }
        let mut round = 0;
        while shared.phase.load(Ordering::Acquire) == phase {
            assert!(!shared.broken.load(Ordering::Acquire), "another worker failed");
            pause(&mut round);
        }
    }

    /// The next of `total` pieces of work since the last barrier, each given to one member.
    pub(crate) fn next(&self, total: usize) -> Option<usize> {
        let counter = &self.shared.counters[self.shared.phase.load(Ordering::Relaxed) % 2];
        let piece = counter.fetch_add(1, Ordering::Relaxed);
        (piece < total).then_some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::Team;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_piece_is_done_once_in_every_phase() {
        for size in [1, 2, 3, 7] {
            let mut team = Team::new(size).unwrap();
            for _ in 0..20 {
                let done: Vec<AtomicUsize> = (0..50).map(|_| AtomicUsize::new(0)).collect();
                team.run(&|worker| {
                    for phase in 1..=5 {
                        while let Some(piece) = worker.next(done.len()) {
                            assert_eq!(done[piece].fetch_add(1, Ordering::Relaxed), phase - 1);
                        }
                        worker.barrier();
                    }
                })
                .unwrap();
                assert!(done.iter().all(|count| count.load(Ordering::Relaxed) == 5));
            }
        }
    }

    #[test]
    fn a_panic_is_an_error_and_nobody_hangs() {
        let mut team = Team::new(3).unwrap();
        let outcome = team.run(&|worker| {
            assert_ne!(worker.index, 1, "on purpose");
            worker.barrier();
        });
        assert!(outcome.is_err());
        assert!(team.run(&|_| {}).is_err());
    }
}
