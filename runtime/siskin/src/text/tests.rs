use super::*;

/// A small deterministic generator of test cases.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

fn pieces<'a>(bytes: &'a [u8], dice: &mut Dice) -> Vec<&'a [u8]> {
    let mut rest = bytes;
    let mut list = Vec::new();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(dice.roll(5).min(rest.len()));
        list.push(piece);
        rest = after;
    }
    list
}

/// Returns the text before the stop string that ends first, the longest of those that end together.
fn cut<'a>(text: &'a str, stops: &[&str]) -> (&'a str, bool) {
    for end in 0..=text.len() {
        let longest = stops.iter().filter(|stop| text.as_bytes()[..end].ends_with(stop.as_bytes()));
        if let Some(length) = longest.map(|stop| stop.len()).max() {
            return (&text[..end - length], true);
        }
    }
    (text, false)
}

#[test]
fn bytes_cut_anywhere_are_what_lossy_decoding_makes_of_them() {
    // Bytes that begin, continue or break characters of all lengths.
    let alphabet = [
        0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc2, 0xdf, 0xe0, 0xe2, 0xed, 0xef, 0xf0,
        0xf1, 0xf4, 0xf5, 0xff, 0x82, 0xac, 0x98,
    ];
    let mut dice = Dice(1);
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..dice.roll(12)).map(|_| alphabet[dice.roll(alphabet.len())]).collect();
        let (mut stream, mut text) = (Utf8Stream::new(), String::new());
        pieces(&bytes, &mut dice).iter().for_each(|piece| stream.push(piece, &mut text));
        stream.finish(&mut text);
        assert_eq!(text, String::from_utf8_lossy(&bytes), "{bytes:x?}");
    }
}

#[test]
fn characters_come_as_soon_as_they_are_whole() {
    let mut stream = Utf8Stream::new();
    let mut seen = Vec::new();
    for byte in "a€😀é".bytes() {
        let mut text = String::new();
        stream.push(&[byte], &mut text);
        seen.push(text);
    }
    assert_eq!(seen, ["a", "", "", "€", "", "", "", "😀", "", "é"]);
    let mut text = String::new();
    stream.push(b"\xf0\x9fA", &mut text);
    assert_eq!(text, "\u{fffd}A");
}

#[test]
fn stops_are_found_however_the_text_is_cut() {
    let sets: &[&[&str]] = &[
        &["ab"],
        &["aab", "ab"],
        &["abab", "ba"],
        &["aaaa"],
        &["abcab", "bca", "cc"],
        &["é", "bé"],
        &["b€a", "€"],
        &["ab", "ab"],
        &[],
    ];
    let letters = ["a", "b", "c", "é", "€"];
    let mut dice = Dice(2);
    for stops in sets {
        let mut stream = TextStream::new(stops).unwrap();
        for _ in 0..2_000 {
            let text: String = (0..dice.roll(14)).map(|_| letters[dice.roll(letters.len())]).collect();
            let (expected, stopped) = cut(&text, stops);
            stream.reset();
            let mut shown = String::new();
            for piece in pieces(text.as_bytes(), &mut dice) {
                shown.push_str(stream.push(piece).text);
                assert!(expected.starts_with(&shown), "{shown:?} of {text:?} was shown too early");
            }
            let step = stream.finish();
            shown.push_str(step.text);
            assert_eq!((shown.as_str(), step.stopped), (expected, stopped), "{text:?} with {stops:?}");
            assert_eq!(stream.hit().is_some(), stopped);
        }
    }
}

#[test]
fn only_what_may_become_a_stop_is_held() {
    let mut stream = TextStream::new(&["abac", "xyz"]).unwrap();
    let shown: Vec<String> = "qabaxabab".bytes().map(|byte| stream.push(&[byte]).text.to_owned()).collect();
    assert_eq!(shown, ["q", "", "", "", "aba", "x", "", "", "ab"]);
    assert_eq!(stream.finish(), TextDelta { text: "ab", stopped: false });
}

#[test]
fn after_a_stop_there_is_nothing() {
    let mut stream = TextStream::new(&["no", "stop", "top"]).unwrap();
    assert_eq!(stream.push(b"a stop b"), TextDelta { text: "a ", stopped: true });
    assert_eq!(stream.hit(), Some(1));
    assert_eq!(stream.push(b"more"), TextDelta { text: "", stopped: true });
    assert_eq!(stream.finish(), TextDelta { text: "", stopped: true });
    stream.reset();
    assert_eq!(stream.push(b"more"), TextDelta { text: "more", stopped: false });
}

#[test]
fn an_unfinished_character_at_the_end_is_shown_as_lost() {
    let mut stream = TextStream::new(&["\u{fffd}x", "b\u{fffd}"]).unwrap();
    assert_eq!(stream.push(b"a\xe2\x82").text, "a");
    assert_eq!(stream.finish(), TextDelta { text: "\u{fffd}", stopped: false });
    assert_eq!(stream.push(b"ab\xe2\x82").text, "a");
    assert_eq!(stream.finish(), TextDelta { text: "", stopped: true });
}

#[test]
fn bad_stops_are_rejected() {
    assert_eq!(StopStrings::new(&["a", ""]).unwrap_err().location(), "stop[1]");
    assert_eq!(StopStrings::new(&["a".repeat(70_000)]).unwrap_err().location(), "stop[0]");
}

#[test]
fn long_texts_stay_linear_and_small() {
    let stop = format!("{}b", "a".repeat(30_000));
    let mut stream = TextStream::new(&[stop]).unwrap();
    let piece = [b'a'; 64];
    let mut shown = 0;
    for _ in 0..20_000 {
        shown += stream.push(&piece).text.len();
    }
    assert_eq!(shown, 64 * 20_000 - 30_000);
    assert!(stream.stops.held.capacity() < 100_000);
    let room = |stream: &TextStream| {
        (stream.stops.held.capacity(), stream.decoded.capacity(), stream.output.capacity())
    };
    let before = room(&stream);
    for _ in 0..1_000 {
        stream.push(&piece);
    }
    assert_eq!(room(&stream), before);
    assert!(stream.push(b"b").stopped);
}
