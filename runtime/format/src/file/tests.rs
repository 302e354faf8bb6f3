use super::*;
use serde_json::{Value, json};
use std::io::{self, Cursor, Seek, SeekFrom, Write};

const Q8: PanelType = PanelType::Q8;
const DATA: usize = TENSOR_ALIGNMENT as usize;

fn metadata() -> Metadata {
    let Value::Object(config) = json!({"hidden_size": 64, "rope_theta": 10000.5, "list": [1, 2]}) else {
        panic!()
    };
    Metadata {
        architecture: "llama".into(),
        config,
        name: Some("tiny".into()),
        license: Some("MIT".into()),
        ..Metadata::default()
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + i / 251) as u8).collect()
}

fn fill<W: Write + Seek + Send>(out: W) -> Result<W> {
    let mut writer = FileWriter::new(out)?;
    let spec = TensorSpec::matrix("blk.0.attn_q.weight", Q8, 17, 65);
    // 17 rows are two panels, 65 columns two blocks of 17 lines.
    let bytes = pattern(2 * 2 * 17 * 64);
    writer.tensor(&spec, |sink| bytes.chunks(1000).try_for_each(|chunk| sink.write(chunk)))?;
    writer.tensor(&TensorSpec::vector("output_norm.weight", 3), |sink| {
        [1.5f32, -2.0, 0.25].iter().try_for_each(|number| sink.write(&number.to_le_bytes()))
    })?;
    writer.section(SectionKind::Tokenizer, b"tokens")?;
    writer.section(SectionKind::Template, "{{ é }}".as_bytes())?;
    writer.finish(&metadata())
}

fn tiny() -> Vec<u8> {
    fill(Cursor::new(Vec::new())).unwrap().into_inner()
}

fn check(file: &File) {
    assert_eq!(file.metadata(), &metadata());
    assert_eq!(file.template(), Some("{{ é }}"));
    assert_eq!(file.tokenizer().as_deref(), Some(b"tokens".as_slice()));
    assert_eq!(file.tensors().len(), 2);
    let matrix = file.tensor("blk.0.attn_q.weight").unwrap();
    assert_eq!((matrix.role, matrix.panel, matrix.rows, matrix.columns), (StorageRole::Matrix, Q8, 17, 65));
    assert_eq!(&*matrix.data, &pattern(2 * 2 * 17 * 64)[..]);
    let vector = file.tensor("output_norm.weight").unwrap();
    assert_eq!((vector.role, vector.rows, vector.columns), (StorageRole::Vector, 1, 3));
    assert_eq!(vector.floats(), [1.5, -2.0, 0.25]);
    assert!(file.tensor("output.weight").is_none());
    file.verify(&mut |_, _| true).unwrap();
}

fn kind_of(bytes: &[u8]) -> ErrorKind {
    File::from_bytes(bytes.to_vec()).map(|_| ()).expect_err("must not open").kind()
}

fn error_of(bytes: &[u8]) -> String {
    File::from_bytes(bytes.to_vec()).map(|_| ()).expect_err("must not open").to_string()
}

/// Returns the range of a section, by its index in the table: data, table, tokenizer, template, metadata.
fn section_range(bytes: &[u8], index: usize) -> std::ops::Range<usize> {
    let entry = &bytes[64 + 64 * index..];
    let number = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().unwrap()) as usize;
    number(8)..number(8).saturating_add(number(16))
}

/// Recomputes every hash except those of the tensors, so that the checks after the hashes are reached.
fn reseal(bytes: &mut [u8]) {
    let count = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    for index in 0..count.min((bytes.len() - 64) / 64) {
        let range = section_range(bytes, index);
        if index > 0
            && let Some(section) = bytes.get(range)
        {
            let hash = *blake3::hash(section).as_bytes();
            bytes[64 + 64 * index + 32..64 + 64 * index + 64].copy_from_slice(&hash);
        }
    }
    reseal_header(bytes);
}

fn reseal_header(bytes: &mut [u8]) {
    let count = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let end = 64 + 64 * count.min((bytes.len() - 64) / 64);
    bytes[32..64].fill(0);
    let hash = *blake3::hash(&bytes[..end]).as_bytes();
    bytes[32..64].copy_from_slice(&hash);
}

fn changed(at: usize, with: &[u8]) -> Vec<u8> {
    let mut bytes = tiny();
    bytes[at..at + with.len()].copy_from_slice(with);
    reseal(&mut bytes);
    bytes
}

fn folder(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("siskin-file-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn what_was_written_comes_back() {
    check(&File::from_bytes(tiny()).unwrap());
    assert_eq!(tiny(), tiny(), "the same input must give the same bytes");
}

#[test]
fn header_is_as_documented() {
    let bytes = tiny();
    assert_eq!(&bytes[..8], b"SISKIN\r\n");
    assert_eq!(&bytes[8..16], [1, 0, 0, 0, 5, 0, 0, 0]);
    assert_eq!(u64::from_le_bytes(bytes[16..24].try_into().unwrap()), bytes.len() as u64);
    let kinds: Vec<_> = (0..5).map(|index| bytes[64 + 64 * index]).collect();
    assert_eq!(kinds, [5, 4, 2, 3, 1]);
    let file = File::from_bytes(bytes.clone()).unwrap();
    let offsets: Vec<_> = file.tensors().iter().map(Tensor::offset).collect();
    assert_eq!(offsets, [DATA, 2 * DATA]);
    assert!(file.sections().map(|section| section.number).eq([5, 4, 2, 3, 1]));
    assert_eq!(
        file.sections().last().map(|section| section.offset + section.length),
        Some(bytes.len() as u64)
    );
    assert_eq!(section_range(&bytes, 0).start, DATA);
    assert_eq!(&bytes[section_range(&bytes, 3)], "{{ é }}".as_bytes());
}

#[test]
fn opens_from_path_and_from_inside_another_file() {
    let folder = folder("open");
    let path = folder.join("tiny.siskin");
    fill(AtomicFile::create(&path).unwrap()).unwrap().commit().unwrap();
    check(&File::open(&path).unwrap());

    for offset in [0, 4, 1000, 4096, 16384 + 64] {
        let path = folder.join("package.apk");
        let mut package = vec![0xa5; offset];
        package.extend(tiny());
        package.extend([0x5a; 77]);
        std::fs::write(&path, &package).unwrap();
        let open = |length| File::open_descriptor(std::fs::File::open(&path).unwrap(), offset as u64, length);
        check(&open(Some(tiny().len() as u64)).unwrap());
        assert_eq!(open(None).unwrap_err().location(), "header.length");
        assert_eq!(open(Some(u64::MAX)).unwrap_err().kind(), ErrorKind::Argument);
    }
    let beyond = File::open_descriptor(std::fs::File::open(&path).unwrap(), 1 << 40, None).unwrap_err();
    assert_eq!(beyond.location(), "offset");
    assert_eq!(File::open(folder.join("absent")).unwrap_err().kind(), ErrorKind::Io);
    std::fs::write(folder.join("empty"), b"").unwrap();
    assert_eq!(File::open(folder.join("empty")).unwrap_err().kind(), ErrorKind::Corrupt);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn every_truncation_is_rejected() {
    let whole = tiny();
    for length in (0..1024).chain((1024..whole.len()).step_by(61)) {
        let mut bytes = whole[..length].to_vec();
        assert_eq!(kind_of(&bytes), ErrorKind::Corrupt, "cut at {length}");
        if length >= 64 {
            bytes[16..24].copy_from_slice(&(length as u64).to_le_bytes());
            reseal_header(&mut bytes);
            assert_eq!(kind_of(&bytes), ErrorKind::Corrupt, "cut at {length}, length set to match");
        }
    }
}

#[test]
fn truncated_small_sections_are_rejected() {
    for (index, sections) in [(1, "tensor table"), (4, "metadata")] {
        let whole = tiny();
        for length in 0..section_range(&whole, index).len() {
            let at = 64 + 64 * index + 16;
            let error = error_of(&changed(at, &(length as u64).to_le_bytes()));
            assert!(error.starts_with(sections), "{error}");
        }
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let whole = tiny();
    for at in 0..whole.len() {
        let small = at < 400 || !(400..section_range(&whole, 1).start).contains(&at);
        let sampled = if at.is_multiple_of(5) { at as u32 % 8..at as u32 % 8 + 1 } else { 0..0 };
        for bit in if small { 0..8 } else { sampled } {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            let noticed = File::from_bytes(bytes).and_then(|file| file.verify(&mut |_, _| true));
            assert!(noticed.is_err(), "bit {bit} of byte {at}");
        }
    }
}

/// Corruption with valid hashes must give a result or an error, never a panic.
#[test]
fn flips_behind_right_hashes_never_panic() {
    let whole = tiny();
    let table = section_range(&whole, 1);
    let metadata = section_range(&whole, 4);
    let mut rejected = 0;
    for at in (0..32).chain(64..384).chain(table).chain(metadata) {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let opened = File::from_bytes(changed(at, &[value]));
            rejected += usize::from(opened.is_err());
            let _ = opened.map(|file| file.verify(&mut |_, _| true).is_ok());
        }
    }
    assert!(rejected > 100);
}

#[test]
fn wrong_headers_and_sections_have_their_errors() {
    assert_eq!(kind_of(&changed(8, &[2, 0])), ErrorKind::Version);
    assert!(File::from_bytes(changed(10, &[9, 0])).is_ok(), "a later minor version opens");
    assert!(error_of(&changed(12, &[0xff; 4])).starts_with("header.sections"));
    assert!(error_of(&changed(12, &[0; 4])).starts_with("metadata: the file has no such section"));
    let entry =
        |index: usize, field: usize, value: u64| changed(64 + 64 * index + field, &value.to_le_bytes());
    assert!(error_of(&entry(0, 16, u64::MAX)).starts_with("section table: tensor data.length: reaches past"));
    assert!(error_of(&entry(0, 8, 0)).starts_with("section table: tensor data.offset: overlaps the header"));
    assert!(error_of(&entry(0, 8, 64)).starts_with("section table: tensor data.offset: not a multiple"));
    assert!(error_of(&entry(2, 8, DATA as u64)).contains("overlaps"));
    assert!(error_of(&entry(2, 8, 3)).starts_with("section table: tokenizer.offset: not a multiple of 8"));
    let kind = |number: u32, flags: u32| {
        let mut bytes = tiny();
        bytes[64 + 128..64 + 132].copy_from_slice(&number.to_le_bytes());
        bytes[64 + 132..64 + 136].copy_from_slice(&flags.to_le_bytes());
        reseal(&mut bytes);
        bytes
    };
    assert_eq!(kind_of(&kind(99, 1)), ErrorKind::Unsupported);
    assert!(File::from_bytes(kind(99, 0)).unwrap().tokenizer().is_none(), "unknown kinds are ignored");
    assert!(error_of(&kind(3, 0)).starts_with("section table: template: occurs twice"));
    assert_eq!(kind_of(&kind(3, 0)), ErrorKind::Corrupt);
}

#[test]
fn wrong_tensor_records_have_their_errors() {
    let first = section_range(&tiny(), 1).start + 8;
    let second = first + 72 + 24;
    let number = |at: usize, value: u64| error_of(&changed(at, &value.to_le_bytes()));
    assert!(number(first + 8, 33).starts_with("tensor table: blk.0.attn_q.weight.length"));
    assert!(number(first + 8, u64::MAX).starts_with("tensor table: blk.0.attn_q.weight.length"));
    assert!(number(first + 8, 0).starts_with("tensor table: blk.0.attn_q.weight.length"));
    assert!(number(first + 16, 0).starts_with("tensor table: blk.0.attn_q.weight.length"));
    assert!(number(first + 24, DATA as u64 + 64).starts_with("tensor table: blk.0.attn_q.weight.offset"));
    assert!(number(first + 24, 0).starts_with("tensor table: blk.0.attn_q.weight.offset"));
    assert!(number(first + 24, u64::MAX - 16383).contains("extends past the tensor data section"));
    assert!(
        number(second + 24, DATA as u64).starts_with("tensor table: output_norm.weight.offset: overlaps")
    );
    assert!(number(second + 8, 2).starts_with("tensor table: output_norm.weight.length"));
    assert!(error_of(&changed(first + 2, &[7])).starts_with("tensor table: blk.0.attn_q.weight.role"));
    assert_eq!(kind_of(&changed(first + 4, &[0xff, 0xff])), ErrorKind::Unsupported);
    assert!(error_of(&changed(first, &[0, 0])).starts_with("tensor table.tensor[0].name length"));
    assert!(error_of(&changed(first + 72, &[0xff])).starts_with("tensor table.tensor[0].name: not UTF-8"));
    assert!(error_of(&changed(first - 8, &[0xff; 4])).starts_with("tensor table.count"));
    assert!(error_of(&changed(first - 8, &[1])).starts_with("tensor table.count: trailing bytes"));
}

#[test]
fn wrong_metadata_has_its_errors() {
    let parse =
        |text: &str| Metadata::parse(text.as_bytes()).map(|_| ()).expect_err("must be rejected").to_string();
    assert!(parse("").starts_with("metadata: not JSON"));
    assert!(parse("[]").starts_with("metadata: not a JSON object"));
    assert!(parse("{}").starts_with("metadata.architecture: missing"));
    assert!(parse(r#"{"architecture": 3}"#).starts_with("metadata.architecture: not a string"));
    assert!(
        parse(r#"{"architecture": "llama", "config": []}"#).starts_with("metadata.config: not an object")
    );
    assert!(parse(&"[".repeat(100_000)).starts_with("metadata: not JSON"));
    assert!(parse(&"[".repeat(2 << 20)).starts_with("metadata: the object is too large"));
}

#[test]
fn verify_rejects_what_is_reserved() {
    let table = section_range(&tiny(), 1).start;
    let (first, name) = (table + 8, "blk.0.attn_q.weight".len());
    for (at, location) in [
        (24, "header.reserved"),
        (31, "header.reserved"),
        (64 + 24, "section table.reserved"),
        (64 * 5 + 31, "section table.reserved"),
        (table + 7, "tensor table.reserved"),
        (first + 3, "tensor table.tensor[0].reserved"),
        (first + 6, "tensor table.tensor[0].reserved"),
        (first + 72 + name, "tensor table.tensor[0].reserved"),
        (first + 72 + 24 + 7, "tensor table.tensor[1].reserved"),
    ] {
        let file = File::from_bytes(changed(at, &[1])).expect("readers ignore it");
        let error = file.verify(&mut |_, _| true).unwrap_err();
        assert_eq!((error.kind(), error.location()), (ErrorKind::Corrupt, location));
    }
    let mut later = changed(24, &[1]);
    later[10] = 1;
    reseal_header(&mut later);
    File::from_bytes(later).unwrap().verify(&mut |_, _| true).unwrap();
}

#[test]
fn a_writer_rejects_what_no_reader_takes() {
    let writer = || FileWriter::new(Cursor::new(Vec::new())).unwrap();
    let with = |value: Value| {
        let config = [("x".to_owned(), value)].into_iter().collect();
        writer().finish(&Metadata { config, ..metadata() }).map(|_| ())
    };
    let deep = |depth: usize| (0..depth).fold(json!(1), |value, _| json!([value]));
    with(vec![0; 1000].into()).unwrap();
    with(deep(120)).unwrap();
    assert_eq!(with(vec![0; 1 << 20].into()).unwrap_err().kind(), ErrorKind::Argument);
    assert_eq!(with("x".repeat(16 << 20).into()).unwrap_err().kind(), ErrorKind::Argument);
    assert!(with(deep(126)).unwrap_err().message().contains("recursion"));
    assert_eq!(writer().section(SectionKind::Template, &[0xff]).unwrap_err().kind(), ErrorKind::Argument);
}

#[test]
fn only_regular_files_are_opened() {
    let error = File::open(std::env::temp_dir()).map(|_| ()).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.message().contains("folder"), "{error}");
    let error = File::open("/dev/zero").map(|_| ()).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported || cfg!(not(unix)), "{error}");
}

#[test]
fn verify_names_what_differs_and_can_be_stopped() {
    let mut bytes = tiny();
    bytes[DATA + 5] ^= 1;
    let error = File::from_bytes(bytes).unwrap().verify(&mut |_, _| true).unwrap_err();
    assert_eq!((error.kind(), error.location()), (ErrorKind::Integrity, "tensor blk.0.attn_q.weight"));
    let mut bytes = tiny();
    let at = section_range(&bytes, 2).start;
    bytes[at] ^= 1;
    let error = File::from_bytes(bytes).unwrap().verify(&mut |_, _| true).unwrap_err();
    assert_eq!((error.kind(), error.location()), (ErrorKind::Integrity, "tokenizer"));
    let file = File::from_bytes(tiny()).unwrap();
    assert_eq!(file.verify(&mut |_, _| false).unwrap_err().kind(), ErrorKind::Canceled);
    let mut last = (0, 0);
    file.verify(&mut |done, of| {
        last = (done, of);
        true
    })
    .unwrap();
    assert_eq!(last.0 + 64 + 5 * 64, last.1, "all but header and section table, which opening checks");
}

#[test]
fn a_writer_rejects_wrong_tensors() {
    let start = || FileWriter::new(Cursor::new(Vec::new())).unwrap();
    let vector = TensorSpec::vector("v", 2);
    let mut writer = start();
    assert!(
        writer
            .tensor(&vector, |sink| sink.write(&[0; 7]))
            .unwrap_err()
            .message()
            .contains("7 of its 8 bytes")
    );
    assert_eq!(writer.tensor(&vector, |sink| sink.write(&[0; 8])).unwrap_err().kind(), ErrorKind::State);
    assert_eq!(writer.finish(&metadata()).unwrap_err().kind(), ErrorKind::State);
    assert!(start().tensor(&vector, |sink| sink.write(&[0; 9])).is_err());
    assert!(start().tensor(&TensorSpec::matrix("m", Q8, u64::MAX, u64::MAX), |_| Ok(())).is_err());
    assert!(start().tensor(&TensorSpec::vector("", 1), |sink| sink.write(&[0; 4])).is_err());
    let mut writer = start();
    writer.tensor(&vector, |sink| sink.write(&[0; 8])).unwrap();
    assert!(writer.tensor(&vector, |sink| sink.write(&[0; 8])).unwrap_err().message().contains("already"));
}

/// A writer that fails after some bytes, like a full disk.
struct Full<W> {
    out: W,
    left: usize,
}

impl<W: Write> Write for Full<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left < bytes.len() {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "no space left"));
        }
        self.left -= bytes.len();
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W: Seek> Seek for Full<W> {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.out.seek(position)
    }
}

#[test]
fn a_full_disk_leaves_the_old_file_and_no_other() {
    let folder = folder("full");
    let path = folder.join("model.siskin");
    std::fs::write(&path, b"what was there").unwrap();
    for left in (0..tiny().len()).step_by(997) {
        let error = fill(Full { out: AtomicFile::create(&path).unwrap(), left }).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(std::fs::read(&path).unwrap(), b"what was there");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "the temporary file is gone");
    }
    fill(Full { out: AtomicFile::create(&path).unwrap(), left: 1 << 20 }).unwrap().out.commit().unwrap();
    check(&File::open(&path).unwrap());
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_must_stay_is_not_replaced() {
    let folder = folder("stay");
    let (input, locked) = (folder.join("input"), folder.join("locked"));
    std::fs::write(&input, b"kept").unwrap();
    std::fs::write(&locked, b"kept").unwrap();
    let mut permissions = std::fs::metadata(&locked).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&locked, permissions).unwrap();
    let inputs = [folder.join("absent"), input.clone()];
    let round = folder.join("../").join(folder.file_name().unwrap()).join("input");
    for (target, words) in
        [(&input, "input file"), (&round, "input file"), (&locked, "read-only"), (&folder, "regular")]
    {
        let error = AtomicFile::create_from(target, &inputs).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
        assert!(error.message().contains(words), "{error}");
    }
    assert!(AtomicFile::create("/dev/null").is_err() || cfg!(not(unix)));
    assert_eq!(std::fs::read(&input).unwrap(), b"kept");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
    AtomicFile::create_from(folder.join("absent"), &inputs).unwrap().commit().unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}

#[cfg(unix)]
#[test]
fn links_are_followed() {
    let folder = folder("links");
    std::fs::create_dir(folder.join("far")).unwrap();
    let (target, link) = (folder.join("far/target"), folder.join("link"));
    std::os::unix::fs::symlink("far/middle", &link).unwrap();
    std::os::unix::fs::symlink("target", folder.join("far/middle")).unwrap();
    for contents in [b"first", b"other"] {
        let mut file = AtomicFile::create(&link).unwrap();
        file.write_all(contents).unwrap();
        file.commit().unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read(&target).unwrap(), contents);
    }
    assert!(AtomicFile::create_from(&link, std::slice::from_ref(&target)).is_err());
    std::os::unix::fs::symlink("round", folder.join("round")).unwrap();
    assert!(AtomicFile::create(folder.join("round")).is_err());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_a_killed_process_left_is_swept() {
    let folder = folder("sweep");
    let path = folder.join("model.siskin");
    let busy = AtomicFile::create(&path).unwrap();
    let kept = [
        ".model.siskin.7-part",
        ".other.siskin.7-0.part",
        ".model.siskin.7-0x.part",
        "model.siskin.7-0.part",
    ];
    for name in [&kept[..], &[".model.siskin.7-0.part", ".model.siskin.1-65.part"]].concat() {
        std::fs::write(folder.join(name), b"part").unwrap();
    }
    let next = AtomicFile::create(&path).unwrap();
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), kept.len() + 2, "one more for each writer");
    busy.commit().unwrap();
    next.commit().unwrap();
    assert!(kept.iter().all(|name| folder.join(name).exists()));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), kept.len() + 1);
    std::fs::remove_dir_all(folder).unwrap();
}
