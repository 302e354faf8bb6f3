//! The container of `.siskin` files, and their kinds of sections.

use crate::container::{ContainerFormat, Section, SectionRule};

/// The first bytes of every file.
pub const MAGIC: [u8; 8] = *b"SISKIN\r\n";
/// Readers reject files of another major version.
pub const MAJOR: u16 = 1;
/// Incremented by additions that older readers may ignore.
pub const MINOR: u16 = 0;
/// Every tensor, and the tensor data section, starts at a multiple of this.
pub const TENSOR_ALIGNMENT: u64 = 16 * 1024;

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
    pub const fn name(self) -> &'static str {
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

/// The container of `.siskin` files.
pub(super) static CONTAINER: ContainerFormat = ContainerFormat {
    magic: MAGIC,
    major: MAJOR,
    minor: MINOR,
    extension: ".siskin",
    kinds: &[
        rule(SectionKind::Metadata),
        rule(SectionKind::Tokenizer),
        rule(SectionKind::Template),
        rule(SectionKind::TensorTable),
        SectionRule { alignment: TENSOR_ALIGNMENT, ..rule(SectionKind::TensorData) },
        rule(SectionKind::Goldens),
        SectionRule { repeats: true, ..rule(SectionKind::Adapter) },
        rule(SectionKind::Signature),
    ],
};

const fn rule(kind: SectionKind) -> SectionRule {
    SectionRule::new(kind as u32, kind.name())
}

impl Section {
    pub(super) fn kind(&self) -> Option<SectionKind> {
        SectionKind::of(self.number)
    }

    pub(super) fn name(&self) -> String {
        CONTAINER.name(self)
    }
}
