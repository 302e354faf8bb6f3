//! From the tokens of a window to segments, and to where the next window begins.

/// Frames per timestamp step.
const FRAMES: usize = 2;

/// A segment of a window, in frames from the window's beginning.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SegmentFrames<'a> {
    pub start: usize,
    pub end: usize,
    pub ids: &'a [u32],
}

/// Splits the tokens of a window of `frames` frames at consecutive timestamps, and returns the number of frames after
/// which the next window begins: at the end of the last complete segment, or after the whole window.
pub(super) fn cut(ids: &[u32], times: u32, frames: usize) -> (Vec<SegmentFrames<'_>>, usize) {
    let is_time = |index: usize| ids.get(index).is_some_and(|&id| id >= times);
    let frame = |index: usize| match ids.get(index) {
        Some(&id) if id >= times => ((id - times) as usize).saturating_mul(FRAMES).min(frames),
        _ => 0,
    };
    let mut cuts: Vec<usize> = (1..ids.len()).filter(|&at| is_time(at) && is_time(at - 1)).collect();
    if cuts.is_empty() {
        let last = (0..ids.len()).rfind(|&at| is_time(at)).map_or(0, frame);
        let end = if last > 0 { last } else { frames };
        return (vec![SegmentFrames { start: 0, end, ids }], frames);
    }
    // A single timestamp at the end closes the last segment; no speech follows it.
    let is_closed = is_time(ids.len() - 1) && !is_time(ids.len() - 2);
    if is_closed {
        cuts.push(ids.len());
    }
    let starts = std::iter::once(0).chain(cuts.iter().copied());
    let part = |(from, to): (usize, &usize)| SegmentFrames {
        start: frame(from),
        end: frame(to - 1),
        ids: &ids[from..*to],
    };
    let parts = starts.zip(&cuts).map(part).collect();
    let last = cuts.last().map_or(0, |&at| frame(at - 1));
    (parts, if is_closed || last == 0 { frames } else { last })
}
