#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| siskin_tests::fuzz::model_name(data));
