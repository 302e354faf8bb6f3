//! The one error type: what went wrong, where, and its stable number.

use std::borrow::Cow;
use std::fmt;

/// A result whose error is [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// The kinds of errors, in stable numbered groups: 100s loading, 200s arguments, 300s state, 400s resources.
        /// Numbers are never reused; the C, Kotlin and Swift errors map to them 1:1.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u16)]
        pub enum ErrorKind { $($(#[$doc])* $name = $code,)* }

        impl ErrorKind {
            /// All kinds, ordered by number.
            pub const ALL: &[ErrorKind] = &[$(ErrorKind::$name,)*];
        }
    };
}

kinds! {
    /// A file or folder could not be read or written.
    Io = 100,
    /// The bytes are not in the format they claim to be in: an invalid length, offset, hash, type or text.
    Corrupt = 101,
    /// The format is right, but this version of Siskin cannot run it.
    Unsupported = 102,
    /// The file's major version is unknown.
    Version = 103,
    /// A file does not exist, or lacks a tensor, section or field that the model requires.
    Missing = 104,
    /// A tensor has a shape or type that the architecture does not allow.
    Shape = 105,
    /// A hash does not match: the file was changed or damaged.
    Integrity = 106,
    /// An argument is out of range or contradicts another.
    Argument = 200,
    /// The text or the tokens do not fit in the context.
    TooLong = 201,
    /// The chat template failed or rejected the messages.
    Template = 202,
    /// The object is in a state that does not allow the call.
    State = 300,
    /// The caller canceled the call.
    Canceled = 301,
    /// The model produced NaN or infinity.
    Numeric = 302,
    /// The request exceeds a memory limit.
    Memory = 400,
    /// Too many requests are waiting; the request can be retried later.
    Overloaded = 402,
}

impl ErrorKind {
    /// Returns the stable number.
    pub fn code(self) -> u16 {
        self as u16
    }
}

/// What went wrong, where, and what to do about it.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    location: Cow<'static, str>,
    message: Cow<'static, str>,
}

impl Error {
    /// Creates an error of `kind` at `location` (a file, section and field, or the name of an argument).
    pub fn new(kind: ErrorKind, location: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, location: Cow::Owned(location.into()), message: Cow::Owned(message.into()) }
    }

    /// Returns [`ErrorKind::Corrupt`] at `location`.
    pub fn corrupt(location: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, location, message)
    }

    /// Returns [`ErrorKind::Unsupported`] at `location`.
    pub fn unsupported(location: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, location, message)
    }

    /// Returns [`ErrorKind::Argument`] at `location`.
    pub fn argument(location: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Argument, location, message)
    }

    /// Returns [`ErrorKind::Canceled`] at `location`, without allocating.
    pub const fn canceled(location: &'static str) -> Self {
        let message = Cow::Borrowed("canceled by the caller");
        Self { kind: ErrorKind::Canceled, location: Cow::Borrowed(location), message }
    }

    /// Returns [`ErrorKind::Io`] at `location`.
    pub fn io(location: impl Into<String>, error: &std::io::Error) -> Self {
        Self::new(ErrorKind::Io, location, error.to_string())
    }

    /// Returns [`ErrorKind::Numeric`] at `location` if a value of `numbers` is NaN or infinite.
    pub fn unless_finite(location: &str, numbers: &[f32]) -> Result<()> {
        if numbers.iter().all(|number| number.is_finite()) {
            return Ok(());
        }
        let message = "the model produced NaN or infinity; verify the file";
        Err(Self::new(ErrorKind::Numeric, location, message))
    }

    /// Prefixes the location with `outer`, for a caller one level up.
    #[must_use]
    pub fn within(mut self, outer: &str) -> Self {
        // Files add their own path, and so may their callers.
        if self.location.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(": ")) {
            return self;
        }
        let location =
            if self.location.is_empty() { outer.to_owned() } else { format!("{outer}: {}", self.location) };
        self.location = Cow::Owned(location);
        self
    }

    /// Prefixes the location, a field, with the field that contains it: `tools[0].type`.
    #[must_use]
    pub fn within_field(mut self, outer: &str) -> Self {
        let dot = if self.location.is_empty() { "" } else { "." };
        self.location = Cow::Owned(format!("{outer}{dot}{}", self.location));
        self
    }

    /// Returns the kind, which has a stable number.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns where the error occurred: a file, section and field, or the name of an argument.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// Returns the message: what went wrong and what to do about it.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.location() {
            "" => f.write_str(&self.message),
            location => write!(f, "{location}: {}", self.message),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({}): {self}", self.kind, self.kind.code())
    }
}

impl std::error::Error for Error {}
