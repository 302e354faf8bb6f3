#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| siskin_tests::fuzz::http_event(data));
