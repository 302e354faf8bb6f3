//! Models.

use std::ffi::{c_char, c_void};

use siskin::Model;
use siskin::file::File;
use siskin::graph::OutputHead;
use siskin::tokenizer::EncodeOptions;

use crate::arguments::{SizedOutput, place, room, text, values};
use crate::callback::{Foreign, siskin_release};
use crate::error::{Outcome, PendingError, siskin_error};
use crate::guard::{self, Handle, looking_or_default};
use crate::log::{SISKIN_LOG_WARNING, tell};
use crate::memory::siskin_memory;
use crate::model_options::{Options, siskin_model_options};
use crate::session_options::siskin_session_options;

/// A loaded model. Any threads may use it concurrently; objects created from it keep it alive, so that it may be freed
/// first. Freed with `siskin_model_free`.
pub struct siskin_model {
    _opaque: [u8; 0],
}

impl Handle for siskin_model {
    type Inner = Model;
    type Remote = ();
    const MAGIC: [u8; 8] = *b"SISKmodl";
    const NAME: &'static str = "model";
}

/// The model generates text: it supports sessions and writers.
pub const SISKIN_MODEL_WRITES: u32 = 1;
/// The model encodes whole texts: it supports encoders, or writers if it also generates.
pub const SISKIN_MODEL_READS: u32 = 2;
/// The model has a chat template.
pub const SISKIN_MODEL_CHATS: u32 = 4;
/// The model has a tokenizer: it accepts text.
pub const SISKIN_MODEL_TAKES_TEXT: u32 = 8;
/// The model transcribes speech: it supports transcribers.
pub const SISKIN_MODEL_LISTENS: u32 = 16;
/// The model has a classification head: `siskin_encoder_classify`, `siskin_encoder_rerank`.
pub const SISKIN_MODEL_CLASSIFIES: u32 = 32;
/// The model has a token classification head: `siskin_encoder_tag`.
pub const SISKIN_MODEL_TAGS: u32 = 64;
/// The model has an extractive question answering head: `siskin_encoder_answer`.
pub const SISKIN_MODEL_ANSWERS: u32 = 128;
/// The model has a fill-mask head: `siskin_encoder_fill_mask`.
pub const SISKIN_MODEL_FILLS: u32 = 256;

/// Properties of a model. Set `struct_size` before the call. Texts live as long as the model.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_model_info {
    /// `sizeof(siskin_model_info)`.
    pub struct_size: usize,
    /// The name of its family.
    pub family: *const c_char,
    /// Its length in bytes.
    pub family_length: usize,
    /// The context length that it was trained for, in tokens.
    pub context: u64,
    /// The vocabulary size.
    pub vocabulary: u64,
    /// The hidden size.
    pub width: u64,
    /// The size of its file in bytes.
    pub bytes: u64,
    /// The number of worker threads.
    pub threads: u32,
    /// Its capabilities: bits of `SISKIN_MODEL_…`.
    pub abilities: u32,
    /// The number of notes on how it runs: `siskin_model_note`.
    pub notes: usize,
}

/// Opens a model with `open` and the caller's options.
///
/// # Safety
/// As for every function of the header.
unsafe fn opened(
    options: *const siskin_model_options,
    out: *mut *mut siskin_model,
    open: impl FnOnce() -> Outcome<File>,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::made(out, || {
            // Report an invalid handle before opening files.
            looking_or_default(options, |_: &Options| Ok(()))?;
            Ok((noted(model_of(open()?, options)?), ()))
        })
    }
}

/// # Safety
/// As for every function of the header.
unsafe fn model_of(file: File, options: *const siskin_model_options) -> Outcome<Model> {
    if options.is_null() {
        return Ok(Options::default().model(file)?);
    }
    // SAFETY: guaranteed by the caller.
    unsafe { guard::looking(options, |options: &Options| Ok(options.model(file)?)) }
}

/// Logs the notes of a model.
fn noted(model: Model) -> Model {
    model.notes().iter().for_each(|note| tell(SISKIN_LOG_WARNING, note));
    model
}

/// Opens the model at a path of `length` bytes: a `.siskin` file; if the library was built with `import`, also a GGUF
/// file, a folder of safetensors or an ONNX model, which is packed once and then opened from the packed cache.
/// `options` may be null.
///
/// The file is memory-mapped: it must not be written to or truncated while the model or anything created from it
/// exists. Replacing it by renaming another file over it is safe.
///
/// Threads: any.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_open(
    path: *const c_char,
    length: usize,
    options: *const siskin_model_options,
    out: *mut *mut siskin_model,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe { guard::made(out, || Ok((noted(open_path(text("path", path, length)?, options)?), ()))) }
}

/// # Safety
/// As for every function of the header.
#[cfg(feature = "import")]
unsafe fn open_path(path: &str, options: *const siskin_model_options) -> Outcome<Model> {
    let open = |options: &Options| {
        let teller = options.teller();
        let (cache, recipe) = (options.cache.clone(), options.recipe);
        let open = siskin_convert::OpenOptions { cache, recipe, progress: &teller };
        if options.has_adapter() {
            let file = siskin_convert::open_any(path, &open)?;
            return Ok(options.model(file).map_err(|error| error.within(path))?);
        }
        Ok(siskin_convert::open_model(path, &open, &options.model)?)
    };
    if options.is_null() {
        return open(&Options::default());
    }
    // SAFETY: guaranteed by the caller.
    unsafe { guard::looking(options, open) }
}

/// # Safety
/// As for every function of the header.
#[cfg(not(feature = "import"))]
unsafe fn open_path(path: &str, options: *const siskin_model_options) -> Outcome<Model> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        looking_or_default(options, |_: &Options| Ok(()))?;
        model_of(File::open(path)?, options)
    }
}

/// Opens a model from `length` bytes of an open file starting at `offset`, such as an uncompressed asset of an Android
/// package; 0 bytes: up to the end of the file. The descriptor remains the caller's and may be closed afterwards. It
/// must be a `.siskin` file; tensors are best aligned if the offset is a multiple of 16384.
///
/// Only on systems with file descriptors. Threads: any.
///
/// # Safety
/// Pointers are valid, and the descriptor is open.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_open_descriptor(
    descriptor: i32,
    offset: u64,
    length: u64,
    options: *const siskin_model_options,
    out: *mut *mut siskin_model,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        opened(options, out, || {
            let length = Some(length).filter(|&length| length > 0);
            mapped(descriptor, offset, length)
        })
    }
}

/// # Safety
/// The descriptor is open.
#[cfg(unix)]
unsafe fn mapped(descriptor: i32, offset: u64, length: Option<u64>) -> Outcome<File> {
    use std::os::fd::BorrowedFd;
    if descriptor < 0 {
        return Err(PendingError::argument("descriptor", format!("is {descriptor}; open the file first")));
    }
    // SAFETY: guaranteed by the caller; −1, which is never a valid descriptor, was rejected.
    let own = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned();
    let own = own.map_err(|error| siskin::Error::io("descriptor", &error))?;
    Ok(File::open_descriptor(own, offset, length)?)
}

/// # Safety
/// No requirements.
#[cfg(not(unix))]
unsafe fn mapped(_: i32, _: u64, _: Option<u64>) -> Outcome<File> {
    let message = "this system has none; open the file by its path";
    Err(siskin::Error::unsupported("descriptor", message).into())
}

/// Opens a `.siskin` model in memory, and copies it.
///
/// Threads: any.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_open_copy(
    bytes: *const u8,
    length: usize,
    options: *const siskin_model_options,
    out: *mut *mut siskin_model,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe { opened(options, out, || Ok(File::from_bytes(values("bytes", bytes, length)?.to_vec())?)) }
}

/// Memory of the host that contains a model.
struct Lent {
    start: *const u8,
    length: usize,
    _foreign: Foreign,
}

// SAFETY: the host guarantees that the memory is not modified until it is released.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the host guarantees that the memory is valid until it is released; `values` checked the pointer.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

/// Opens a `.siskin` model in memory of the caller, without a copy; the memory must neither move nor change. `release`
/// is called with `user` when the model and everything created from it are freed, and immediately if opening fails.
///
/// Threads: any.
///
/// # Safety
/// Pointers are valid, those to the bytes until `release` is called.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_open_memory(
    bytes: *const u8,
    length: usize,
    user: *mut c_void,
    release: siskin_release,
    options: *const siskin_model_options,
    out: *mut *mut siskin_model,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let foreign = Foreign::new(user, release);
        opened(options, out, || {
            let start = values("bytes", bytes, length)?.as_ptr();
            Ok(File::from_bytes(Lent { start, length, _foreign: foreign })?)
        })
    }
}

/// Returns the properties of the model.
///
/// Threads: any.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_describe(
    model: *const siskin_model,
    out: *mut siskin_model_info,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::shared(model, |model| {
            let frame = SizedOutput::new("out", out)?;
            let (family, hyper) = (model.family(), model.config());
            frame.fill(&siskin_model_info {
                struct_size: 0,
                family: family.as_ptr().cast(),
                family_length: family.len(),
                context: hyper.context.max(hyper.text) as u64,
                vocabulary: hyper.vocabulary as u64,
                width: hyper.width as u64,
                bytes: model.file().bytes().len() as u64,
                threads: u32::try_from(model.threads()).unwrap_or(u32::MAX),
                abilities: abilities(model),
                notes: model.notes().len(),
            });
            Ok(())
        })
    }
}

fn abilities(model: &Model) -> u32 {
    let graphs = model.graphs();
    let head = graphs.encoder.as_ref().map(|graph| graph.head);
    let bits = [
        (SISKIN_MODEL_WRITES, graphs.decoder.is_some()),
        (SISKIN_MODEL_READS, graphs.encoder.is_some()),
        (SISKIN_MODEL_CHATS, model.file().template().is_some()),
        (SISKIN_MODEL_TAKES_TEXT, model.tokenizer().is_ok()),
        (SISKIN_MODEL_LISTENS, model.family() == "whisper"),
        (SISKIN_MODEL_CLASSIFIES, head == Some(OutputHead::Class)),
        (SISKIN_MODEL_TAGS, head == Some(OutputHead::Label)),
        (SISKIN_MODEL_ANSWERS, head == Some(OutputHead::Span)),
        (SISKIN_MODEL_FILLS, head == Some(OutputHead::Token)),
    ];
    bits.iter().filter(|(_, there)| *there).fold(0, |all, (bit, _)| all | bit)
}

/// Returns a note on how the model runs, such as that it is slower than possible. The text lives as long as the model.
///
/// Threads: any.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_note(
    model: *const siskin_model,
    index: usize,
    text: *mut *const c_char,
    length: *mut usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::shared(model, |model| {
            let (text, length) = (place("text", text)?, place("length", length)?);
            let none = || PendingError::argument("index", format!("there is no note {index}"));
            let note = model.notes().get(index).ok_or_else(none)?;
            text.write(note.as_ptr().cast());
            length.write(note.len());
            Ok(())
        })
    }
}

/// Returns the memory that a session with these options would use, without allocating it. `options` may be null.
///
/// Threads: any.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_plan(
    model: *const siskin_model,
    options: *const siskin_session_options,
    out: *mut siskin_memory,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::shared(model, |model| {
            let frame = SizedOutput::new("out", out)?;
            let options = looking_or_default(options, |options| Ok(options.session.clone()))?;
            frame.fill(&model.memory(&options)?.into());
            Ok(())
        })
    }
}

/// Tokenizes a text. `count` receives the number of tokens; up to `capacity` of them are written to `ids`, which may be
/// null if `capacity` is 0. `special` adds the special tokens that the model expects around a text; control tokens
/// spelled out in the text are always tokenized as plain text.
///
/// Threads: any.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_tokenize(
    model: *const siskin_model,
    text: *const c_char,
    length: usize,
    special: bool,
    ids: *mut u32,
    capacity: usize,
    count: *mut usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::shared(model, |model| {
            let (text, count) = (self::text("text", text, length)?, place("count", count)?);
            room("ids", ids, capacity)?;
            let options = EncodeOptions { add_special: special, parse_special: false };
            let found = model.tokenizer()?.encode(text, options)?;
            for (index, &id) in found.iter().take(capacity).enumerate() {
                ids.add(index).write(id);
            }
            count.write(found.len());
            Ok(())
        })
    }
}

/// Returns the bytes of a token, which may be a partial character. They live as long as the model.
///
/// Threads: any.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_token(
    model: *const siskin_model,
    id: u32,
    bytes: *mut *const u8,
    length: *mut usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::shared(model, |model| {
            let (bytes, length) = (place("bytes", bytes)?, place("length", length)?);
            let found = model.tokenizer()?.token_text(id)?;
            bytes.write(found.as_ptr());
            length.write(found.len());
            Ok(())
        })
    }
}

/// Verifies all hashes of the model's file, which reads all of it.
///
/// Threads: any.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_verify(model: *const siskin_model) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe { guard::shared(model, |model| Ok(model.file().verify(&mut |_, _| true)?)) }
}

/// Frees a model; objects created from it remain valid. Null is ignored.
///
/// # Safety
/// Pointers are valid, and the handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_free(model: *mut siskin_model) {
    // SAFETY: guaranteed by the caller.
    unsafe { guard::free(model) }
}
