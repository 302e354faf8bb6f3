//! The arena planner: buffers with disjoint lifetimes share memory.

use std::cmp::Reverse;
use std::ops::Range;

/// A buffer, and the steps in which it is live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferLifetime {
    /// From the first to the last step that uses it.
    pub steps: Range<usize>,
    /// Its size in elements.
    pub size: usize,
}

/// The offsets of buffers in an arena.
///
/// Offsets are assigned greedily ([arXiv:2001.03288](https://arxiv.org/abs/2001.03288)): each buffer is at the lowest
/// offset that is free for its whole lifetime. The largest buffer comes first, or the one that is used first, whichever
/// order needs less memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArenaPlan {
    /// The range of each buffer, in the order in which they were given; empty buffers are at 0.
    pub ranges: Vec<Range<usize>>,
    /// The size of the arena, in elements.
    pub size: usize,
}

impl ArenaPlan {
    /// Plans an arena for some buffers.
    pub fn new(buffers: &[BufferLifetime]) -> Self {
        let mut order: Vec<usize> = (0..buffers.len()).filter(|&index| buffers[index].size > 0).collect();
        order
            .sort_unstable_by_key(|&index| (Reverse(buffers[index].size), buffers[index].steps.start, index));
        let by_size = Self::in_order(buffers, &order);
        order.sort_unstable_by_key(|&index| (buffers[index].steps.start, index));
        let by_first_use = Self::in_order(buffers, &order);
        if by_first_use.size < by_size.size { by_first_use } else { by_size }
    }

    /// Assigns offsets to the buffers in `order`.
    fn in_order(buffers: &[BufferLifetime], order: &[usize]) -> Self {
        let mut plan = Self { ranges: vec![0..0; buffers.len()], size: 0 };
        for (done, &index) in order.iter().enumerate() {
            let BufferLifetime { steps, size } = &buffers[index];
            let overlaps = |other: &Range<usize>| other.start < steps.end && steps.start < other.end;
            let placed = order[..done].iter().filter(|&&other| overlaps(&buffers[other].steps));
            let mut taken: Vec<Range<usize>> = placed.map(|&other| plan.ranges[other].clone()).collect();
            taken.sort_unstable_by_key(|range| range.start);
            let mut start = 0;
            for range in taken {
                if range.start >= start + size {
                    break;
                }
                start = start.max(range.end);
            }
            plan.size = plan.size.max(start + size);
            plan.ranges[index] = start..start + size;
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(steps: Range<usize>, size: usize) -> BufferLifetime {
        BufferLifetime { steps, size }
    }

    #[test]
    fn buffers_that_are_never_live_together_share_memory() {
        let plan = ArenaPlan::new(&[buffer(0..2, 10), buffer(2..4, 10), buffer(1..3, 5)]);
        assert_eq!(plan, ArenaPlan { ranges: vec![0..10, 0..10, 10..15], size: 15 });
    }

    #[test]
    fn small_buffers_fill_gaps() {
        let plan = ArenaPlan::new(&[buffer(0..3, 8), buffer(0..1, 4), buffer(0..9, 6), buffer(5..6, 4)]);
        assert_eq!(plan.ranges, [0..8, 14..18, 8..14, 0..4]);
        assert_eq!(plan.size, 18);
    }

    #[test]
    fn the_better_order_is_used() {
        let buffers = [buffer(0..3, 2), buffer(2..4, 1), buffer(3..6, 1), buffer(4..5, 2)];
        assert_eq!(ArenaPlan::in_order(&buffers, &[0, 3, 1, 2]).size, 4);
        assert_eq!(ArenaPlan::new(&buffers).size, 3);
    }

    #[test]
    fn empty_buffers_take_no_memory() {
        assert_eq!(ArenaPlan::new(&[]), ArenaPlan::default());
        assert_eq!(ArenaPlan::new(&[buffer(0..9, 0)]), ArenaPlan { ranges: vec![0..0; 1], size: 0 });
    }
}
