#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| siskin_tests::fuzz::hub_answer(data));
