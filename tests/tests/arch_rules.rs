//! The rules of the code base, and the wrappers of the C header.

mod arch_rules_api;
mod arch_rules_code;
mod arch_rules_crates;
mod arch_rules_docs;
mod c_header;
mod wrapper_android;
mod wrapper_ios;
mod wrappers;
