//! Splits a slice into several disjoint mutable parts.

use std::ops::Range;

/// Returns the parts of `whole` at `places`, in their order. The ranges must not overlap.
///
/// # Panics
/// If they overlap, or lie beyond the slice.
pub(super) fn split_disjoint<'a, T>(whole: &'a mut [T], places: &[Range<usize>]) -> Vec<Option<&'a mut [T]>> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|&index| (places[index].start, places[index].end));
    let mut parts: Vec<Option<&mut [T]>> = places.iter().map(|_| None).collect();
    let (mut rest, mut at) = (whole, 0);
    for index in order {
        let place = &places[index];
        if place.is_empty() {
            parts[index] = Some(&mut []);
            continue;
        }
        assert!(place.start >= at, "buffers of a step overlap");
        let (_, after) = rest.split_at_mut(place.start - at);
        let (part, after) = after.split_at_mut(place.len());
        parts[index] = Some(part);
        (rest, at) = (after, place.end);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::split_disjoint;

    #[test]
    fn slices_are_returned_in_the_order_of_their_ranges() {
        let mut whole: Vec<usize> = (0..10).collect();
        let parts = split_disjoint(&mut whole, &[6..8, 0..0, 1..3, 9..10]);
        let parts: Vec<Vec<usize>> = parts.into_iter().flatten().map(|part| part.to_vec()).collect();
        assert_eq!(parts, [vec![6, 7], vec![], vec![1, 2], vec![9]]);
    }

    #[test]
    #[should_panic(expected = "overlap")]
    fn overlapping_ranges_are_rejected() {
        split_disjoint(&mut [0; 4], &[0..2, 1..3]);
    }
}
