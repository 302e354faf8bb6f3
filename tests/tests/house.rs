//! The rules of the code base, and the wrappers of the C header.

mod c_header;
mod house_api;
mod house_code;
mod house_crates;
mod house_docs;
mod wrapper_android;
mod wrapper_ios;
mod wrappers;
