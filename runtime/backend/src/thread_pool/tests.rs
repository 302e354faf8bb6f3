use super::ThreadPool;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A pool whose workers all take part, regardless of the number of cores.
fn crowded(size: usize) -> ThreadPool {
    ThreadPool::on(size, || usize::MAX).unwrap()
}

/// Waits until other threads have counted this far.
fn wait_for(counter: &AtomicUsize, count: usize) {
    let start = Instant::now();
    while counter.load(Ordering::Relaxed) < count {
        assert!(start.elapsed() < Duration::from_secs(60), "the other thread has not come so far");
        std::thread::yield_now();
    }
}

#[test]
fn every_piece_is_done_once_in_every_phase() {
    const TOTALS: [usize; 7] = [50, 1, 0, 2, 50, 7, 3];
    for size in [1, 2, 3, 7] {
        let mut pool = crowded(size);
        for _ in 0..50 {
            let done = TOTALS.map(|total| (0..total).map(|_| AtomicUsize::new(0)).collect::<Vec<_>>());
            let all = |done: &Vec<AtomicUsize>| done.iter().all(|count| count.load(Ordering::Relaxed) == 1);
            pool.run(usize::MAX, &|worker| {
                for (phase, done_here) in done.iter().enumerate() {
                    let count = |piece: usize| {
                        assert!(done[..phase].iter().all(all));
                        done_here[piece].fetch_add(1, Ordering::Relaxed);
                    };
                    assert!(worker.share(done_here.len(), || false, count, || false));
                }
            })
            .unwrap();
            assert!(done.iter().all(all));
        }
    }
}

#[test]
fn a_thread_has_a_run_of_pieces_until_it_helps_another() {
    let mut pool = crowded(2);
    let (come, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    pool.run(usize::MAX, &|worker| {
        come.fetch_add(1, Ordering::Relaxed);
        wait_for(&come, 2);
        let work = |piece: usize| match piece {
            // Keeps one of the two threads busy until the other has done everything else.
            0 => wait_for(&done, 19),
            _ => assert_eq!(done.fetch_add(1, Ordering::Relaxed), (piece + 9) % 19),
        };
        worker.share(20, || false, work, || false);
    })
    .unwrap();
}

#[test]
fn who_waits_has_something_to_do_until_it_has_not() {
    let mut pool = crowded(2);
    let (come, calls) = (AtomicUsize::new(0), AtomicUsize::new(0));
    pool.run(usize::MAX, &|worker| {
        come.fetch_add(1, Ordering::Relaxed);
        wait_for(&come, 2);
        // The only chunk ends once the other thread's `meanwhile` was called three times and returned false.
        let asked = Cell::new(0);
        let meanwhile = || {
            asked.set(asked.get() + 1);
            calls.fetch_max(asked.get(), Ordering::Relaxed);
            asked.get() < 3
        };
        worker.share(1, || false, |_| wait_for(&calls, 3), meanwhile);
        assert!(asked.get() <= 3, "asked {} times", asked.get());
        assert_eq!(worker.own_pieces(6), 3 * worker.index..3 * worker.index + 3);
    })
    .unwrap();
}

#[test]
fn a_job_has_no_more_threads_than_it_may() {
    let mut pool = crowded(4);
    for max_workers in [1, 3, 2, 4, 9, 0, 1] {
        let size = max_workers.clamp(1, 4);
        for _ in 0..50 {
            let here = AtomicUsize::new(0);
            pool.run(max_workers, &|worker| {
                assert!(worker.index < size && worker.worker_count == size);
                here.fetch_add(1, Ordering::Relaxed);
                worker.share(16, || false, |_| std::thread::yield_now(), || false);
            })
            .unwrap();
            assert!((1..=size).contains(&here.into_inner()));
        }
    }
}

#[test]
fn members_without_a_core_stay_out_until_there_is_one() {
    static CORES: AtomicUsize = AtomicUsize::new(2);
    let mut pool = ThreadPool::on(4, || CORES.load(Ordering::Relaxed)).unwrap();
    for (cores, present) in [(2, 2), (8, 4), (3, 3), (1, 2)] {
        CORES.store(cores, Ordering::Relaxed);
        let start = Instant::now();
        let seen = AtomicUsize::new(0);
        // A worker re-reads the core count after a job, and may be late.
        while seen.swap(0, Ordering::Relaxed) != present {
            assert!(start.elapsed() < Duration::from_secs(60), "{cores} cores were not seen");
            pool.run(usize::MAX, &|worker| {
                assert!(worker.worker_count == 4 && worker.index < worker.present);
                seen.store(worker.present, Ordering::Relaxed);
                worker.share(16, || false, |_| std::thread::yield_now(), || false);
            })
            .unwrap();
        }
    }
}

#[test]
fn everybody_leaves_after_the_phase_that_ends_the_job() {
    let mut pool = crowded(3);
    for last in [0, 3, 9] {
        let phases = AtomicUsize::new(0);
        pool.run(usize::MAX, &|worker| {
            for phase in 0..10 {
                let count = |piece: usize| {
                    phases.fetch_add(usize::from(piece == 0), Ordering::Relaxed);
                };
                if !worker.share(4, || phase == last, count, || false) {
                    return;
                }
            }
        })
        .unwrap();
        assert_eq!(phases.into_inner(), last + 1);
    }
}

#[test]
fn a_job_that_was_ended_has_no_more_phases() {
    let mut pool = crowded(3);
    pool.run(usize::MAX, &|worker| {
        assert!(!worker.share(4, || true, |_| {}, || false));
        assert!(!worker.share(4, || false, |_| panic!("a piece after the end"), || false));
    })
    .unwrap();
}

#[test]
fn a_panic_is_an_error_and_nobody_hangs() {
    let mut pool = crowded(3);
    let outcome = pool.run(usize::MAX, &|worker| {
        worker.share(50, || false, |piece| assert_ne!(piece, 30, "on purpose"), || false);
    });
    assert!(outcome.is_err());
    assert!(pool.run(usize::MAX, &|_| {}).is_err());
}
