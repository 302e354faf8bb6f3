//! Writes the layout of the header's structs as Rust has it, for C compilers to compare with theirs.

use std::mem::offset_of;

use crate::governor::siskin_pace_stats;
use crate::memory::siskin_memory;
use crate::model::siskin_model_info;
use crate::predictions::siskin_found;
use crate::session::{siskin_choice, siskin_piece};
use crate::session_state::siskin_stats;
use crate::transcriber::siskin_segment;
use crate::writer::siskin_written;

/// The committed file.
const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/c/layout.h");

macro_rules! layout {
    ($($name:ident { $($field:ident),* $(,)? })*) => {
        fn structs() -> Vec<(&'static str, usize, usize, Vec<(&'static str, usize)>)> {
            vec![$((
                stringify!($name),
                size_of::<$name>(),
                align_of::<$name>(),
                vec![$((stringify!($field), offset_of!($name, $field))),*],
            )),*]
        }
    };
}

layout! {
    siskin_memory { struct_size, activations, cache, mapped }
    siskin_pace_stats { struct_size, passes, worked_nanoseconds, waited_nanoseconds, threads, duty }
    siskin_model_info {
        struct_size, family, family_length, context, vocabulary, width, bytes, threads, abilities, notes,
    }
    siskin_choice { token, log_probability }
    siskin_piece {
        struct_size, text, length, bytes, byte_count, top, top_count, token, log_probability, has_token, done, ended,
    }
    siskin_stats { struct_size, position, prompt_tokens, prompt_nanoseconds, tokens, nanoseconds }
    siskin_found { struct_size, text, length, start, end, score, token }
    siskin_written { struct_size, text, length, tokens, token_count, score, ended }
    siskin_segment { struct_size, text, length, start, end, log_probability, silence }
}

#[test]
#[cfg(target_pointer_width = "64")]
fn the_layout_is_the_committed_one() {
    let mut text = String::from(
        "// The layout that Rust gives the structs of the header on machines of 64 bits. Made by the tests of siskin-ffi\n\
         // with SISKIN_BLESS=1: what was shipped once never changes, and fields are added at the end.\n",
    );
    for (name, size, align, fields) in structs() {
        text.push_str(&format!("\n_Static_assert(sizeof({name}) == {size}, \"{name}\");\n"));
        text.push_str(&format!("_Static_assert(_Alignof({name}) == {align}, \"{name}\");\n"));
        for (field, offset) in fields {
            let place = format!("{name}.{field}");
            text.push_str(&format!("_Static_assert(offsetof({name}, {field}) == {offset}, \"{place}\");\n"));
        }
    }
    if std::env::var_os("SISKIN_BLESS").is_some() {
        std::fs::write(COMMITTED, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(COMMITTED).unwrap(), text);
}
