//! Event files, as TensorBoard reads them: numbers by name and step.
//!
//! A record is its length, a sum of that, the bytes, a sum of these; the bytes are a protocol buffer of which only what
//! is needed here is written.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use siskin::{Error, Result};

/// The Castagnoli polynomial, its bits turned around.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// CRC-32C.
fn sum(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 })
    };
    !bytes.iter().fold(!0, step)
}

/// The sum as event files store it, so that sums of sums stay sums.
fn masked(bytes: &[u8]) -> [u8; 4] {
    sum(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// A whole number in as few groups of seven bits as it needs.
fn number(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A field that holds bytes.
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

/// An event of some numbers.
fn event(step: u64, numbers: &[(&str, f64)]) -> Vec<u8> {
    let mut summary = Vec::new();
    for (name, value) in numbers {
        let mut scalar = Vec::new();
        bytes(1, name.as_bytes(), &mut scalar);
        scalar.push(2 << 3 | 5);
        scalar.extend((*value as f32).to_le_bytes());
        bytes(1, &scalar, &mut summary);
    }
    let mut event = Vec::new();
    time(&mut event);
    event.push(2 << 3);
    number(step, &mut event);
    bytes(5, &summary, &mut event);
    event
}

/// A file of events.
#[derive(Debug)]
pub struct Events {
    file: File,
    place: String,
}

impl Events {
    /// A new file in `folder`, named as TensorBoard looks for it.
    pub fn create(folder: &Path) -> Result<Self> {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let path = folder.join(format!("events.out.tfevents.{seconds}.siskin.{}", std::process::id()));
        let place = path.display().to_string();
        let file = File::create(path).map_err(|error| Error::io(&place, &error))?;
        let mut events = Self { file, place };
        let mut first = Vec::new();
        time(&mut first);
        bytes(3, b"brain.Event:2", &mut first);
        events.write(&first)?;
        Ok(events)
    }

    /// Numbers of a step.
    pub fn add(&mut self, step: u64, numbers: &[(&str, f64)]) -> Result<()> {
        self.write(&event(step, numbers))
    }

    fn write(&mut self, event: &[u8]) -> Result<()> {
        self.file.write_all(&record(event)).map_err(|error| Error::io(&self.place, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_standard() {
        assert_eq!(sum(b"123456789"), 0xe306_9283);
        assert_eq!(sum(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn a_record_holds_what_its_sums_say() {
        let event = event(300, &[("loss", 1.5)]);
        let summary = [&[10, 11, 10, 4][..], b"loss", &[21], &1.5_f32.to_le_bytes()].concat();
        assert_eq!(event[9..], [&[16, 0xac, 2, 42, 13][..], &summary].concat());
        let record = record(&event);
        assert_eq!(record.len(), 16 + event.len());
        assert_eq!(record[8..12], masked(&record[..8]));
    }
}
