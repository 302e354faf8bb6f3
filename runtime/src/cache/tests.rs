use super::{CacheOptions, CacheTypes, KvCache};
use crate::ErrorKind;
use crate::graph::{Attention, AttentionMask};
use siskin_kernels::ops::attention::{BLOCK, CacheType, HeadCache as _};

fn attention(layer: usize, window: Option<usize>) -> Attention {
    Attention {
        layer,
        heads: 2,
        kv_heads: 2,
        head_size: 16,
        scale: 1.0,
        attention_mask: AttentionMask::Causal(window),
        softcap: None,
        alibi: Vec::new(),
        bias: None,
        sinks: None,
        projection: None,
    }
}

fn cache(windows: &[Option<usize>], context: usize) -> KvCache {
    let layers: Vec<_> =
        windows.iter().enumerate().map(|(layer, window)| attention(layer, *window)).collect();
    let options =
        CacheOptions { types: CacheTypes::all(CacheType::F32), context, sequences: 2, batch: 8, text: 0 };
    KvCache::new(layers.iter(), [].into_iter(), options).unwrap()
}

fn store(
    cache: &KvCache,
    sequence: usize,
    layer: usize,
    window: Option<usize>,
    position: usize,
    number: f32,
) {
    let view = cache.layer(&attention(layer, window), sequence).unwrap();
    // SAFETY: the test is single-threaded.
    unsafe { view.head(1).store(position, &[(&[number; 16], &[-number; 16])]) }
}

fn value(cache: &KvCache, sequence: usize, layer: usize, window: Option<usize>, position: usize) -> f32 {
    let head = cache.layer(&attention(layer, window), sequence).unwrap().head(1);
    let (_, values) = head.block(position / 64);
    -f32::from_bits(values[position % 64 * 16])
}

#[test]
fn a_fork_shares_until_one_side_writes() {
    let mut cache = cache(&[None], 256);
    let first = cache.create();
    cache.extend(first, 70).unwrap();
    store(&cache, first, 0, None, 69, 1.0);
    let second = cache.fork(first).unwrap();
    cache.extend(second, 1).unwrap();
    store(&cache, second, 0, None, 70, 2.0);
    cache.extend(first, 1).unwrap();
    store(&cache, first, 0, None, 70, 3.0);
    assert_eq!([value(&cache, first, 0, None, 69), value(&cache, second, 0, None, 69)], [1.0, 1.0]);
    assert_eq!([value(&cache, first, 0, None, 70), value(&cache, second, 0, None, 70)], [3.0, 2.0]);
}

#[test]
fn a_window_gives_blocks_back_and_refuses_what_it_has_dropped() {
    let mut cache = cache(&[Some(64), None], 4096);
    let sequence = cache.create();
    for _ in 0..512 {
        cache.extend(sequence, 8).unwrap();
    }
    assert_eq!(cache.length(sequence).unwrap(), 4096);
    assert_eq!(cache.extend(sequence, 1).unwrap_err().kind(), ErrorKind::TooLong);
    assert_eq!(cache.truncate(sequence, 1000).unwrap_err().kind(), ErrorKind::State);
    cache.truncate(sequence, 4095).unwrap();
    cache.truncate(sequence, 0).unwrap();
}

#[test]
fn removed_sequences_leave_room() {
    let mut cache = cache(&[None], 128);
    for _ in 0..10 {
        let sequence = cache.create();
        cache.extend(sequence, 128).unwrap();
        cache.remove(sequence);
    }
    assert!(cache.length(0).is_err());
}

#[test]
fn a_refused_extension_leaves_nothing_that_a_fork_could_share() {
    let mut cache = cache(&[None], 256);
    let [first, full, half] = [cache.create(), cache.create(), cache.create()];
    cache.extend(first, 10).unwrap();
    cache.extend(full, 256).unwrap();
    cache.extend(half, 100).unwrap();
    assert_eq!(cache.extend(first, 140).unwrap_err().kind(), ErrorKind::Memory);
    cache.remove(full);
    let fork = cache.fork(first).unwrap();
    cache.extend(first, 60).unwrap();
    cache.extend(fork, 60).unwrap();
    store(&cache, first, 0, None, 69, 1.0);
    store(&cache, fork, 0, None, 69, 2.0);
    assert_eq!([value(&cache, first, 0, None, 69), value(&cache, fork, 0, None, 69)], [1.0, 2.0]);
}

#[test]
fn texts_of_marked_tokens_alone_fit_however_they_are_cut() {
    for texts in [vec![128], vec![1; 128], vec![63, 65]] {
        let near = Attention { attention_mask: AttentionMask::LongformerLocal(4), ..attention(0, None) };
        let all = Attention { attention_mask: AttentionMask::LongformerGlobal, ..attention(1, None) };
        let options = CacheOptions {
            types: CacheTypes::all(CacheType::F32),
            context: 0,
            sequences: texts.len(),
            batch: 0,
            text: 128,
        };
        let mut cache = KvCache::new([&near, &all].into_iter(), [].into_iter(), options).unwrap();
        let ids: Vec<_> = texts.iter().map(|_| cache.create()).collect();
        for (&id, &count) in ids.iter().zip(&texts) {
            cache.read(id, count, count, false).unwrap();
            assert_eq!((cache.text(id).unwrap(), cache.marked(id)), (count, count));
            let places = cache.layer(&near, id).unwrap().blocks.len() * BLOCK;
            assert!(places >= 2 * count, "{places} places for {count} tokens");
        }
        ids.iter().for_each(|&id| cache.pass(id));
    }
}
