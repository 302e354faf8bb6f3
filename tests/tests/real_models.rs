//! Real models, if downloaded by `cargo xtask model`: the same bits in all ways of running them.

use siskin::tokenizer::EncodeOptions;
use siskin::{CpuFeatures, DeviceKind, Model, SessionOptions};
use siskin_convert::{OpenOptions, PackedCache, open_any};
use siskin_tests::golden::{model, session};
use siskin_tests::paths;

const TEXT: &str = "The robin was building its nest in the hedge behind the old house, as it had done every \
    spring that anyone could remember, and the children watched from the kitchen window while the rain came \
    down and the kettle began to sing. Nobody spoke until the bird had flown away again.";

fn logits(model: &Model, ids: &[u32], chunk: usize) -> Vec<u32> {
    let mut session = session(model, 512);
    for part in ids.chunks(chunk) {
        session.prefill(part).expect("the model runs");
    }
    session.logits().iter().map(|logit| logit.to_bits()).collect()
}

#[test]
fn bits_do_not_depend_on_chunks_threads_or_tables() {
    for name in ["smollm2", "gemma3"] {
        let Some(path) = paths::model(name) else { continue };
        let file =
            open_any(path, &OpenOptions { cache: PackedCache::Off, ..OpenOptions::default() }).unwrap();
        let best = model(&file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
        let options = EncodeOptions { add_special: true, parse_special: false };
        let once = best.tokenizer().unwrap().encode(TEXT, options).unwrap();
        let ids: Vec<u32> = once.iter().cycle().take(530).copied().collect();
        let want = logits(&best, &ids, 512);
        for (threads, chunk) in [(1, 64), (2, 7), (4, 512)] {
            let model = model(&file, DeviceKind::Cpu, threads, CpuFeatures::NONE);
            assert_eq!(logits(&model, &ids, chunk), want, "{name}: {threads} threads, chunks of {chunk}");
        }
        let short = &ids[..40];
        let want = logits(&best, short, 1);
        let avx2 = CpuFeatures::AVX512.with(CpuFeatures::AVXVNNI);
        for without in [CpuFeatures::AVX512, avx2, CpuFeatures::AVX2.with(CpuFeatures::NEON)] {
            let model = model(&file, DeviceKind::Cpu, 2, without);
            assert_eq!(logits(&model, short, 64), want, "{name}: without {without}");
        }
        let mut context = best.context(&SessionOptions::default(), 2, 2).unwrap();
        let (first, second) = (context.create(), context.create());
        let piece = |sequence, tokens| siskin::BatchEntry::new(sequence, tokens, siskin::OutputRows::Last);
        context.forward(&[piece(first, short), piece(second, &ids[40..70])]).unwrap();
        let got: Vec<u32> = context.output(0).iter().map(|logit| logit.to_bits()).collect();
        assert_eq!(got, want, "{name}: beside another sequence");
    }
}
