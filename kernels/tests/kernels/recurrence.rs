use crate::common::{TestRandom, bits, tables};
use siskin_kernels::ops::recurrence::{PANEL, RecurrenceInputs, reference};

#[test]
fn all_kernels_give_the_reference_bits() {
    let mut random = TestRandom::new(31);
    for (size, panels) in [(1, 1), (7, 3), (16, 4), (24, 6), (128, 9)] {
        let columns = panels * PANEL;
        let first = random.vector(size * columns, 1.0);
        for (decay, rate) in [(1.0, None), (0.9, None), (0.8, Some(0.6)), (1.0, Some(1.0))] {
            let tokens: Vec<[Vec<f32>; 3]> =
                (0..3).map(|_| [size, size, columns].map(|length| random.vector(length, 1.0))).collect();
            let run = |function: siskin_kernels::ops::recurrence::Function| {
                let (mut state, mut outs) = (first.clone(), Vec::new());
                for [query, key, value] in &tokens {
                    let mut out = vec![f32::NAN; columns];
                    function(&RecurrenceInputs { query, key, value, decay, rate }, &mut state, &mut out);
                    outs.extend(out);
                }
                (bits(&state), bits(&outs))
            };
            let want = run(reference);
            for table in tables() {
                let isa = table.cpu().features();
                assert!(run(table.recurrence()) == want, "{size} {panels} {decay} {rate:?} {isa}");
            }
        }
    }
}

#[test]
fn a_key_that_is_asked_again_gives_its_value() {
    let key: Vec<f32> = (0..16).map(|i| if i == 3 { 1.0 } else { 0.0 }).collect();
    let values = [[2.0; PANEL], [5.0; PANEL]];
    for table in tables() {
        let (mut state, mut out) = (vec![0.0; 16 * PANEL], [0.0; PANEL]);
        for value in &values {
            let token = RecurrenceInputs { query: &key, key: &key, value, decay: 1.0, rate: Some(1.0) };
            table.recurrence()(&token, &mut state, &mut out);
            assert_eq!(&out, value);
        }
    }
}
