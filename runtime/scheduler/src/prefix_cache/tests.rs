use super::*;

const SALT: CacheSalt = CacheSalt([0; 16]);

fn text(seed: u32, length: usize) -> Vec<u32> {
    (0..length as u32).map(|index| index.wrapping_mul(seed.wrapping_mul(2) + 1) % 97).collect()
}

/// All blocks collide in a few bits.
fn short_hash(chain: &ChainHash, tokens: &[u32]) -> ChainHash {
    let mut hash = [0; 16];
    hash[0] = blake3_block(chain, tokens)[0] & 3;
    hash
}

fn find(cache: &mut PrefixCache, salt: CacheSalt, tokens: &[u32]) -> Option<(SequenceId, usize)> {
    cache.find(salt, tokens, |sequence, _| Some(sequence))
}

#[test]
fn the_longest_common_prefix_is_found() {
    for hash in [blake3_block as HashBlock, short_hash] {
        let mut cache = PrefixCache::with_hash(hash);
        let base = text(3, 300);
        for (sequence, length) in [(1, 40), (2, 130), (3, 200)] {
            let mut tokens = base[..length].to_vec();
            tokens.extend([500 + sequence; 30]);
            assert!(cache.insert(SALT, &tokens, sequence as usize, PrefixReuse::Partial).is_empty());
        }
        assert_eq!(find(&mut cache, SALT, &base), Some((3, 200)));
        let mut tokens = base[..135].to_vec();
        tokens.extend([502; 9]);
        assert_eq!(find(&mut cache, SALT, &tokens).map(|hit| hit.1), Some(135));
        assert_eq!(find(&mut cache, SALT, &[base[..130].to_vec(), vec![502; 9]].concat()), Some((2, 138)));
        assert_eq!(find(&mut cache, SALT, &base[..41]).map(|hit| hit.1), Some(40), "a token must remain");
        assert_eq!(find(&mut cache, SALT, &base[..1]), None);
        assert_eq!(find(&mut cache, SALT, &text(4, 100)).map_or(0, |hit| hit.1), 1, "token 0 is common");
        assert_eq!(find(&mut cache, CacheSalt([1; 16]), &base), None, "another salt");
    }
}

#[test]
fn prefixes_of_states_are_used_whole() {
    let mut cache = PrefixCache::default();
    let base = text(5, 200);
    cache.insert(SALT, &base[..100], 1, PrefixReuse::Whole);
    cache.insert(SALT, &base[..150], 2, PrefixReuse::Whole);
    assert_eq!(find(&mut cache, SALT, &base), Some((2, 150)));
    assert_eq!(find(&mut cache, SALT, &base[..150]), Some((1, 100)), "a token must remain");
    assert_eq!(find(&mut cache, SALT, &base[..90]), None);
}

#[test]
fn a_sequence_that_cannot_be_forked_is_skipped() {
    let mut cache = PrefixCache::default();
    let base = text(5, 200);
    cache.insert(SALT, &[&base[..150], &[900][..]].concat(), 1, PrefixReuse::Partial);
    cache.insert(SALT, &[&base[..90], &[901][..]].concat(), 2, PrefixReuse::Partial);
    let found = cache.find(SALT, &base, |sequence, length| (sequence == 2).then_some(length));
    assert_eq!(found, Some((90, 90)));
}

#[test]
fn covered_sequences_are_returned() {
    let mut cache = PrefixCache::default();
    let base = text(7, 200);
    assert!(cache.insert(SALT, &base[..100], 1, PrefixReuse::Partial).is_empty());
    assert_eq!(cache.insert(SALT, &base, 2, PrefixReuse::Partial), [1]);
    assert_eq!(cache.insert(SALT, &base[..150], 3, PrefixReuse::Partial), [3]);
    assert_eq!(cache.insert(SALT, &[], 4, PrefixReuse::Partial), [4]);
    assert_eq!(cache.len(), 1);
    assert_eq!(find(&mut cache, SALT, &base).map(|hit| hit.0), Some(2));
}

#[test]
fn the_least_recently_used_prefix_shrinks_from_its_end() {
    let mut cache = PrefixCache::default();
    let (old, new) = (text(7, 256), text(11, 256));
    cache.insert(SALT, &old, 1, PrefixReuse::Partial);
    cache.insert(SALT, &new, 2, PrefixReuse::Partial);
    find(&mut cache, SALT, &old);
    assert_eq!(cache.reclaim(), Some(Reclaimed::Truncate(2, 192)));
    assert_eq!(find(&mut cache, SALT, &new), Some((2, 192)));
    // Now the other one is older.
    assert_eq!(cache.reclaim(), Some(Reclaimed::Truncate(1, 192)));
    assert_eq!(cache.reclaim(), Some(Reclaimed::Truncate(1, 128)));
    assert_eq!(cache.reclaim(), Some(Reclaimed::Truncate(1, 64)));
    assert_eq!(cache.reclaim(), Some(Reclaimed::Remove(1)));
    cache.discard(2);
    assert_eq!(cache.reclaim(), None);
    assert!(cache.is_empty() && cache.index.is_empty());
}
