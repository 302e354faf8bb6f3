//! The container that `.siskin` and `.siskin-kv` files share: header, section table, and how their fields are encoded.

use crate::{Error, ErrorKind, Result};

pub(crate) const HEADER_BYTES: usize = 64;
pub(crate) const SECTION_BYTES: usize = 64;
/// The alignment of most sections.
pub(crate) const SECTION_ALIGNMENT: u64 = 8;
/// Flag: readers that do not know the section's kind must reject the file.
pub(crate) const REQUIRED: u32 = 1;
const MAX_SECTIONS: usize = 1024;
/// Offset of the reserved bytes, in the header and in an entry of the section table.
const RESERVED_OFFSET: usize = 24;
const HASH_OFFSET: usize = 32;

/// A BLAKE3 hash.
pub(crate) type Hash = [u8; 32];

/// A file format in this container.
pub(crate) struct ContainerFormat {
    /// The first bytes of every file.
    pub(crate) magic: [u8; 8],
    /// Readers reject files of another major version.
    pub(crate) major: u16,
    /// Incremented by additions that older readers may ignore.
    pub(crate) minor: u16,
    /// The extension of its file names.
    pub(crate) extension: &'static str,
    /// The known kinds of sections.
    pub(crate) kinds: &'static [SectionRule],
}

/// What a reader demands of a kind of section.
pub(crate) struct SectionRule {
    /// The number in the section table.
    pub(crate) number: u32,
    /// The name used in errors.
    pub(crate) name: &'static str,
    /// The offset is a multiple of this.
    pub(crate) alignment: u64,
    /// Whether it may occur more than once.
    pub(crate) repeats: bool,
}

impl SectionRule {
    /// A kind that occurs at most once, with the alignment of most sections.
    pub(crate) const fn new(number: u32, name: &'static str) -> Self {
        Self { number, name, alignment: SECTION_ALIGNMENT, repeats: false }
    }
}

/// One entry of the section table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) number: u32,
    pub(crate) flags: u32,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) hash: Hash,
}

impl Section {
    /// Returns the byte range of the section; within bounds once [`ContainerFormat::sections`] has returned it.
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        self.offset as usize..(self.offset + self.length) as usize
    }
}

/// Reads consecutive little-endian fields; errors name the location and the field.
pub(crate) struct FieldReader<'a> {
    pub(crate) rest: &'a [u8],
    pub(crate) location: &'static str,
}

impl<'a> FieldReader<'a> {
    pub(crate) fn take(&mut self, length: usize, field: &str) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or_else(|| {
            let left = self.rest.len();
            self.corrupt(field, format!("needs {length} bytes, but {left} are left; the file is incomplete"))
        })?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self, field: &str) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, field)?);
        Ok(array)
    }

    pub(crate) fn u16(&mut self, field: &str) -> Result<u16> {
        self.array(field).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self, field: &str) -> Result<u32> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, field: &str) -> Result<u64> {
        self.array(field).map(u64::from_le_bytes)
    }

    pub(crate) fn corrupt(&self, field: &str, message: impl Into<String>) -> Error {
        Error::corrupt(format!("{}.{field}", self.location), message)
    }
}

impl ContainerFormat {
    fn rule(&self, section: &Section) -> Option<&'static SectionRule> {
        self.kinds.iter().find(|rule| rule.number == section.number)
    }

    /// Returns the section's name, or its number if the kind is unknown.
    pub(crate) fn name(&self, section: &Section) -> String {
        let number = section.number;
        self.rule(section).map_or_else(|| format!("section kind {number}"), |rule| rule.name.to_owned())
    }

    /// Parses and validates the header and section table of a whole file. Sections are returned in table order: known
    /// kinds, inside the file, aligned, not overlapping, singletons at most once.
    pub(crate) fn sections(&self, bytes: &[u8]) -> Result<Vec<Section>> {
        let mut fields = FieldReader { rest: bytes, location: "header" };
        if !bytes.starts_with(&self.magic) {
            return Err(fields.corrupt("magic", format!("this is not a {} file", self.extension)));
        }
        fields.take(self.magic.len(), "magic")?;
        let (major, minor) = (fields.u16("major")?, fields.u16("minor")?);
        if major != self.major {
            let known = self.major;
            let message = format!(
                "unknown version {major}.{minor}, expected {known}.x; update Siskin or write it again"
            );
            return Err(Error::new(ErrorKind::Version, "header.major", message));
        }
        let count = fields.u32("sections")? as usize;
        let length = fields.u64("length")?;
        if length != bytes.len() as u64 {
            let message = format!(
                "the header says {length} bytes, but the file has {}; copy or write it again",
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
            let message = "corrupt header or section table; copy or write the file again";
            return Err(Error::new(ErrorKind::Integrity, "header.hash", message));
        }
        fields.location = "section table";
        let all = (0..count).map(|_| section(&mut fields)).collect::<Result<Vec<_>>>()?;
        self.check_places(&all, end as u64, length)?;
        self.check_kinds(all)
    }

    fn check_places(&self, sections: &[Section], start: u64, file: u64) -> Result<()> {
        let mut taken: Vec<(u64, u64, &Section)> = Vec::new();
        for section in sections {
            let location = |field: &str| format!("section table: {}.{field}", self.name(section));
            let alignment = self.rule(section).map_or(SECTION_ALIGNMENT, |rule| rule.alignment);
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
        taken.sort_unstable_by_key(|&(start, end, _)| (start, end));
        for pair in taken.windows(2) {
            if pair[1].0 < pair[0].1 {
                let location = format!("section table: {}.offset", self.name(pair[1].2));
                return Err(Error::corrupt(
                    location,
                    format!("overlaps the section {}", self.name(pair[0].2)),
                ));
            }
        }
        Ok(())
    }

    /// Rejects unknown kinds that are required, and duplicates of kinds that may occur only once.
    fn check_kinds(&self, sections: Vec<Section>) -> Result<Vec<Section>> {
        for (index, section) in sections.iter().enumerate() {
            let location = format!("section table: {}", self.name(section));
            match self.rule(section) {
                None if section.flags & REQUIRED != 0 => {
                    return Err(Error::unsupported(
                        location,
                        "required and unknown to this version; update Siskin",
                    ));
                }
                None => {}
                Some(rule) if rule.repeats => {}
                Some(_) if sections[..index].iter().any(|other| other.number == section.number) => {
                    return Err(Error::corrupt(location, "occurs twice"));
                }
                Some(_) => {}
            }
        }
        Ok(sections)
    }

    /// Encodes header and section table for a file of `length` bytes.
    pub(crate) fn encode(&self, sections: &[Section], length: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + sections.len() * SECTION_BYTES);
        out.extend(self.magic);
        out.extend(self.major.to_le_bytes());
        out.extend(self.minor.to_le_bytes());
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
}

fn section(fields: &mut FieldReader<'_>) -> Result<Section> {
    let number = fields.u32("kind")?;
    let flags = fields.u32("flags")?;
    let offset = fields.u64("offset")?;
    let length = fields.u64("length")?;
    fields.take(8, "reserved")?;
    Ok(Section { number, flags, offset, length, hash: fields.array("hash")? })
}

/// Checks that the reserved bytes of the header and section table are zero; `bytes` is a whole file of `count`
/// sections.
pub(crate) fn check_reserved(bytes: &[u8], count: usize) -> Result<()> {
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
pub(crate) fn minor(bytes: &[u8]) -> u16 {
    bytes.get(10..12).and_then(|bytes| bytes.try_into().ok()).map_or(0, u16::from_le_bytes)
}

/// Returns the hash of header and section table, with the header's own hash field taken as zeros.
fn header_hash(bytes: &[u8]) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&bytes[..HASH_OFFSET]).update(&[0; 32]).update(&bytes[HASH_OFFSET + 32..]);
    *hasher.finalize().as_bytes()
}
