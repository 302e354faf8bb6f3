//! How the shared library is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let (system, major) = (variable("CARGO_CFG_TARGET_OS"), variable("CARGO_PKG_VERSION_MAJOR"));
    match system.as_str() {
        "linux" => {
            println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsiskin.so.{major}");
            println!("cargo::rustc-cdylib-link-arg=-Wl,-z,max-page-size=16384");
        }
        "android" => {
            println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsiskin.so");
            println!("cargo::rustc-cdylib-link-arg=-Wl,-z,max-page-size=16384");
        }
        "macos" | "ios" => {
            println!("cargo::rustc-cdylib-link-arg=-Wl,-install_name,@rpath/libsiskin.dylib");
        }
        _ => {}
    }
}
