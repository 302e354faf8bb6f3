//! The threads that compute: the only place that starts any.
//!
//! A team's members stay for its life. A job is a row of phases; a phase is some pieces of work. Each member has a run
//! of them, so that it reads memory from end to end, and whoever is done with its own takes those of others. A phase is
//! over when those who did its pieces find no more and have counted them, not when all members have come to its end: a
//! member that lost its core and did none holds nobody up, and goes on with the phase that it finds. Members without a
//! core of their own stay out: they would only take one from another, and weights out of its cache.

mod cores;
mod shared;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle, Thread};

use crate::{Error, ErrorKind, Result};
pub(crate) use cores::worth_using;
use shared::{Job, Shared, Turn};

/// Some threads that work on one job at a time.
pub(crate) struct Team {
    shared: Arc<Shared>,
    members: Vec<JoinHandle<()>>,
    handles: Vec<Thread>,
}

/// One thread's view of the job it takes part in.
pub(crate) struct Worker<'a> {
    shared: &'a Shared,
    /// Threads that the job's phases are to be cut for.
    pub team: usize,
    /// Threads that may come, each of which has a part of the pieces.
    present: usize,
    /// Whether it does all pieces of its phases, which others know nothing of.
    alone: bool,
    /// Phases this worker has seen the end of.
    phase: Cell<u32>,
    /// Below the number of those that may come; 0 is the caller.
    pub index: usize,
}

impl Team {
    /// A team of `size` threads, the caller's included.
    pub(crate) fn new(size: usize) -> Result<Self> {
        Self::on(size, cores::usable)
    }

    /// A team whose members may run on as many cores as `usable` says, which one of them asks again after each job.
    fn on(size: usize, usable: fn() -> usize) -> Result<Self> {
        let shared = Arc::new(Shared::new(size.max(1), usable()));
        let mut team = Self { shared, members: Vec::new(), handles: Vec::new() };
        for index in 1..size {
            let shared = Arc::clone(&team.shared);
            let member = thread::Builder::new()
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
            team.handles.push(member.thread().clone());
            team.members.push(member);
        }
        Ok(team)
    }

    /// Its threads, the caller's included.
    pub(crate) fn size(&self) -> usize {
        self.members.len() + 1
    }

    /// Runs `job` on up to `most` members that come, this thread among them, until it has returned everywhere. All
    /// must go through the same phases.
    pub(crate) fn run<F: Fn(&Worker<'_>) + Sync>(&mut self, most: usize, job: &F) -> Result<()> {
        if self.shared.is_broken() {
            return Err(broken());
        }
        let team = self.size().min(most.max(1));
        let job = Job::new(job, team);
        // The caller may run on other cores than the members: one of them always comes, and sees what they have.
        let present = team.min(self.shared.cores().max(2));
        // SAFETY: only the owner of the team gets here, and `close` returns when nobody is inside any more, so
        // the job outlives every call.
        unsafe { self.shared.open(job, present) };
        self.handles[..present - 1].iter().for_each(Thread::unpark);
        work(&self.shared, (0, present), job);
        self.shared.close();
        if self.shared.is_broken() { Err(broken()) } else { Ok(()) }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.dismiss();
        self.handles.iter().for_each(Thread::unpark);
        for member in self.members.drain(..) {
            let _ = member.join();
        }
    }
}

fn broken() -> Error {
    Error::new(ErrorKind::State, "threads", "a worker failed; open the session again")
}

/// The job on one member; a panic breaks the team instead of leaving the others to wait.
fn work(shared: &Shared, (index, present): (usize, usize), job: Job) {
    let worker = Worker { shared, team: job.team, present, alone: false, phase: Cell::new(0), index };
    // SAFETY: `run` keeps the job alive until everybody has left it.
    if catch_unwind(AssertUnwindSafe(|| unsafe { job.call(&worker) })).is_err() {
        shared.set_broken();
    }
}

impl Worker<'_> {
    /// The pieces of a phase of `total` that are this worker's own.
    pub(crate) fn own_pieces(&self, total: usize) -> Range<usize> {
        shared::part_of(total, self.index, self.present)
    }

    /// A worker that within one piece of a phase goes through phases of its own, all of whose pieces it does.
    pub(crate) fn alone(&self) -> Self {
        Self { shared: self.shared, team: 1, present: 1, alone: true, phase: Cell::new(0), index: 0 }
    }

    /// A phase of `total` pieces: does some of them, and returns when all are done. Whoever counts the
    /// last asks `stop` whether the job ends here; false tells everybody that it does. Whoever has to wait calls
    /// `meanwhile` until it says that it has no more to do.
    pub(crate) fn share(
        &self,
        total: usize,
        stop: impl Fn() -> bool,
        work: impl Fn(usize),
        meanwhile: impl Fn() -> bool,
    ) -> bool {
        let phase = self.phase.get();
        self.phase.set(phase + 1);
        let mut done = 0;
        loop {
            let turn = match self.alone {
                true if done < total => Turn::Piece(done),
                true => return !stop(),
                false => self.shared.next(phase, total, (self.index, self.present)),
            };
            match turn {
                Turn::Piece(piece) => {
                    work(piece);
                    done += 1;
                }
                Turn::Over => break,
                Turn::Wait => {
                    self.shared.report(phase, done, total, &stop);
                    assert!(self.shared.wait(phase, &meanwhile), "another worker failed");
                    break;
                }
            }
        }
        !self.shared.is_ended()
    }
}
