use super::*;
use crate::ErrorKind;

fn layout() -> KvLayout {
    let groups = vec![
        KvGroup { positions: KvPositions::Full, block_words: 3, block_format: "F32 3".into() },
        KvGroup {
            positions: KvPositions::SlidingWindow { window: 7, sinks: 2 },
            block_words: 20,
            block_format: "Int8 20".into(),
        },
        KvGroup { positions: KvPositions::RecurrentState, block_words: 1, block_format: String::new() },
    ];
    KvLayout { block_positions: 64, groups }
}

fn identity() -> KvIdentity {
    KvIdentity { model: [7; 32], skipped_layers: vec![2, 5] }
}

/// Two blocks of the first group, and one of each other.
fn file() -> Vec<u8> {
    let mut writer = KvFileWriter::default();
    for (group, index, words) in [(0, 0, 3), (0, 1, 3), (1, 4, 20), (2, 0, 1)] {
        let filled = writer.block(group, index, |out| {
            out.extend((0..4 * words).map(|byte| (byte + index) as u8));
            Ok(())
        });
        filled.unwrap();
    }
    writer.finish(&identity(), &layout(), &[1, 2, 3], b"session").unwrap()
}

#[test]
fn files_are_read_as_written() {
    let bytes = file();
    let file = KvFile::parse(&bytes).unwrap();
    assert_eq!((&file.identity, &file.layout, &*file.tokens), (&identity(), &layout(), &[1, 2, 3][..]));
    assert_eq!((file.session, file.block_count()), (&b"session"[..], 4));
    assert!(file.block_numbers(0).eq([0, 1]) && file.block_numbers(1).eq([4]));
    let second = file.block(0, 1).unwrap().unwrap();
    assert_eq!(second, [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]);
    assert_eq!(file.block(1, 0).unwrap(), None);
    assert_eq!(file.block(9, 0).unwrap(), None);
}

#[test]
fn every_damaged_byte_is_detected_or_padding() {
    let bytes = file();
    let whole = KvFile::parse(&bytes).unwrap();
    let contents = |file: &KvFile<'_>| -> Result<Vec<Vec<[u8; 4]>>, crate::Error> {
        [(0, 0), (0, 1), (1, 4), (2, 0)]
            .into_iter()
            .map(|(group, index)| Ok(file.block(group, index)?.unwrap_or_default().to_vec()))
            .collect()
    };
    let expected = contents(&whole).unwrap();
    let mut detected = 0;
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x40;
        let Ok(file) = KvFile::parse(&damaged) else {
            detected += 1;
            continue;
        };
        match contents(&file) {
            Ok(contents) => {
                assert_eq!((contents, &file.tokens), (expected.clone(), &whole.tokens), "byte {at}");
                assert_eq!(bytes[at], 0, "byte {at} is not padding");
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Integrity);
                detected += 1;
            }
        }
    }
    assert!(detected > 600, "{detected} of {} bytes", bytes.len());
    for length in 0..bytes.len() {
        assert!(KvFile::parse(&bytes[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn a_damaged_block_is_named_and_leaves_the_others() {
    let mut bytes = file();
    let start = KvFile::parse(&bytes).unwrap().records[1].offset as usize;
    bytes[start] ^= 1;
    let file = KvFile::parse(&bytes).unwrap();
    assert!(file.block(0, 0).unwrap().is_some() && file.block(1, 4).unwrap().is_some());
    assert_eq!(file.block(0, 1).unwrap_err().location(), "block 1 of group 0");
}

#[test]
fn other_versions_and_formats_are_rejected() {
    let mut bytes = file();
    bytes[8] = 2;
    assert_eq!(KvFile::parse(&bytes).unwrap_err().kind(), ErrorKind::Version);
    bytes[..8].copy_from_slice(&crate::file::MAGIC);
    let error = KvFile::parse(&bytes).unwrap_err();
    assert_eq!((error.kind(), error.location()), (ErrorKind::Corrupt, "header.magic"));
}

#[test]
fn blocks_out_of_order_are_rejected() {
    let mut writer = KvFileWriter::default();
    for index in [1, 0] {
        writer
            .block(0, index, |out| {
                out.extend([0; 12]);
                Ok(())
            })
            .unwrap();
    }
    let bytes = writer.finish(&identity(), &layout(), &[], &[]).unwrap();
    assert_eq!(KvFile::parse(&bytes).unwrap_err().location(), "block table.index");
}
