//! Transcripts as subtitles.

use std::fmt::Write;

use siskin::speech::Segment;

/// Returns segments in the format SubRip (`.srt`).
pub(super) fn sub_rip(segments: &[Segment]) -> String {
    let mut text = String::new();
    for (number, segment) in (1..).zip(segments) {
        let (start, end) = (clock(segment.start, ','), clock(segment.end, ','));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{number}\n{start} --> {end}\n{}\n", one_cue(&segment.text));
    }
    text
}

/// Returns segments in the format WebVTT (`.vtt`).
pub(super) fn web_vtt(segments: &[Segment]) -> String {
    let mut text = "WEBVTT\n\n".to_owned();
    for segment in segments {
        let (start, end) = (clock(segment.start, '.'), clock(segment.end, '.'));
        let escaped = one_cue(&segment.text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(text, "{start} --> {end}\n{escaped}\n");
    }
    text
}

/// Returns a text without blank lines, which would end it.
fn one_cue(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("\n")
}

fn clock(seconds: f64, point: char) -> String {
    let thousandths = (seconds.max(0.0) * 1000.0).round() as u64;
    let (hours, minutes) = (thousandths / 3_600_000, thousandths / 60_000 % 60);
    let (seconds, thousandths) = (thousandths / 1000 % 60, thousandths % 1000);
    format!("{hours:02}:{minutes:02}:{seconds:02}{point}{thousandths:03}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_cues() {
        let segment = |start, end, text: &str| Segment {
            start,
            end,
            text: text.to_owned(),
            ids: Vec::new(),
            log_probability: 0.0,
            no_speech_probability: 0.0,
        };
        let segments = [segment(0.0, 3.28, " A <b> & c"), segment(3600.0, 3661.5, "one\n\ntwo")];
        assert_eq!(
            sub_rip(&segments),
            "1\n00:00:00,000 --> 00:00:03,280\nA <b> & c\n\n2\n01:00:00,000 --> 01:01:01,500\none\ntwo\n\n"
        );
        assert_eq!(
            web_vtt(&segments),
            "WEBVTT\n\n00:00:00.000 --> 00:00:03.280\nA &lt;b&gt; &amp; c\n\n01:00:00.000 --> 01:01:01.500\none\ntwo\n\n"
        );
    }
}
