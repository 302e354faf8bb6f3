//! The thread pool: the only place that spawns compute threads.
//!
//! Workers live as long as the pool. A job is a sequence of phases; a phase is a number of chunks. Each worker owns a
//! contiguous range of chunks, so that it reads memory sequentially, and steals from the ranges of others when it is
//! done (work stealing). A phase ends when all chunks are done and counted, not when all workers have arrived: a
//! preempted worker without a chunk does not delay the others, and continues with the current phase. If there are fewer
//! cores than workers, the excess workers stay idle: they would only take a core from another worker and evict weights
//! from its cache.

mod cores;
mod shared;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard};
use std::thread::{self, JoinHandle, Thread};

use crate::fair_mutex::FairMutex;
pub(crate) use cores::worth_using;
use shared::{Job, Shared, WorkerTurn};
use siskin_format::{Error, ErrorKind, Result};

/// The thread pool; runs one job at a time.
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    handles: Vec<Thread>,
}

/// A thread's handle on the job that it takes part in.
pub struct Worker<'a> {
    shared: &'a Shared,
    /// The number of threads to divide the job's phases for.
    pub worker_count: usize,
    /// The number of threads that may take part, each of which owns a range of chunks.
    present: usize,
    /// Whether it does all chunks of its phases, which are private to it.
    alone: bool,
    /// Phases that this worker has finished.
    phase: Cell<u32>,
    /// Index among the threads that may take part; 0 is the calling thread.
    pub index: usize,
}

impl ThreadPool {
    /// Creates a pool of `size` threads, the calling thread included.
    pub fn new(size: usize) -> Result<Self> {
        Self::on(size, cores::usable)
    }

    /// Creates a pool whose workers may run on `usable()` cores, which one of them re-evaluates after each job.
    fn on(size: usize, usable: fn() -> usize) -> Result<Self> {
        let shared = Arc::new(Shared::new(size.max(1), usable()));
        let mut pool = Self { shared, workers: Vec::new(), handles: Vec::new() };
        for index in 1..size {
            let shared = Arc::clone(&pool.shared);
            let worker = thread::Builder::new()
                .name(format!("siskin-{index}"))
                .spawn(move || {
                    let mut last = 0;
                    while let Some((job, present)) = shared.enter(index, &mut last) {
                        work(&shared, (index, present), job);
                        shared.leave();
                        if index == 1 {
                            shared.set_cores(usable());
                        }
                    }
                })
                .map_err(|error| Error::new(ErrorKind::Memory, "threads", error.to_string()))?;
            pool.handles.push(worker.thread().clone());
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// Returns the number of threads, the calling thread included.
    pub fn size(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `job` on up to `max_workers` threads, the calling thread included, and returns when all have returned from it. All
    /// must run the same phases.
    pub fn run<F: Fn(&Worker<'_>) + Sync>(&mut self, max_workers: usize, job: &F) -> Result<()> {
        if self.shared.is_broken() {
            return Err(broken());
        }
        let worker_count = self.size().min(max_workers.max(1));
        let job = Job::new(job, worker_count);
        // The caller's affinity may differ from the workers': at least one worker always takes part and re-reads
        // theirs.
        let present = worker_count.min(self.shared.cores().max(2));
        // SAFETY: `&mut self` excludes other calls of `run`, so no worker is inside the closed gate; `close` returns
        // only when no worker is in the job, so the job outlives every call.
        unsafe { self.shared.open(job, present) };
        self.handles[..present - 1].iter().for_each(Thread::unpark);
        work(&self.shared, (0, present), job);
        self.shared.close();
        if self.shared.is_broken() { Err(broken()) } else { Ok(()) }
    }
}

/// A thread pool that several contexts use in turn, one pass at a time.
#[derive(Clone)]
pub struct SharedThreadPool {
    pool: Arc<FairMutex<ThreadPool>>,
}

impl SharedThreadPool {
    /// Creates a pool of `size` threads, the calling thread included.
    pub fn new(size: usize) -> Result<Self> {
        Ok(Self { pool: Arc::new(FairMutex::new(ThreadPool::new(size)?)) })
    }

    /// Waits for the pass that has the pool, and borrows it.
    pub fn lock(&self) -> MutexGuard<'_, ThreadPool> {
        let mut pool = self.pool.lock();
        // A worker that failed ends its pass, not those of other contexts.
        if pool.shared.is_broken()
            && let Ok(whole) = ThreadPool::new(pool.size())
        {
            *pool = whole;
        }
        pool
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.dismiss();
        self.handles.iter().for_each(Thread::unpark);
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

fn broken() -> Error {
    Error::new(ErrorKind::State, "threads", "a worker failed; open the session again")
}

/// Runs the job on one thread; a panic marks the pool as broken instead of leaving the others waiting.
fn work(shared: &Shared, (index, present): (usize, usize), job: Job) {
    let worker =
        Worker { shared, worker_count: job.worker_count, present, alone: false, phase: Cell::new(0), index };
    // SAFETY: `run` keeps the job alive until all workers have left it.
    if catch_unwind(AssertUnwindSafe(|| unsafe { job.call(&worker) })).is_err() {
        shared.set_broken();
    }
}

impl Worker<'_> {
    /// Returns the worker's own chunks of a phase of `total`.
    pub fn own_pieces(&self, total: usize) -> Range<usize> {
        shared::part_of(total, self.index, self.present)
    }

    /// Returns a worker that, inside one chunk of a phase, runs phases of its own and does all of their chunks.
    pub fn alone(&self) -> Self {
        Self { shared: self.shared, worker_count: 1, present: 1, alone: true, phase: Cell::new(0), index: 0 }
    }

    /// Runs a phase of `total` chunks: does some of them, and returns when all are done. The worker that counts the
    /// last one calls `is_canceled` to decide whether the job ends here; if so, `share` returns false on all workers. A
    /// waiting worker calls `meanwhile` until that returns false.
    pub fn share(
        &self,
        total: usize,
        is_canceled: impl Fn() -> bool,
        work: impl Fn(usize),
        meanwhile: impl Fn() -> bool,
    ) -> bool {
        let phase = self.phase.get();
        self.phase.set(phase + 1);
        let mut done = 0;
        loop {
            let turn = match self.alone {
                true if done < total => WorkerTurn::Piece(done),
                true => return !is_canceled(),
                false => self.shared.next(phase, total, (self.index, self.present)),
            };
            match turn {
                WorkerTurn::Piece(piece) => {
                    work(piece);
                    done += 1;
                }
                WorkerTurn::Over => break,
                WorkerTurn::Wait => {
                    self.shared.report(phase, done, total, &is_canceled);
                    assert!(self.shared.wait(phase, &meanwhile), "another worker failed");
                    break;
                }
            }
        }
        !self.shared.is_ended()
    }
}
