use super::Team;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn every_piece_is_done_once_in_every_phase() {
    for size in [1, 2, 3, 7] {
        let mut team = Team::new(size).unwrap();
        for _ in 0..50 {
            let done: Vec<AtomicUsize> = (0..50).map(|_| AtomicUsize::new(0)).collect();
            team.run(usize::MAX, &|worker| {
                for phase in 1..=5 {
                    let total = if phase == 3 { 0 } else { done.len() };
                    let before = phase - 1 - usize::from(phase > 3);
                    assert!(worker.share(
                        total,
                        || false,
                        |piece| assert_eq!(done[piece].fetch_add(1, Ordering::Relaxed), before)
                    ));
                }
            })
            .unwrap();
            assert!(done.iter().all(|count| count.load(Ordering::Relaxed) == 4));
        }
    }
}

#[test]
fn a_job_has_no_more_threads_than_it_may() {
    let mut team = Team::new(4).unwrap();
    for most in [1, 3, 2, 4, 9, 0, 1] {
        let size = most.clamp(1, 4);
        for _ in 0..50 {
            let here = AtomicUsize::new(0);
            team.run(most, &|worker| {
                assert!(worker.index < size && worker.team == size);
                here.fetch_add(1, Ordering::Relaxed);
                worker.share(16, || false, |_| std::thread::yield_now());
            })
            .unwrap();
            assert!((1..=size).contains(&here.into_inner()));
        }
    }
}

#[test]
fn everybody_leaves_after_the_phase_that_ends_the_job() {
    let mut team = Team::new(3).unwrap();
    for last in [0, 3, 9] {
        let phases = AtomicUsize::new(0);
        team.run(usize::MAX, &|worker| {
            for phase in 0..10 {
                let count = |piece: usize| {
                    phases.fetch_add(usize::from(piece == 0), Ordering::Relaxed);
                };
                if !worker.share(4, || phase == last, count) {
                    return;
                }
            }
        })
        .unwrap();
        assert_eq!(phases.into_inner(), last + 1);
    }
}

#[test]
fn a_panic_is_an_error_and_nobody_hangs() {
    let mut team = Team::new(3).unwrap();
    let outcome = team.run(usize::MAX, &|worker| {
        worker.share(50, || false, |piece| assert_ne!(piece, 30, "on purpose"));
    });
    assert!(outcome.is_err());
    assert!(team.run(usize::MAX, &|_| {}).is_err());
}
