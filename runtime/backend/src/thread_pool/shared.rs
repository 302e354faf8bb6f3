//! State shared by the workers: the gate of the job, and the chunks of its phase.

use std::cell::UnsafeCell;
use std::cmp::Ordering::{Equal, Greater, Less};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use super::Worker;

/// Rounds of spinning before a waiting thread yields its core.
const SPINS: usize = 2048;
/// Rounds of yielding before an idle worker parks.
const YIELDS: usize = 64;
/// The phase number of a job that was ended early.
const ENDED: u32 = u32::MAX;
/// The gate's bit for a job that workers may still enter; the bits below count the workers inside, those above the
/// jobs.
const OPEN: u64 = 1 << 31;
const JOB: u64 = 1 << 32;

/// A type-erased job: its closure, how to call it, and the number of threads to divide its phases for.
#[derive(Clone, Copy)]
pub(super) struct Job {
    pub(super) worker_count: usize,
    captured: *const (),
    call: unsafe fn(*const (), &Worker<'_>),
}

impl Job {
    pub(super) fn new<F: Fn(&Worker<'_>) + Sync>(job: &F, worker_count: usize) -> Self {
        /// # Safety
        /// `captured` must point to a live `F`.
        unsafe fn call<F: Fn(&Worker<'_>) + Sync>(captured: *const (), worker: &Worker<'_>) {
            // SAFETY: `captured` points to a live `F` (see `# Safety`).
            let job = unsafe { &*captured.cast::<F>() };
            job(worker);
        }
        Self { worker_count, captured: std::ptr::from_ref(job).cast(), call: call::<F> }
    }

    /// # Safety
    /// The closure that was passed to [`Job::new`] must be alive.
    pub(super) unsafe fn call(self, worker: &Worker<'_>) {
        // SAFETY: `new` created `call` for the type of the closure at `captured`, which is alive (see `# Safety`).
        unsafe { (self.call)(self.captured, worker) }
    }
}

/// The unit of the phase number in the high half of a chunk counter.
const PHASE: u64 = 1 << 32;

/// Cache-line padding, against false sharing of contended counters.
#[derive(Default)]
#[repr(align(128))]
struct Apart<T>(T);

pub(super) struct Shared {
    job: UnsafeCell<Option<Job>>,
    gate: Apart<AtomicU64>,
    /// Workers with this index or above stay out of the job.
    size: AtomicUsize,
    /// Cores that workers may run on, as last measured by one of them.
    cores: AtomicUsize,
    /// The current phase of the job.
    phase: Apart<AtomicU32>,
    /// For each worker's range of chunks: the last phase in which a chunk was taken, and how many were.
    taken: Box<[Apart<AtomicU64>]>,
    /// Chunks of the phase that are done and counted.
    finished: Apart<AtomicUsize>,
    /// Set when a worker panicked: waiting for it would never end.
    broken: AtomicBool,
    closing: AtomicBool,
}

// SAFETY: `job` is written only while the gate is closed and no worker is inside, by the thread that owns the pool, and
// read by workers that passed the open gate; everything else is atomic.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

/// What a worker does next in a phase.
pub(super) enum WorkerTurn {
    /// Do this chunk.
    Piece(usize),
    /// Wait: others are doing the last chunks.
    Wait,
    /// Continue: the phase is over.
    Over,
}

impl Shared {
    /// Creates the state for `size` threads that may run on `cores` cores.
    pub(super) fn new(size: usize, cores: usize) -> Self {
        Self {
            job: UnsafeCell::new(None),
            gate: Apart::default(),
            size: AtomicUsize::new(0),
            cores: AtomicUsize::new(cores),
            phase: Apart::default(),
            taken: (0..size).map(|_| Apart::default()).collect(),
            finished: Apart::default(),
            broken: AtomicBool::new(false),
            closing: AtomicBool::new(false),
        }
    }

    /// Returns the number of cores that workers may run on.
    pub(super) fn cores(&self) -> usize {
        self.cores.load(Ordering::Relaxed)
    }

    pub(super) fn set_cores(&self, count: usize) {
        self.cores.store(count, Ordering::Relaxed);
    }

    /// Opens the gate for a job of `size` threads.
    ///
    /// # Safety
    /// The gate must be closed with no worker inside, and the job must live until [`Shared::close`] returns.
    pub(super) unsafe fn open(&self, job: Job, size: usize) {
        // SAFETY: no worker is inside, so there are no readers.
        unsafe { *self.job.get() = Some(job) };
        self.size.store(size, Ordering::Relaxed);
        self.phase.0.store(0, Ordering::Relaxed);
        self.taken.iter().for_each(|taken| taken.0.store(0, Ordering::Relaxed));
        self.finished.0.store(0, Ordering::Relaxed);
        let jobs = self.gate.0.load(Ordering::Relaxed) / JOB;
        self.gate.0.store(jobs.wrapping_add(1).wrapping_mul(JOB) | OPEN, Ordering::Release);
    }

    /// Closes the gate and waits until all workers have left.
    pub(super) fn close(&self) {
        self.gate.0.fetch_and(!OPEN, Ordering::AcqRel);
        let mut round = 0;
        while !self.gate.0.load(Ordering::Acquire).is_multiple_of(JOB) {
            pause(&mut round);
        }
    }

    /// Waits for a job other than `last`, the previous one of this worker, enters it, and returns it with its number of
    /// threads; `None` when the pool shuts down.
    pub(super) fn enter(&self, index: usize, last: &mut u64) -> Option<(Job, usize)> {
        let mut round = 0;
        loop {
            if self.closing.load(Ordering::Acquire) {
                return None;
            }
            let gate = self.gate.0.load(Ordering::Acquire);
            let size = self.size.load(Ordering::Relaxed);
            if gate & OPEN != 0 && gate / JOB != *last && index < size {
                let entered =
                    self.gate.0.compare_exchange(gate, gate + 1, Ordering::AcqRel, Ordering::Relaxed);
                if entered.is_ok() {
                    *last = gate / JOB;
                    // SAFETY: the gate was open, so the job is set and stays until this worker leaves.
                    let job = unsafe { *self.job.get() };
                    return job.map(|job| (job, size));
                }
            } else if round < SPINS + YIELDS {
                pause(&mut round);
            } else {
                thread::park();
            }
        }
    }

    /// Leaves the job.
    pub(super) fn leave(&self) {
        self.gate.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// Shuts the pool down: all workers exit.
    pub(super) fn dismiss(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Takes the next chunk of a phase for worker `index` of `present`: from its own range, or else stolen from
    /// another's.
    pub(super) fn next(&self, phase: u32, total: usize, (index, present): (usize, usize)) -> WorkerTurn {
        if self.phase() != phase {
            return WorkerTurn::Over;
        }
        if total == 0 {
            // If this fails, another worker has advanced the phase.
            let _ = self.phase.0.compare_exchange(phase, phase + 1, Ordering::AcqRel, Ordering::Relaxed);
            return WorkerTurn::Over;
        }
        let mut owners = (index..present).chain(0..index);
        match owners.find_map(|owner| self.take(phase, owner, part_of(total, owner, present))) {
            Some(piece) => WorkerTurn::Piece(piece),
            None => WorkerTurn::Wait,
        }
    }

    /// Takes the next chunk of a worker's range, unless all are taken. Once a phase is over, all are: the counter of a
    /// non-empty range then equals its length, or belongs to a later phase.
    fn take(&self, phase: u32, owner: usize, part: Range<usize>) -> Option<usize> {
        let counter = &self.taken.get(owner)?.0;
        let mut seen = counter.load(Ordering::Relaxed);
        loop {
            let taken = match ((seen / PHASE) as u32).cmp(&phase) {
                Less => 0,
                Equal => seen as u32 as usize,
                Greater => return None,
            };
            if taken >= part.len() {
                return None;
            }
            let next = u64::from(phase) * PHASE + taken as u64 + 1;
            match counter.compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(part.start + taken),
                Err(now) => seen = now,
            }
        }
    }

    /// Counts the chunks that a worker did in a phase, when it finds no more; the worker that completes the count
    /// begins the next phase, or ends the job.
    pub(super) fn report(&self, phase: u32, done: usize, total: usize, is_canceled: &impl Fn() -> bool) {
        if done > 0 && self.finished.0.fetch_add(done, Ordering::AcqRel) + done == total {
            self.finished.0.store(0, Ordering::Relaxed);
            let next = if is_canceled() { ENDED } else { phase + 1 };
            self.phase.0.store(next, Ordering::Release);
        }
    }

    /// Waits for the end of a phase, and calls `meanwhile` until that returns false, at least once; returns false if
    /// the pool is broken.
    pub(super) fn wait(&self, phase: u32, meanwhile: &impl Fn() -> bool) -> bool {
        let mut round = 0;
        let mut busy = meanwhile();
        while self.phase() == phase {
            if self.is_broken() {
                return false;
            }
            match busy {
                true => busy = meanwhile(),
                false => pause(&mut round),
            }
        }
        true
    }

    /// Returns whether the job was ended early.
    pub(super) fn is_ended(&self) -> bool {
        self.phase() == ENDED
    }

    fn phase(&self) -> u32 {
        self.phase.0.load(Ordering::Acquire)
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    pub(super) fn set_broken(&self) {
        self.broken.store(true, Ordering::Release);
    }
}

/// Returns a worker's range of `total` chunks: ranges are contiguous, and their lengths differ by at most one.
pub(super) fn part_of(total: usize, owner: usize, present: usize) -> Range<usize> {
    (total * owner).div_ceil(present)..(total * (owner + 1)).div_ceil(present)
}

/// Spins, then yields.
fn pause(round: &mut usize) {
    *round += 1;
    if *round < SPINS { std::hint::spin_loop() } else { thread::yield_now() }
}
