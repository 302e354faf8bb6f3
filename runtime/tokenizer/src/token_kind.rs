//! The kinds of tokens.

/// The kind of a token. The numbers are those of the file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TokenKind {
    /// Text.
    Normal = 0,
    /// The token for text without a token.
    Unknown = 1,
    /// Controls the model; matched in text only if the caller allows it.
    Control = 2,
    /// Text that is always matched as a whole.
    UserDefined = 3,
    /// Not used by the model.
    Unused = 4,
    /// `<0xNN>`: one byte.
    Byte = 5,
    /// Never produced from text: a byte-level vocabulary spells it with characters outside the byte-level alphabet.
    Unreachable = 6,
    /// Text that is always matched as a whole, and that the model does not contain.
    Added = 7,
}

impl TokenKind {
    /// Returns the kind with this number; [`TokenKind::Normal`] for other numbers.
    pub(super) fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Unknown,
            2 => Self::Control,
            3 => Self::UserDefined,
            4 => Self::Unused,
            5 => Self::Byte,
            6 => Self::Unreachable,
            7 => Self::Added,
            _ => Self::Normal,
        }
    }

    /// Returns whether the token is matched in all text, trusted or not.
    pub(super) fn is_kept_whole(self) -> bool {
        matches!(self, Self::UserDefined | Self::Added)
    }

    /// Returns whether models produce the token from text.
    pub(super) fn is_ordinary(self) -> bool {
        matches!(self, Self::Normal | Self::UserDefined | Self::Unused)
    }
}
