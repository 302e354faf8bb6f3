//! TensorBoard event files: scalars and histograms by name and step.
//!
//! A record is its length, a checksum of that, the bytes, and a checksum of these; the bytes are a protocol buffer,
//! of which only the required part is written.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use siskin_format::{Error, Result};

use crate::statistics::{StepStatistics, ValueStatistics};

/// The Castagnoli polynomial, bit-reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Computes CRC-32C.
fn sum(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 })
    };
    !bytes.iter().fold(!0, step)
}

/// Returns the masked checksum of event files.
fn masked(bytes: &[u8]) -> [u8; 4] {
    sum(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// Appends a varint.
fn number(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a length-delimited field.
fn bytes(field: u8, content: &[u8], out: &mut Vec<u8>) {
    out.push(field << 3 | 2);
    number(content.len() as u64, out);
    out.extend(content);
}

fn time(out: &mut Vec<u8>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    out.push(1 << 3 | 1);
    out.extend(now.to_le_bytes());
}

fn record(event: &[u8]) -> Vec<u8> {
    let length = (event.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), event, &masked(event)].concat()
}

/// Returns an event of values, each with its fields.
fn event(step: u64, values: &[Vec<u8>]) -> Vec<u8> {
    let mut summary = Vec::new();
    values.iter().for_each(|value| bytes(1, value, &mut summary));
    let mut event = Vec::new();
    time(&mut event);
    event.push(2 << 3);
    number(step, &mut event);
    bytes(5, &summary, &mut event);
    event
}

/// Returns a named scalar.
fn scalar(name: &str, value: f64) -> Vec<u8> {
    let mut scalar = Vec::new();
    bytes(1, name.as_bytes(), &mut scalar);
    scalar.push(2 << 3 | 5);
    scalar.extend((value as f32).to_le_bytes());
    scalar
}

/// Returns a named histogram.
fn histogram(name: &str, statistics: &ValueStatistics) -> Vec<u8> {
    let mut content = Vec::new();
    let [min, max] = statistics.bounds;
    let count = (statistics.count - statistics.non_finite) as f64;
    for (field, value) in (1_u8..).zip([min, max, count, statistics.sum, statistics.sum_of_squares]) {
        content.push(field << 3 | 1);
        content.extend(value.to_le_bytes());
    }
    let parts = statistics.histogram();
    let packed = |number: &dyn Fn(&(f64, u64)) -> f64| -> Vec<u8> {
        parts.iter().flat_map(|part| number(part).to_le_bytes()).collect()
    };
    bytes(6, &packed(&|part| part.0), &mut content);
    bytes(7, &packed(&|part| part.1 as f64), &mut content);
    let mut value = Vec::new();
    bytes(1, name.as_bytes(), &mut value);
    bytes(5, &content, &mut value);
    value
}

/// An event file.
#[derive(Debug)]
pub struct Events {
    file: File,
    place: String,
}

impl Events {
    /// Creates a new file in `folder`, with a name that TensorBoard recognizes.
    pub fn create(folder: &Path) -> Result<Self> {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let path = folder.join(format!("events.out.tfevents.{seconds}.siskin.{}", std::process::id()));
        let place = path.display().to_string();
        let file = File::create_new(path).map_err(|error| Error::io(&place, &error))?;
        let mut events = Self { file, place };
        let mut first = Vec::new();
        time(&mut first);
        bytes(3, b"brain.Event:2", &mut first);
        events.write(&first)?;
        Ok(events)
    }

    /// Adds the scalars of a step.
    pub fn add(&mut self, step: u64, numbers: &[(&str, f64)]) -> Result<()> {
        let values: Vec<Vec<u8>> = numbers.iter().map(|(name, value)| scalar(name, *value)).collect();
        self.write(&event(step, &values))
    }

    /// Adds the tensor statistics of a step: their magnitudes as scalars, and their histograms.
    pub fn add_statistics(&mut self, all: &StepStatistics) -> Result<()> {
        let mut values = Vec::new();
        for (name, statistics) in all.all() {
            for (what, number) in
                [("mean", statistics.mean()), ("rms", statistics.rms()), ("max_abs", statistics.max_abs())]
            {
                values.push(scalar(&format!("{what}/{name}"), number));
            }
            if !statistics.histogram().is_empty() {
                values.push(histogram(&name, statistics));
            }
        }
        self.write(&event(all.step, &values))
    }

    fn write(&mut self, event: &[u8]) -> Result<()> {
        self.file.write_all(&record(event)).map_err(|error| Error::io(&self.place, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_match_the_crc32c_test_vectors() {
        assert_eq!(sum(b"123456789"), 0xe306_9283);
        assert_eq!(sum(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn records_have_valid_checksums() {
        let event = event(300, &[scalar("loss", 1.5)]);
        let summary = [&[10, 11, 10, 4][..], b"loss", &[21], &1.5_f32.to_le_bytes()].concat();
        assert_eq!(event[9..], [&[16, 0xac, 2, 42, 13][..], &summary].concat());
        let record = record(&event);
        assert_eq!(record.len(), 16 + event.len());
        assert_eq!(record[8..12], masked(&record[..8]));
    }

    #[test]
    fn histograms_count_every_value_once() {
        let value = histogram("x", &ValueStatistics::of(&[0.0_f32, 1.0, 1.5, -3.0]));
        let double = |number: f64| number.to_le_bytes().to_vec();
        let mut content: Vec<u8> = Vec::new();
        for (tag, number) in [(9, -3.0), (17, 1.5), (25, 4.0), (33, -0.5), (41, 12.25)] {
            content.push(tag);
            content.extend(double(number));
        }
        assert_eq!(value[..5], [10, 1, b'x', 42, (value.len() - 6) as u8 & 0x7f | 0x80]);
        assert_eq!(value[6..6 + content.len()], content);
        // Limits and counts are packed, equally many of both.
        let rest = &value[6 + content.len()..];
        let parts = ValueStatistics::of(&[0.0_f32, 1.0, 1.5, -3.0]).histogram();
        let packed = |numbers: Vec<f64>| numbers.into_iter().flat_map(double).collect::<Vec<u8>>();
        let mut want = Vec::new();
        bytes(6, &packed(parts.iter().map(|part| part.0).collect()), &mut want);
        bytes(7, &packed(parts.iter().map(|part| part.1 as f64).collect()), &mut want);
        assert_eq!(rest, want);
        assert_eq!(want[0], 6 << 3 | 2, "the field is packed");
        assert_eq!(parts.iter().map(|part| part.1).sum::<u64>(), 4);
    }
}
