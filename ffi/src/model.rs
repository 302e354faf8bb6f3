//! Models.

use std::ffi::{c_char, c_void};

use siskin::Model;
use siskin::OutputHead;
use siskin::file::File;
use siskin::tokenizer::EncodeOptions;

use crate::arguments::{SizedOutput, check_pointer, output, text, values};
use crate::callback::{HostPointer, siskin_release_function};
use crate::error::{Outcome, PendingError, siskin_error};
use crate::guard::{self, Handle, borrow_or_default};
use crate::log::{SISKIN_LOG_WARNING, log};
use crate::memory_usage::siskin_memory_usage;
use crate::model_options::{Options, siskin_model_options};
use crate::session_options::siskin_session_options;

/// A loaded model. Any number of threads may use it concurrently. Objects that are created from it keep it alive: it
/// may be freed before them. Freed with `siskin_model_free`.
pub struct siskin_model {
    _opaque: [u8; 0],
}

impl Handle for siskin_model {
    type Inner = Model;
    type Control = ();
    const MAGIC: [u8; 8] = *b"SISKmodl";
    const NAME: &'static str = "model";
}

/// Model capability flags.
pub type siskin_capability = u32;
/// Generates text: `siskin_session_new` and `siskin_seq2seq_new`.
pub const SISKIN_CAPABILITY_GENERATE: siskin_capability = 1;
/// Encodes texts: `siskin_encoder_new`, or `siskin_seq2seq_new` if it also generates text.
pub const SISKIN_CAPABILITY_ENCODE: siskin_capability = 2;
/// Has a chat template: prompts are messages of a conversation.
pub const SISKIN_CAPABILITY_CHAT: siskin_capability = 4;
/// Has a tokenizer: it accepts text.
pub const SISKIN_CAPABILITY_TOKENIZE: siskin_capability = 8;
/// Transcribes speech: `siskin_transcriber_new`.
pub const SISKIN_CAPABILITY_TRANSCRIBE: siskin_capability = 16;
/// Has a classification head: `siskin_encoder_classify` and `siskin_encoder_rerank`.
pub const SISKIN_CAPABILITY_CLASSIFY: siskin_capability = 32;
/// Has a token classification head: `siskin_encoder_tag`.
pub const SISKIN_CAPABILITY_TAG: siskin_capability = 64;
/// Has an extractive question answering head: `siskin_encoder_answer`.
pub const SISKIN_CAPABILITY_ANSWER: siskin_capability = 128;
/// Has a fill-mask head: `siskin_encoder_fill_mask`.
pub const SISKIN_CAPABILITY_FILL_MASK: siskin_capability = 256;

/// Properties of a model. Set `struct_size` before the call. Strings are valid until the model is freed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_model_info {
    /// `sizeof(siskin_model_info)`.
    pub struct_size: usize,
    /// The name of the model family, such as `llama`: UTF-8, not NUL-terminated.
    pub family: *const c_char,
    /// The length of `family` in bytes.
    pub family_length: usize,
    /// The context length that the model was trained with, in tokens.
    pub context_length: u64,
    /// The vocabulary size.
    pub vocabulary_size: u64,
    /// The hidden size.
    pub hidden_size: u64,
    /// The size of the file in bytes.
    pub file_size: u64,
    /// The number of worker threads.
    pub threads: u32,
    /// The capabilities: a bitwise or of `siskin_capability`.
    pub capabilities: u32,
    /// The number of warnings: `siskin_model_warning` returns them.
    pub warning_count: usize,
}

/// Opens a model with `open` and the options of the caller.
///
/// # Safety
/// The pointer contract of the crate.
unsafe fn open_with(
    options: *const siskin_model_options,
    out: *mut *mut siskin_model,
    open: impl FnOnce() -> Outcome<File>,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live; `out` is null or writable.
    unsafe {
        guard::create(out, || {
            // Report an invalid handle before opening files.
            borrow_or_default(options, |_: &Options| Ok(()))?;
            Ok((with_warnings_logged(model_of(open()?, options)?), ()))
        })
    }
}

/// # Safety
/// The pointer contract of the crate.
unsafe fn model_of(file: File, options: *const siskin_model_options) -> Outcome<Model> {
    if options.is_null() {
        return Ok(Options::default().model(file)?);
    }
    // SAFETY: pointer contract: `options` is not null, hence live.
    unsafe { guard::borrow(options, |options: &Options| Ok(options.model(file)?)) }
}

/// Logs the warnings of a model.
fn with_warnings_logged(model: Model) -> Model {
    model.notes().iter().for_each(|note| log(SISKIN_LOG_WARNING, note));
    model
}

/// Opens the model at a path: a `.siskin` file; if the library was built with the `import` feature, also a GGUF file, a
/// folder of safetensors or an ONNX model, which is packed once and then opened from the packed cache. `options` may be
/// null.
///
/// The file is memory-mapped: it must not be modified or truncated while the model or an object created from it exists.
/// It may be replaced by renaming another file over it.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_open(
    path: *const c_char,
    length: usize,
    options: *const siskin_model_options,
    out: *mut *mut siskin_model,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live; `path` is a string of `length` bytes; `out` is null or
    // writable.
    unsafe {
        guard::create(out, || {
            Ok((with_warnings_logged(open_path(text("path", path, length)?, options)?), ()))
        })
    }
}

/// # Safety
/// The pointer contract of the crate.
#[cfg(feature = "import")]
unsafe fn open_path(path: &str, options: *const siskin_model_options) -> Outcome<Model> {
    let open = |options: &Options| {
        let progress = options.progress_callback();
        let (cache, recipe) = (options.cache.clone(), options.recipe);
        let open = siskin_convert::OpenOptions { cache, recipe, progress: &progress };
        if options.has_adapter() {
            let file = siskin_convert::open_any(path, &open)?;
            return Ok(options.model(file).map_err(|error| error.within(path))?);
        }
        let loaded = siskin_convert::open_model(path, &open, &options.model)?;
        Ok(Model::new(loaded).map_err(|error| error.within(path))?)
    };
    if options.is_null() {
        return open(&Options::default());
    }
    // SAFETY: pointer contract: `options` is null or live.
    unsafe { guard::borrow(options, open) }
}

/// # Safety
/// The pointer contract of the crate.
#[cfg(not(feature = "import"))]
unsafe fn open_path(path: &str, options: *const siskin_model_options) -> Outcome<Model> {
    // SAFETY: pointer contract: `options` is null or live.
    unsafe {
        borrow_or_default(options, |_: &Options| Ok(()))?;
        model_of(File::open(path)?, options)
    }
}

/// Opens a `.siskin` model in `length` bytes of an open file, starting at `offset`, such as an uncompressed asset in an
/// APK; length 0 means up to the end of the file. The descriptor stays open and belongs to the caller, which may close
/// it. For best alignment, use an offset that is a multiple of 16384.
///
/// Returns `SISKIN_ERROR_UNSUPPORTED` on systems without file descriptors. Threads: any.
///
/// # Safety
/// The pointer contract of the crate, and the descriptor is open until the call returns.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_open_descriptor(
    descriptor: i32,
    offset: u64,
    length: u64,
    options: *const siskin_model_options,
    out: *mut *mut siskin_model,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live; `out` is null or writable. `mapped` requires that
    // `descriptor` is open, as does this function.
    unsafe {
        open_with(options, out, || {
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
        return Err(PendingError::argument(
            "descriptor",
            format!("expected an open file descriptor, got {descriptor}"),
        ));
    }
    // SAFETY: `descriptor` is open until this returns (see `# Safety`); −1, which `borrow_raw` forbids, was rejected.
    let own = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned();
    let own = own.map_err(|error| siskin::Error::io("descriptor", &error))?;
    Ok(File::open_descriptor(own, offset, length)?)
}

/// # Safety
/// No requirements.
#[cfg(not(unix))]
unsafe fn mapped(_: i32, _: u64, _: Option<u64>) -> Outcome<File> {
    let message = "this system has no file descriptors; open the model by its path";
    Err(siskin::Error::unsupported("descriptor", message).into())
}

/// Copies a `.siskin` model from memory and opens the copy.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_open_copy(
    bytes: *const u8,
    length: usize,
    options: *const siskin_model_options,
    out: *mut *mut siskin_model,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `options` is null or live; `bytes` is readable for `length` bytes; `out` is null or
    // writable.
    unsafe { open_with(options, out, || Ok(File::from_bytes(values("bytes", bytes, length)?.to_vec())?)) }
}

/// Memory of the host that contains a model.
struct BorrowedMemory {
    start: *const u8,
    length: usize,
    _host: HostPointer,
}

// SAFETY: the host guarantees that the memory is not modified until it is released.
unsafe impl Send for BorrowedMemory {}
// SAFETY: as above.
unsafe impl Sync for BorrowedMemory {}

impl AsRef<[u8]> for BorrowedMemory {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the host guarantees that the memory is valid until it is released; `values` checked the pointer.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

/// Opens a `.siskin` model in caller-owned memory, without a copy: the memory must not move or change. `release` is
/// called with `user` once the model and everything created from it are freed, or before this function returns an
/// error.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate; the bytes are readable and do not change until `release` is called.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_open_memory(
    bytes: *const u8,
    length: usize,
    user: *mut c_void,
    release: siskin_release_function,
    options: *const siskin_model_options,
    out: *mut *mut siskin_model,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `release` is null, or may be called once with `user`; until then, `bytes` is readable
    // for `length` bytes, which do not change; `options` is null or live; `out` is null or writable.
    unsafe {
        let host = HostPointer::new(user, release);
        open_with(options, out, || {
            let start = values("bytes", bytes, length)?.as_ptr();
            Ok(File::from_bytes(BorrowedMemory { start, length, _host: host })?)
        })
    }
}

/// Returns the properties of the model.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_describe(
    model: *const siskin_model,
    out: *mut siskin_model_info,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `model` is null or live; `out` is null or a sized struct.
    unsafe {
        guard::shared(model, |model| {
            let result = SizedOutput::new("out", out)?;
            let (family, config) = (model.family(), model.config());
            result.write(&siskin_model_info {
                struct_size: 0,
                family: family.as_ptr().cast(),
                family_length: family.len(),
                context_length: config.context.max(config.encoder_context) as u64,
                vocabulary_size: config.vocabulary as u64,
                hidden_size: config.width as u64,
                file_size: model.file().bytes().len() as u64,
                threads: u32::try_from(model.threads()).unwrap_or(u32::MAX),
                capabilities: capabilities(model),
                warning_count: model.notes().len(),
            });
            Ok(())
        })
    }
}

fn capabilities(model: &Model) -> u32 {
    let graphs = model.graphs();
    let head = graphs.encoder.as_ref().map(|graph| graph.head);
    let bits = [
        (SISKIN_CAPABILITY_GENERATE, graphs.decoder.is_some()),
        (SISKIN_CAPABILITY_ENCODE, graphs.encoder.is_some()),
        (SISKIN_CAPABILITY_CHAT, model.file().template().is_some()),
        (SISKIN_CAPABILITY_TOKENIZE, model.tokenizer().is_ok()),
        (SISKIN_CAPABILITY_TRANSCRIBE, model.can_transcribe()),
        (SISKIN_CAPABILITY_CLASSIFY, head == Some(OutputHead::Class)),
        (SISKIN_CAPABILITY_TAG, head == Some(OutputHead::Label)),
        (SISKIN_CAPABILITY_ANSWER, head == Some(OutputHead::Span)),
        (SISKIN_CAPABILITY_FILL_MASK, head == Some(OutputHead::Token)),
    ];
    bits.iter().filter(|(_, there)| *there).fold(0, |all, (bit, _)| all | bit)
}

/// Returns a warning about the model, for example that it cannot use the fast kernels: UTF-8, not NUL-terminated. It is
/// valid until the model is freed.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_warning(
    model: *const siskin_model,
    index: usize,
    text: *mut *const c_char,
    length: *mut usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `model` is null or live; `text` and `length` are disjoint outputs.
    unsafe {
        guard::shared(model, |model| {
            let (text, length) = (output("text", text)?, output("length", length)?);
            let none = || PendingError::argument("index", format!("there is no warning {index}"));
            let warning = model.notes().get(index).ok_or_else(none)?;
            text.write(warning.as_ptr().cast());
            length.write(warning.len());
            Ok(())
        })
    }
}

/// Returns the memory usage of a session with these options, without creating one. `options` may be null.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_session_memory(
    model: *const siskin_model,
    options: *const siskin_session_options,
    out: *mut siskin_memory_usage,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `model` and `options` are null or live; `out` is null or a sized struct.
    unsafe {
        guard::shared(model, |model| {
            let result = SizedOutput::new("out", out)?;
            let options = borrow_or_default(options, |options| Ok(options.session.clone()))?;
            result.write(&model.memory(&options)?.into());
            Ok(())
        })
    }
}

/// Tokenizes text. `count` receives the number of tokens; the first `capacity` of them are written to `ids`, which
/// may be null if `capacity` is 0. `add_special` adds the special tokens that the model expects around a text. Special
/// tokens in the text are treated as plain text.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_tokenize(
    model: *const siskin_model,
    text: *const c_char,
    length: usize,
    add_special: bool,
    ids: *mut u32,
    capacity: usize,
    count: *mut usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `model` is null or live; `text` is a string of `length` bytes; `count` is null or
    // writable; `ids` is writable for `capacity` values: it is not null (checked), and `index < capacity`.
    unsafe {
        guard::shared(model, |model| {
            let (text, count) = (self::text("text", text, length)?, output("count", count)?);
            check_pointer("ids", ids, capacity)?;
            let options = EncodeOptions { add_special, parse_special: false };
            let tokens = model.tokenizer()?.encode(text, options)?;
            for (index, &id) in tokens.iter().take(capacity).enumerate() {
                ids.add(index).write(id);
            }
            count.write(tokens.len());
            Ok(())
        })
    }
}

/// Returns the bytes of a token, which may be part of a character. They are valid until the model is freed.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_token_bytes(
    model: *const siskin_model,
    id: u32,
    bytes: *mut *const u8,
    length: *mut usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `model` is null or live; `bytes` and `length` are disjoint outputs.
    unsafe {
        guard::shared(model, |model| {
            let (bytes, length) = (output("bytes", bytes)?, output("length", length)?);
            let token = model.tokenizer()?.token_text(id)?;
            bytes.write(token.as_ptr());
            length.write(token.len());
            Ok(())
        })
    }
}

/// Verifies the hashes of the model file. Reads the whole file.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_verify(model: *const siskin_model) -> *mut siskin_error {
    // SAFETY: pointer contract: `model` is null or live.
    unsafe { guard::shared(model, |model| Ok(model.file().verify(&mut |_, _| true)?)) }
}

/// Frees a model. Objects that were created from it stay valid. Null is ignored.
///
/// # Safety
/// The pointer contract of the crate, and the handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_model_free(model: *mut siskin_model) {
    // SAFETY: pointer contract: `model` is null or live, and not used afterwards.
    unsafe { guard::free(model) }
}
