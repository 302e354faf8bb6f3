//! The fixed parts of a file: header, section table, and how their fields are encoded.

use crate::{Error, ErrorKind, Result};

/// The first bytes of every file.
pub const MAGIC: [u8; 8] = *b"SISKIN\r\n";
/// Readers reject files of another major version.
pub const MAJOR: u16 = 1;
/// Incremented by additions that older readers may ignore.
pub const MINOR: u16 = 0;
/// Every tensor, and the tensor data section, starts at a multiple of this.
pub const TENSOR_ALIGNMENT: u64 = 16 * 1024;

pub(super) const HEADER_BYTES: usize = 64;
pub(super) const SECTION_BYTES: usize = 64;
/// The alignment of sections other than tensor data.
pub(super) const SECTION_ALIGNMENT: u64 = 8;
/// Flag: readers that do not know the section's kind must reject the file.
pub(super) const REQUIRED: u32 = 1;
const MAX_SECTIONS: usize = 1024;
/// Offset of the reserved bytes, in the header and in an entry of the section table.
const RESERVED_OFFSET: usize = 24;
const HASH_OFFSET: usize = 32;

/// A BLAKE3 hash.
pub(super) type Hash = [u8; 32];

/// The kind of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum SectionKind {
    /// A JSON object.
    Metadata = 1,
    /// The tokenizer, in its own format.
    Tokenizer = 2,
    /// The chat template, UTF-8.
    Template = 3,
    /// Names, shapes and offsets of the tensors.
    TensorTable = 4,
    /// The tensors.
    TensorData = 5,
    /// Test prompts with expected tokens.
    Goldens = 6,
    /// An adapter.
    Adapter = 7,
    /// A signature over the header's hash.
    Signature = 8,
}

impl SectionKind {
    /// All kinds.
    pub const ALL: &[SectionKind] = &[
        Self::Metadata,
        Self::Tokenizer,
        Self::Template,
        Self::TensorTable,
        Self::TensorData,
        Self::Goldens,
        Self::Adapter,
        Self::Signature,
    ];

    /// Returns the name used in errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metadata => "metadata",
            Self::Tokenizer => "tokenizer",
            Self::Template => "template",
            Self::TensorTable => "tensor table",
            Self::TensorData => "tensor data",
            Self::Goldens => "goldens",
            Self::Adapter => "adapter",
            Self::Signature => "signature",
        }
    }

    fn of(number: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|&kind| kind as u32 == number)
    }
}

/// One entry of the section table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) number: u32,
    pub(super) flags: u32,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) hash: Hash,
}

impl Section {
    pub(super) fn kind(&self) -> Option<SectionKind> {
        SectionKind::of(self.number)
    }

    /// Returns the section's name, or its number if the kind is unknown.
    pub(super) fn name(&self) -> String {
        self.kind().map_or_else(|| format!("section kind {}", self.number), |kind| kind.name().to_owned())
    }

    /// Returns the byte range of the section; within bounds once [`sections`] has returned it.
    pub(super) fn range(&self) -> std::ops::Range<usize> {
        self.offset as usize..(self.offset + self.length) as usize
    }
}

/// Reads consecutive little-endian fields; errors name the location and the field.
pub(super) struct FieldReader<'a> {
    pub(super) rest: &'a [u8],
    pub(super) location: &'static str,
}

impl<'a> FieldReader<'a> {
    pub(super) fn take(&mut self, length: usize, field: &str) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or_else(|| {
            let left = self.rest.len();
            self.corrupt(field, format!("needs {length} bytes, but {left} are left; the file is incomplete"))
        })?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self, field: &str) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, field)?);
        Ok(array)
    }

    pub(super) fn u16(&mut self, field: &str) -> Result<u16> {
        self.array(field).map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self, field: &str) -> Result<u32> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, field: &str) -> Result<u64> {
        self.array(field).map(u64::from_le_bytes)
    }

    pub(super) fn corrupt(&self, field: &str, message: impl Into<String>) -> Error {
        Error::corrupt(format!("{}.{field}", self.location), message)
    }
}

/// Parses and validates the header and section table of a whole file. Sections are returned in table order: known
/// kinds, inside the file, aligned, not overlapping, singletons at most once.
pub(super) fn sections(bytes: &[u8]) -> Result<Vec<Section>> {
    let mut fields = FieldReader { rest: bytes, location: "header" };
    if !bytes.starts_with(&MAGIC) {
        return Err(fields.corrupt("magic", "this is not a .siskin file"));
    }
    fields.take(MAGIC.len(), "magic")?;
    let (major, minor) = (fields.u16("major")?, fields.u16("minor")?);
    if major != MAJOR {
        let message =
            format!("unknown version {major}.{minor}, expected {MAJOR}.x; update Siskin or pack again");
        return Err(Error::new(ErrorKind::Version, "header.major", message));
    }
    let count = fields.u32("sections")? as usize;
    let length = fields.u64("length")?;
    if length != bytes.len() as u64 {
        let message = format!(
            "the header says {length} bytes, but the file has {}; copy or convert it again",
            bytes.len()
        );
        return Err(fields.corrupt("length", message));
    }
    fields.take(8, "reserved")?;
    let hash: Hash = fields.array("hash")?;
    if count > MAX_SECTIONS || count > fields.rest.len() / SECTION_BYTES {
        return Err(fields.corrupt("sections", format!("{count} sections do not fit in the file")));
    }
    let end = HEADER_BYTES + count * SECTION_BYTES;
    if header_hash(&bytes[..end]) != hash {
        let message = "corrupt header or section table; copy or pack the file again";
        return Err(Error::new(ErrorKind::Integrity, "header.hash", message));
    }
    fields.location = "section table";
    let all = (0..count).map(|_| section(&mut fields)).collect::<Result<Vec<_>>>()?;
    check_places(&all, end as u64, length)?;
    check_kinds(all)
}

fn section(fields: &mut FieldReader<'_>) -> Result<Section> {
    let number = fields.u32("kind")?;
    let flags = fields.u32("flags")?;
    let offset = fields.u64("offset")?;
    let length = fields.u64("length")?;
    fields.take(8, "reserved")?;
    Ok(Section { number, flags, offset, length, hash: fields.array("hash")? })
}

fn check_places(sections: &[Section], start: u64, file: u64) -> Result<()> {
    let mut taken: Vec<(u64, u64, &Section)> = Vec::new();
    for section in sections {
        let location = |field: &str| format!("section table: {}.{field}", section.name());
        let alignment = match section.kind() {
            Some(SectionKind::TensorData) => TENSOR_ALIGNMENT,
            _ => SECTION_ALIGNMENT,
        };
        if !section.offset.is_multiple_of(alignment) {
            return Err(Error::corrupt(location("offset"), format!("not a multiple of {alignment}")));
        }
        if section.offset < start {
            return Err(Error::corrupt(location("offset"), "overlaps the header or section table"));
        }
        let end = section.offset.checked_add(section.length).filter(|&end| end <= file);
        let end =
            end.ok_or_else(|| Error::corrupt(location("length"), "reaches past the end of the file"))?;
        taken.push((section.offset, end, section));
    }
    taken.sort_by_key(|&(start, end, _)| (start, end));
    for pair in taken.windows(2) {
        if pair[1].0 < pair[0].1 {
            let location = format!("section table: {}.offset", pair[1].2.name());
            return Err(Error::corrupt(location, format!("overlaps the section {}", pair[0].2.name())));
        }
    }
    Ok(())
}

/// Rejects unknown kinds that are required, and duplicates of kinds that may occur only once.
fn check_kinds(sections: Vec<Section>) -> Result<Vec<Section>> {
    for (index, section) in sections.iter().enumerate() {
        let location = format!("section table: {}", section.name());
        match section.kind() {
            None if section.flags & REQUIRED != 0 => {
                return Err(Error::unsupported(
                    location,
                    "required and unknown to this version; update Siskin",
                ));
            }
            None | Some(SectionKind::Adapter) => {}
            Some(_) if sections[..index].iter().any(|other| other.number == section.number) => {
                return Err(Error::corrupt(location, "occurs twice"));
            }
            Some(_) => {}
        }
    }
    Ok(sections)
}

/// Checks that the reserved bytes of the header and section table are zero; `bytes` is a whole file of `count`
/// sections.
pub(super) fn check_reserved(bytes: &[u8], count: usize) -> Result<()> {
    for record in 0..=count {
        let at = record * SECTION_BYTES + RESERVED_OFFSET;
        if bytes
            .get(at..HASH_OFFSET - RESERVED_OFFSET + at)
            .is_none_or(|bytes| bytes.iter().any(|&byte| byte != 0))
        {
            let location = if record == 0 { "header" } else { "section table" };
            return Err(Error::corrupt(format!("{location}.reserved"), "not zero"));
        }
    }
    Ok(())
}

/// Returns the minor version in the header of a whole file.
pub(super) fn minor(bytes: &[u8]) -> u16 {
    bytes.get(10..12).and_then(|bytes| bytes.try_into().ok()).map_or(0, u16::from_le_bytes)
}

/// Returns the hash of header and section table, with the header's own hash field taken as zeros.
fn header_hash(bytes: &[u8]) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&bytes[..HASH_OFFSET]).update(&[0; 32]).update(&bytes[HASH_OFFSET + 32..]);
    *hasher.finalize().as_bytes()
}

/// Encodes header and section table for a file of `length` bytes.
pub(super) fn encode(sections: &[Section], length: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + sections.len() * SECTION_BYTES);
    out.extend(MAGIC);
    out.extend(MAJOR.to_le_bytes());
    out.extend(MINOR.to_le_bytes());
    out.extend((sections.len() as u32).to_le_bytes());
    out.extend(length.to_le_bytes());
    out.extend([0; 8 + 32]);
    for section in sections {
        out.extend(section.number.to_le_bytes());
        out.extend(section.flags.to_le_bytes());
        out.extend(section.offset.to_le_bytes());
        out.extend(section.length.to_le_bytes());
        out.extend([0; 8]);
        out.extend(section.hash);
    }
    let hash = header_hash(&out);
    out[HASH_OFFSET..HEADER_BYTES].copy_from_slice(&hash);
    out
}
