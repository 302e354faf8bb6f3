//! After the first call, prefill and decode do not allocate.

use siskin::{CpuFeatures, DeviceKind, SessionOptions};
use siskin_tests::counting::{Counting, measure};
use siskin_tests::{golden, texts};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn prefill_and_decode_allocate_nothing_after_the_first_call() {
    for name in golden::NAMES {
        let golden = golden::load(name);
        for threads in [1, 2] {
            let model = golden::model(&golden.file, DeviceKind::Cpu, threads, CpuFeatures::NONE);
            let context = model.config().context.min(100);
            let mut session =
                model.session(SessionOptions { context, batch: 8, ..Default::default() }).unwrap();
            session.prefill(&golden.ids[0][..3]).unwrap();
            session.next_token().unwrap();
            let steps = 40.min(context - golden.ids[0].len() - 5);
            let ((), usage) = measure(|| {
                session.prefill(&golden.ids[0]).unwrap();
                for _ in 0..steps {
                    session.next_token().unwrap();
                }
            });
            assert_eq!(usage.count, 0, "{name} with {threads} threads");
        }
    }
}

#[test]
fn writing_after_reading_allocates_nothing() {
    for name in texts::WRITERS {
        let golden = texts::load(name, None);
        let model = golden::model(&golden.file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
        let mut session = model.session(SessionOptions { context: 32, ..Default::default() }).unwrap();
        session.encode(&golden.texts[0]).unwrap();
        session.prefill(&golden.written[0][..3]).unwrap();
        session.next_token().unwrap();
        let ((), usage) = measure(|| {
            session.prefill(&golden.written[0]).unwrap();
            for _ in 0..10 {
                session.next_token().unwrap();
            }
        });
        assert_eq!(usage.count, 0, "{name}");
    }
}

#[test]
fn requests_allocate_only_the_texts_of_their_readers() {
    use siskin::sample::SamplerOptions;
    use siskin::serving::{Engine, EngineOptions, GenerationRequest, PromptInput, ServedModelOptions};

    for name in ["llama", "gemma3", "qwen3-next", "mixtral"] {
        let golden = golden::load(name);
        let model = golden::model(&golden.file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
        let engine = Engine::new(EngineOptions::default()).unwrap();
        let session = SessionOptions { context: model.config().context.min(100), ..Default::default() };
        let options = ServedModelOptions { session, ..Default::default() };
        let id = engine.add_model(&model, &options).unwrap();
        let sampler = SamplerOptions { log_probabilities: true, ..SamplerOptions::default() };
        let mut streams: Vec<_> = (0..16)
            .map(|last| {
                let sampler = sampler.clone();
                let prompt = PromptInput::Tokens(vec![3, 5, last]);
                engine.submit(id, GenerationRequest { sampler, ..GenerationRequest::new(prompt) }).unwrap()
            })
            .collect();
        let mut read = |count: usize| {
            for _ in 0..count {
                streams.iter_mut().for_each(|stream| drop(stream.next_event().unwrap()));
            }
        };
        read(10);
        let ((), usage) = measure(|| read(20));
        // A reader gets the text of each token as a string of its own.
        assert!(usage.count <= 2 * 20 * 16, "{name}: {} allocations", usage.count);
    }
}
