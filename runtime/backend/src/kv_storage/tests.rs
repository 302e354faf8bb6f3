use super::{KvStorage, KvStorageLayout};
use crate::block_table::{
    BlockLayout, BlockTable, CacheOptions, CacheTypes, KvBudget, KvGroupKind, NO_BLOCK, SequenceId,
};
use crate::{BlockStorage as _, ForwardPass, ModelPart};
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::{Attention, AttentionMask, Graph, Node, Op};
use siskin_kernels::ops::attention::{BLOCK, CacheType, HeadCache as _};

fn attention(layer: usize, attention_mask: AttentionMask) -> Attention {
    Attention { layer, attention_mask, ..Attention::causal(2, 16) }
}

/// A block table and its storage, as a context has them.
struct Cache {
    attentions: Vec<Attention>,
    table: BlockTable,
    storage: KvStorage,
}

impl Cache {
    fn with(masks: &[AttentionMask], options: CacheOptions, budget: Option<KvBudget>) -> Result<Self> {
        let attentions: Vec<_> =
            masks.iter().enumerate().map(|(layer, mask)| attention(layer, *mask)).collect();
        let node = |attention: &Attention| Node {
            op: Op::Attention(attention.clone()),
            inputs: Vec::new(),
            output: 0,
        };
        let graph = Graph { nodes: attentions.iter().map(node).collect(), ..Graph::default() };
        let pass =
            ForwardPass { graph, part: ModelPart::Decoder, max_rows: 0, max_output_rows: 0, positions: 0 };
        let blocks = BlockLayout::new(&attentions.iter().collect::<Vec<_>>(), false, options);
        let layout = KvStorageLayout::new(&[pass], &blocks)?;
        let blocks = match budget {
            None => blocks,
            Some(budget) => blocks.within(budget, &layout.block_bytes())?,
        };
        let storage = KvStorage::new(layout, &blocks)?;
        Ok(Self { attentions, table: BlockTable::new(blocks), storage })
    }

    fn new(windows: &[Option<usize>], context: usize) -> Self {
        let masks: Vec<_> = windows.iter().map(|window| AttentionMask::Causal(*window)).collect();
        Self::with(&masks, options(context), None).unwrap()
    }

    fn extend(&mut self, sequence: SequenceId, count: usize) {
        self.table.extend(sequence, count).unwrap();
        self.copy_blocks();
        self.table.commit(sequence);
    }

    fn copy_blocks(&mut self) {
        self.table.make_copies(|copy| self.storage.copy(copy)).unwrap();
    }

    fn fork(&mut self, sequence: SequenceId) -> SequenceId {
        self.table.fork_at(sequence, self.table.length(sequence).unwrap()).unwrap()
    }

    fn store(&self, sequence: SequenceId, position: usize, number: f32) {
        let view = self.storage.view(&self.table).layer(&self.attentions[0], sequence).unwrap();
        // SAFETY: the test is single-threaded.
        unsafe { view.head(1).store(position, &[(&[number; 16], &[-number; 16])]) }
    }

    fn value(&self, sequence: SequenceId, position: usize) -> f32 {
        let head = self.storage.view(&self.table).layer(&self.attentions[0], sequence).unwrap().head(1);
        let (_, values) = head.block(position / BLOCK);
        -f32::from_bits(values[position % BLOCK * 16])
    }
}

fn options(context: usize) -> CacheOptions {
    CacheOptions {
        types: CacheTypes::all(CacheType::F32),
        context_length: context,
        max_sequences: 2,
        max_batch_tokens: 8,
        encoder_context: 0,
    }
}

#[test]
fn a_fork_shares_until_one_side_writes() {
    let mut cache = Cache::new(&[None], 256);
    let first = cache.table.create();
    cache.extend(first, 70);
    cache.store(first, 69, 1.0);
    let second = cache.fork(first);
    cache.extend(second, 1);
    cache.store(second, 70, 2.0);
    cache.extend(first, 1);
    cache.store(first, 70, 3.0);
    assert_eq!([cache.value(first, 69), cache.value(second, 69)], [1.0, 1.0]);
    assert_eq!([cache.value(first, 70), cache.value(second, 70)], [3.0, 2.0]);
}

#[test]
fn a_fork_at_a_length_shares_only_the_tokens_before_it() {
    let mut cache = Cache::new(&[None], 256);
    let first = cache.table.create();
    cache.extend(first, 130);
    (0..130).for_each(|position| cache.store(first, position, position as f32));
    let second = cache.table.fork_at(first, 70).unwrap();
    assert_eq!(cache.table.blocks(second, 0).unwrap(), &cache.table.blocks(first, 0).unwrap()[..2]);
    cache.extend(second, 10);
    cache.store(second, 70, -1.0);
    assert_eq!(
        [cache.value(first, 70), cache.value(second, 70), cache.value(second, 69)],
        [70.0, -1.0, 69.0]
    );
    assert_eq!(cache.table.fork_at(first, 131).unwrap_err().kind(), ErrorKind::Argument);
}

#[test]
fn a_copy_that_fails_leaves_the_block_shared() {
    let mut cache = Cache::new(&[None, Some(8)], 256);
    let first = cache.table.create();
    cache.extend(first, 70);
    cache.store(first, 69, 1.0);
    let second = cache.fork(first);
    let shared = [0, 1].map(|group| cache.table.blocks(second, group).unwrap().to_vec());
    let free = [0, 1].map(|group| cache.table.free_blocks(group).len());
    for successes in [0, 1] {
        cache.table.extend(second, 1).unwrap();
        let mut made = 0;
        let failed = cache.table.make_copies(|copy| {
            made += 1;
            if made > successes { Err(Error::unsupported("copy", "no")) } else { cache.storage.copy(copy) }
        });
        assert_eq!((failed.is_err(), made), (true, successes + 1));
        cache.table.roll_back(second, 70);
        for group in successes..2 {
            assert_eq!(cache.table.blocks(second, group).unwrap(), shared[group], "{successes}");
            assert_eq!(cache.table.free_blocks(group).len(), free[group]);
        }
        assert_eq!([cache.value(first, 69), cache.value(second, 69)], [1.0, 1.0], "{successes}");
        cache.table.make_copies(|_| panic!("nothing is due")).unwrap();
    }
    cache.extend(second, 1);
    cache.store(second, 69, 2.0);
    assert_eq!([cache.value(first, 69), cache.value(second, 69)], [1.0, 2.0]);
    [first, second].into_iter().for_each(|sequence| cache.table.remove(sequence));
    assert_eq!(cache.table.free_blocks(0).len(), 8);
}

/// The second copy is into the block that the first is from: the sequence that shared it has dropped it.
#[test]
fn copies_that_fail_are_undone_backwards() {
    let mut cache = Cache::with(
        &[AttentionMask::Causal(Some(8))],
        CacheOptions { max_sequences: 4, ..options(256) },
        None,
    )
    .unwrap();
    let first = cache.table.create();
    cache.extend(first, 70);
    cache.store(first, 69, 1.0);
    let ahead = cache.fork(first);
    let third = cache.table.create();
    cache.extend(third, 70);
    cache.store(third, 69, 3.0);
    let last = cache.fork(third);
    // Only `first` and `ahead` have this block; `ahead` drops it when it has moved its window.
    let shared = *cache.table.blocks(first, 0).unwrap().last().unwrap();
    cache.extend(ahead, 1);
    let own = *cache.table.blocks(ahead, 0).unwrap().last().unwrap();
    assert_ne!(own, shared);
    cache.table.truncate(ahead, 0).unwrap();
    cache.table.attach(ahead, 70, &[cache.table.blocks(first, 0).unwrap().to_vec().as_slice()]).unwrap();
    cache.table.extend(first, 1).unwrap();
    cache.table.remove(ahead);
    cache.table.extend(last, 1).unwrap();
    assert_eq!(cache.table.blocks(last, 0).unwrap().last(), Some(&shared), "the freed block is the next one");
    cache.table.make_copies(|_| Err(Error::unsupported("copy", "no"))).unwrap_err();
    [(first, 70), (last, 70)].into_iter().for_each(|(id, length)| cache.table.roll_back(id, length));
    let values = [first, third, last].map(|sequence| cache.value(sequence, 69));
    assert_eq!(values, [1.0, 3.0, 3.0]);
}

#[test]
fn attached_blocks_are_shared_and_must_fit() {
    let mut cache = Cache::new(&[None], 256);
    let [first, second] = [cache.table.create(), cache.table.create()];
    cache.extend(first, 128);
    cache.store(first, 100, 1.0);
    let blocks = cache.table.blocks(first, 0).unwrap().to_vec();
    for wrong in [&blocks[..1], &[blocks[0], NO_BLOCK], &[blocks[0], 7]] {
        assert_eq!(cache.table.attach(second, 128, &[wrong]).unwrap_err().kind(), ErrorKind::Argument);
    }
    cache.table.reserve(first, 64).unwrap();
    let reserved = cache.table.blocks(first, 0).unwrap().to_vec();
    assert_eq!(reserved.len(), 3);
    let error = cache.table.attach(second, 192, &[&reserved]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument, "the third block is only reserved");
    cache.table.attach(second, 128, &[&blocks]).unwrap();
    cache.table.remove(first);
    assert_eq!((cache.table.length(second).unwrap(), cache.value(second, 100)), (128, 1.0));
    assert_eq!(cache.table.attach(second, 128, &[&blocks]).unwrap_err().kind(), ErrorKind::State);
    cache.table.remove(second);
    assert_eq!(cache.table.free_blocks(0).len(), 8);
}

#[test]
fn reserved_blocks_cannot_be_taken_by_others() {
    let mut cache = Cache::new(&[None], 256);
    let [first, second] = [cache.table.create(), cache.table.create()];
    cache.extend(first, 10);
    cache.table.reserve(first, 200).unwrap();
    let fork = cache.fork(first);
    assert_eq!(cache.table.blocks(fork, 0).unwrap().len(), 1, "a fork has no part in what is reserved");
    cache.extend(second, 256);
    assert_eq!(cache.table.reserve(fork, 100).unwrap_err().kind(), ErrorKind::Memory);
    cache.table.remove(fork);
    cache.extend(first, 100);
    cache.extend(first, 100);
    assert_eq!(cache.table.length(first).unwrap(), 210);
}

#[test]
fn a_batch_drops_nothing_that_its_own_rows_attend_to() {
    let mut cache = Cache::new(&[Some(64)], 4096);
    let sequence = cache.table.create();
    cache.table.extend(sequence, 200).unwrap();
    cache.table.extend(sequence, 1).unwrap();
    assert!(!cache.table.blocks(sequence, 0).unwrap().contains(&NO_BLOCK), "an entry of the same batch");
    cache.table.roll_back(sequence, 0);
    assert_eq!(cache.table.length(sequence).unwrap(), 0);
    cache.extend(sequence, 200);
    cache.extend(sequence, 1);
    assert_eq!(cache.table.blocks(sequence, 0).unwrap()[..2], [NO_BLOCK; 2], "after the batch");
}

#[test]
fn a_roll_back_keeps_what_was_reserved() {
    let mut cache = Cache::new(&[None], 256);
    let sequence = cache.table.create();
    cache.extend(sequence, 10);
    cache.table.reserve(sequence, 200).unwrap();
    cache.table.set_expected_length(sequence, 300).unwrap();
    cache.table.extend(sequence, 20).unwrap();
    cache.table.roll_back(sequence, 10);
    assert_eq!((cache.table.length(sequence).unwrap(), cache.table.expected_length(sequence)), (10, 300));
    assert_eq!(cache.table.blocks(sequence, 0).unwrap().len(), 4);
    assert_eq!(cache.table.reserve(sequence, usize::MAX).unwrap_err().kind(), ErrorKind::TooLong);
}

#[test]
fn a_budget_is_overcommitted_but_never_exceeded() {
    let masks = [AttentionMask::Causal(None), AttentionMask::Causal(Some(64))];
    let all = Cache::with(&masks, options(4096), None).unwrap().storage.bytes();
    let budget = KvBudget { bytes: all * 3 / 4 };
    let mut cache = Cache::with(&masks, options(4096), Some(budget)).unwrap();
    assert!((all / 2..=budget.bytes).contains(&cache.storage.bytes()), "{} of {all}", cache.storage.bytes());
    let [first, second] = [cache.table.create(), cache.table.create()];
    (0..512).for_each(|_| cache.extend(first, 8));
    let fails = (0..512).find(|_| {
        let fails = cache.table.extend(second, 8).is_err();
        cache.table.commit(second);
        fails
    });
    assert!(fails.is_some_and(|at| at > 100), "{fails:?}");
    let error = Cache::with(&masks, options(4096), Some(KvBudget { bytes: all / 4 })).err().unwrap();
    assert_eq!((error.kind(), error.location()), (ErrorKind::Memory, "kv_budget"));
}

#[test]
fn a_window_gives_blocks_back_and_rejects_what_it_has_dropped() {
    let mut cache = Cache::new(&[Some(64), None], 4096);
    let sequence = cache.table.create();
    for _ in 0..512 {
        cache.extend(sequence, 8);
    }
    assert_eq!(cache.table.length(sequence).unwrap(), 4096);
    assert_eq!(cache.table.extend(sequence, 1).unwrap_err().kind(), ErrorKind::TooLong);
    assert_eq!(cache.table.truncate(sequence, 1000).unwrap_err().kind(), ErrorKind::State);
    cache.table.truncate(sequence, 4095).unwrap();
    cache.table.truncate(sequence, 0).unwrap();
}

#[test]
fn removed_sequences_leave_room() {
    let mut cache = Cache::new(&[None], 128);
    for _ in 0..10 {
        let sequence = cache.table.create();
        cache.extend(sequence, 128);
        cache.table.remove(sequence);
    }
    assert!(cache.table.length(0).is_err());
}

#[test]
fn a_rejected_extension_leaves_nothing_that_a_fork_could_share() {
    let mut cache = Cache::new(&[None], 256);
    let [first, full, half] = [cache.table.create(), cache.table.create(), cache.table.create()];
    cache.extend(first, 10);
    cache.extend(full, 256);
    cache.extend(half, 100);
    assert_eq!(cache.table.extend(first, 140).unwrap_err().kind(), ErrorKind::Memory);
    cache.table.remove(full);
    let fork = cache.fork(first);
    cache.extend(first, 60);
    cache.extend(fork, 60);
    cache.store(first, 69, 1.0);
    cache.store(fork, 69, 2.0);
    assert_eq!([cache.value(first, 69), cache.value(fork, 69)], [1.0, 2.0]);
}

#[test]
fn texts_of_marked_tokens_alone_fit_however_they_are_cut() {
    for texts in [vec![128], vec![1; 128], vec![63, 65]] {
        let masks = [AttentionMask::LongformerLocal(4), AttentionMask::LongformerGlobal];
        let options = CacheOptions {
            context_length: 0,
            max_sequences: texts.len(),
            max_batch_tokens: 0,
            encoder_context: 128,
            ..options(0)
        };
        let mut cache = Cache::with(&masks, options, None).unwrap();
        let ids: Vec<_> = texts.iter().map(|_| cache.table.create()).collect();
        for (&id, &count) in ids.iter().zip(&texts) {
            cache.table.begin_encoding(id, count, count, false).unwrap();
            assert_eq!(
                (cache.table.encoded_length(id).unwrap(), cache.table.global_tokens(id)),
                (count, count)
            );
            assert_eq!(cache.table.layout().groups[0].kind, KvGroupKind::Transient);
            let places = cache.table.blocks(id, 0).unwrap().len() * BLOCK;
            assert!(places >= 2 * count, "{places} places for {count} tokens");
        }
        ids.iter().for_each(|&id| cache.table.end_encoding(id));
    }
}
