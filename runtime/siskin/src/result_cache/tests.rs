use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::store::ENTRY_BYTES;
use super::*;
use crate::ErrorKind;

/// A small deterministic generator of test data.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn vector(&mut self, columns: usize) -> Vec<f32> {
        (0..columns).map(|_| self.below(2001) as f32 / 1000.0 - 1.0).collect()
    }
}

/// Creates a cache with a manual clock, in seconds.
fn timed(options: ResultCacheOptions) -> (ResultCache, Arc<AtomicU64>) {
    let clock = Arc::new(AtomicU64::new(1000));
    let seconds = Arc::clone(&clock);
    (ResultCache::with_clock(options, move || Duration::from_secs(seconds.load(Ordering::Relaxed))), clock)
}

fn key(number: u64) -> Key {
    Key::of("test", &[&number.to_le_bytes()])
}

#[test]
fn keys_tell_apart_what_is_cut_otherwise() {
    let keys = [
        Key::of("a", &[b"bc", b"d"]),
        Key::of("a", &[b"b", b"cd"]),
        Key::of("a", &[b"bcd"]),
        Key::of("ab", &[b"c", b"d"]),
        Key::of("a", &[b"bc", b"d", b""]),
    ];
    for (index, key) in keys.iter().enumerate() {
        assert!(keys[index + 1..].iter().all(|other| other != key));
    }
}

/// A naive model of the same behavior: a list with the most recently used entry at its end.
struct Plain {
    list: Vec<(u64, Vec<u8>, usize)>,
    options: ResultCacheOptions,
}

impl Plain {
    fn bytes(&self) -> usize {
        self.list.iter().map(|(_, value, columns)| ENTRY_BYTES + value.len() + 4 * columns).sum()
    }

    fn get(&mut self, key: u64) -> Option<Vec<u8>> {
        let at = self.list.iter().position(|(other, ..)| *other == key)?;
        let entry = self.list.remove(at);
        self.list.push(entry);
        self.list.last().map(|(_, value, _)| value.clone())
    }

    fn put(&mut self, key: u64, value: &[u8], columns: usize) {
        self.list.retain(|(other, ..)| *other != key);
        if ENTRY_BYTES + value.len() + 4 * columns > self.options.bytes {
            return;
        }
        self.list.push((key, value.to_vec(), columns));
        while self.list.len() > self.options.entries || self.bytes() > self.options.bytes {
            self.list.remove(0);
        }
    }
}

#[test]
fn what_was_not_used_for_the_longest_time_goes_first() {
    for (entries, bytes) in [(1, 10_000), (7, 10_000), (100, 2000), (9, 1500), (0, 1000)] {
        let options = ResultCacheOptions { entries, bytes, time_to_live: None };
        let (result_cache, _) = timed(options);
        let mut plain = Plain { list: Vec::new(), options };
        let mut numbers = Numbers(entries as u64);
        for _ in 0..2000 {
            let number = numbers.below(20);
            match numbers.below(3) {
                0 => {
                    let value = vec![number as u8; numbers.below(300) as usize];
                    result_cache.insert(key(number), &value);
                    plain.put(number, &value, 0);
                }
                1 => {
                    let (value, vector) = (number.to_le_bytes(), numbers.vector(4));
                    if super::index::unit(&vector).is_some() {
                        result_cache
                            .insert_with_embedding(key(number), key(1000 + number % 2), &vector, &value)
                            .unwrap();
                        plain.put(number, &value, 4);
                    }
                }
                _ => assert_eq!(result_cache.get(&key(number)).as_deref(), plain.get(number).as_deref()),
            }
            assert_eq!((result_cache.len(), result_cache.bytes()), (plain.list.len(), plain.bytes()));
            assert!(result_cache.len() <= entries && result_cache.bytes() <= bytes);
        }
        // The LRU order is the same to the last entry, also after saving and loading.
        let (copy, _) = timed(options);
        copy.load(&result_cache.to_bytes()).unwrap();
        assert_eq!(copy.to_bytes(), result_cache.to_bytes());
        assert!(
            plain.list.iter().all(|(number, value, _)| copy.get(&key(*number)).as_deref() == Some(value))
        );
    }
}

#[test]
fn entries_expire_by_the_clock_that_was_given() {
    let (result_cache, clock) = timed(ResultCacheOptions {
        time_to_live: Some(Duration::from_secs(60)),
        ..ResultCacheOptions::default()
    });
    let index = key(9);
    result_cache.insert(key(1), b"one");
    result_cache.insert_with_embedding(key(2), index, &[1.0, 0.0], b"two").unwrap();
    clock.store(1059, Ordering::Relaxed);
    assert_eq!(result_cache.get(&key(1)).as_deref(), Some(&b"one"[..]));
    assert!(result_cache.similar(&index, &[1.0, 0.1], 0.9).is_some());
    let saved = result_cache.to_bytes();
    clock.store(1060, Ordering::Relaxed);
    assert_eq!(result_cache.get(&key(1)), None, "being used keeps nothing alive");
    assert_eq!(result_cache.similar(&index, &[1.0, 0.1], 0.9), None);
    let statistics = result_cache.statistics();
    assert_eq!(
        (statistics.hits, statistics.similarity_hits, statistics.misses, statistics.expired),
        (1, 1, 1, 1)
    );
    // Entries with a time in the future count as stored now.
    let (early, clock) = timed(ResultCacheOptions {
        time_to_live: Some(Duration::from_secs(60)),
        ..ResultCacheOptions::default()
    });
    clock.store(10, Ordering::Relaxed);
    early.load(&saved).unwrap();
    clock.store(69, Ordering::Relaxed);
    assert!(early.get(&key(1)).is_some());
    clock.store(70, Ordering::Relaxed);
    assert!(early.get(&key(1)).is_none());
    // Expired before it is loaded.
    result_cache.load(&saved).unwrap();
    assert_eq!(result_cache.get(&key(2)), None);
}

#[test]
fn the_nearest_is_found_while_others_come_and_go() {
    let options = ResultCacheOptions { entries: 40, ..ResultCacheOptions::default() };
    let (result_cache, _) = timed(options);
    let mut numbers = Numbers(5);
    let mut kept: Vec<(u64, Vec<f32>)> = Vec::new();
    let cosine = |a: &[f32], b: &[f32]| {
        let sum =
            |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        sum(a, b) / (sum(a, a) * sum(b, b)).sqrt()
    };
    for number in 0..400 {
        let vector = numbers.vector(37);
        result_cache.insert_with_embedding(key(number), key(9), &vector, &number.to_le_bytes()).unwrap();
        kept.push((number, vector));
        if kept.len() > 40 {
            kept.remove(0);
        }
        let asked = numbers.vector(37);
        let best =
            kept.iter().max_by(|a, b| cosine(&a.1, &asked).total_cmp(&cosine(&b.1, &asked))).unwrap().clone();
        let want = cosine(&best.1, &asked);
        let near = result_cache.similar(&key(9), &asked, -1.0).unwrap();
        assert_eq!(*near.value, best.0.to_le_bytes());
        assert!((f64::from(near.similarity) - want).abs() < 1e-5);
        assert_eq!(result_cache.similar(&key(9), &asked, want as f32 + 1e-4), None);
        // The lookup made it the most recently used.
        let at = kept.iter().position(|(number, _)| *number == best.0).unwrap();
        let used = kept.remove(at);
        kept.push(used);
    }
    assert_eq!(result_cache.similar(&key(8), &[1.0; 37], -1.0), None, "another index");
    assert_eq!(result_cache.similar(&key(9), &[1.0; 36], -1.0), None);
    for vector in [vec![], vec![0.0; 37], vec![f32::NAN; 37], vec![1.0; 36]] {
        let kind = result_cache.insert_with_embedding(key(1), key(9), &vector, b"").unwrap_err().kind();
        assert_eq!(kind, ErrorKind::Argument);
    }
}

#[test]
fn no_damaged_memo_is_read() {
    let (result_cache, _) = timed(ResultCacheOptions::default());
    result_cache.insert(key(1), b"one");
    result_cache.insert_with_embedding(key(2), key(9), &[0.5, -0.5, 1.5], b"two").unwrap();
    let good = result_cache.to_bytes();
    let (other, _) = timed(ResultCacheOptions::default());
    other.insert(key(3), b"three");
    for length in 0..good.len() {
        assert!(other.load(&good[..length]).is_err(), "{length} bytes");
    }
    for place in 0..good.len() {
        let mut bad = good.clone();
        bad[place] ^= 1;
        let error = other.load(&bad).unwrap_err();
        let kinds = [ErrorKind::Corrupt, ErrorKind::Integrity, ErrorKind::Version];
        assert!(kinds.contains(&error.kind()), "byte {place}: {error}");
    }
    // Corrupt contents with a valid hash.
    let sealed = |place: usize, byte: u8| {
        let mut bad = good[..good.len() - 32].to_vec();
        bad[place] = byte;
        let hash = blake3::hash(&bad);
        bad.extend(hash.as_bytes());
        bad
    };
    assert_eq!(other.load(&sealed(8, 2)).unwrap_err().kind(), ErrorKind::Version);
    assert_eq!(other.load(&sealed(13, 1)).unwrap_err().location(), "result_cache.reserved");
    assert_eq!(other.load(&sealed(16, 1)).unwrap_err().location(), "result_cache.count");
    assert_eq!(other.load(&sealed(23, 255)).unwrap_err().location(), "result_cache[2]");
    assert_eq!(other.load(&sealed(24 + 40 + 3, 255)).unwrap_err().location(), "result_cache[0]");
    // The last value of the only vector.
    assert_eq!(
        other.load(&sealed(good.len() - 32 - 4, 0x7f)).unwrap_err().location(),
        "result_cache[1].vector"
    );
    assert_eq!(other.len(), 1, "what is rejected changes nothing");
    other.load(&good).unwrap();
    assert_eq!(other.len(), 3);
}

#[test]
fn files_are_found_again() {
    let path = std::env::temp_dir().join(format!("siskin-result_cache-{}", std::process::id()));
    let options = ResultCacheOptions::default();
    let result_cache = ResultCache::open(&path, options).unwrap();
    assert!(result_cache.is_empty());
    result_cache.insert(key(1), b"one");
    result_cache.save(&path).unwrap();
    let again = ResultCache::open(&path, options).unwrap();
    assert_eq!(again.get(&key(1)).as_deref(), Some(&b"one"[..]));
    // A smaller cache keeps the most recently used entries.
    result_cache.insert(key(2), b"two");
    result_cache.get(&key(1));
    result_cache.save(&path).unwrap();
    let small = ResultCache::open(&path, ResultCacheOptions { entries: 1, ..options }).unwrap();
    assert!(small.get(&key(1)).is_some() && small.len() == 1);
    std::fs::write(&path, b"SISKMEMO").unwrap();
    assert_eq!(ResultCache::open(&path, options).unwrap_err().kind(), ErrorKind::Corrupt);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(ResultCache::open(std::env::temp_dir(), options).unwrap_err().kind(), ErrorKind::Argument);
    for none in [ResultCacheOptions { bytes: 0, ..options }, ResultCacheOptions { entries: 0, ..options }] {
        assert_eq!(ResultCache::open(&path, none).unwrap_err().kind(), ErrorKind::Argument);
    }
}

#[test]
fn threads_share_a_result_cache() {
    let result_cache = ResultCache::new(ResultCacheOptions { entries: 50, ..ResultCacheOptions::default() });
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let result_cache = &result_cache;
            scope.spawn(move || {
                for round in 0..500_u64 {
                    let number = (thread * 31 + round * 7) % 80;
                    if let Some(value) = result_cache.get(&key(number)) {
                        assert_eq!(*value, number.to_le_bytes());
                    }
                    result_cache
                        .insert_with_embedding(
                            key(number),
                            key(99),
                            &[1.0, number as f32],
                            &number.to_le_bytes(),
                        )
                        .unwrap();
                    assert!(result_cache.similar(&key(99), &[1.0, 3.0], 0.3).is_some());
                }
            });
        }
    });
    let statistics = result_cache.statistics();
    assert_eq!(statistics.hits + statistics.misses, 2000);
    assert_eq!(result_cache.len(), 50);
}
