//! Workloads: requests with their arrival times.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use siskin::{Error, Result};

use super::random::{LogNormal, WorkloadRandom};
use super::words::Writer;

/// The kind of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Single messages; the lengths of prompts and responses have log-normal distributions, with medians of 80 and 130 tokens
    /// and 95th percentiles of 900 and 500.
    Chat,
    /// The same, arriving in bursts: gaps between arrivals have a gamma distribution with a coefficient of variation of 2.
    Bursts,
    /// Questions of 100 tokens about one of six documents of 2,000 tokens.
    Rag,
    /// Conversations of eight turns with the same system message of 1,500 tokens, answered as JSON of a schema. A turn follows
    /// the response to the one before it.
    Agents,
    /// A prompt of 1,000 tokens, again and again, one request after the other; the first one is not counted.
    Prefix,
    /// Four streams, into which prompts of 2,048 tokens come; only the streams are counted.
    LongPrompts,
    /// Texts of 20 to 300 tokens to embed.
    Embeddings,
}

impl Workload {
    /// All workloads, by their names.
    pub const ALL: [(&'static str, Self); 7] = [
        ("chat", Self::Chat),
        ("bursts", Self::Bursts),
        ("rag", Self::Rag),
        ("agents", Self::Agents),
        ("prefix", Self::Prefix),
        ("long-prompts", Self::LongPrompts),
        ("embeddings", Self::Embeddings),
    ];
}

/// Options for a plan.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The number of requests.
    pub requests: usize,
    /// Requests per second in the mean, which arrive whatever the server does (open loop); `None`: [`Self::concurrency`] clients, each of
    /// which sends a request after the other (closed loop).
    pub rate: Option<f64>,
    /// The number of clients without a rate.
    pub concurrency: usize,
    /// The maximum number of tokens of each text in a prompt.
    pub max_prompt: usize,
    /// The maximum number of tokens of a response.
    pub max_output: usize,
    /// Whether responses have all of their tokens, even if the model would end them: servers then generate equally much.
    pub ignore_eos: bool,
    /// Whether responses of [`Workload::Agents`] must match a JSON Schema.
    pub schema: bool,
    /// The seed of prompts, lengths and arrival times.
    pub seed: u64,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            requests: 64,
            rate: None,
            concurrency: 8,
            max_prompt: 2048,
            max_output: 512,
            ignore_eos: true,
            schema: true,
            seed: 1,
        }
    }
}

/// A request of a plan.
pub(super) struct PlannedRequest {
    /// When it arrives, after the start; not used in a closed loop.
    pub(super) arrival: Duration,
    pub(super) path: &'static str,
    /// The body without the model's name.
    pub(super) body: Value,
    /// Whether it is counted.
    pub(super) is_measured: bool,
    /// Since when, after its start, the gaps between its tokens are counted.
    pub(super) gaps_since: Duration,
    /// Whether it follows the response to the request before it in the plan.
    pub(super) is_next_turn: bool,
}

impl PlannedRequest {
    fn new(path: &'static str, body: Value) -> Self {
        let (arrival, gaps_since) = (Duration::ZERO, Duration::ZERO);
        Self { arrival, path, body, is_measured: true, gaps_since, is_next_turn: false }
    }
}

/// Requests and their arrival times.
pub struct LoadPlan {
    pub(super) requests: Arc<[PlannedRequest]>,
    /// The number of clients of a closed loop; `None`: requests start when they arrive.
    pub(super) clients: Option<usize>,
}

/// What agents answer.
const SCHEMA: &str = r#"{"type": "object", "properties": {
    "tool": {"type": "string", "enum": ["search_documents", "send_message", "create_event", "finish"]},
    "arguments": {"type": "object", "properties": {"query": {"type": "string", "maxLength": 80},
        "limit": {"type": "integer", "minimum": 1, "maximum": 50}}, "required": ["query", "limit"],
        "additionalProperties": false},
    "confidence": {"type": "number"}},
    "required": ["tool", "arguments", "confidence"], "additionalProperties": false}"#;

/// When the first of the long prompts arrives: after the prompts of the streams.
const LONG_PROMPTS_START: Duration = Duration::from_secs(1);
/// Requests per second.
const SLOWEST: f64 = 0.001;
const FASTEST: f64 = 1e6;

const DOCUMENTS: usize = 6;
const TURNS: usize = 8;
const STREAMS: usize = 4;

/// Makes the bodies of requests.
struct Author<'a> {
    random: WorkloadRandom,
    writer: Writer,
    options: &'a LoadOptions,
}

impl Author<'_> {
    fn text(&mut self, tokens: usize) -> String {
        let count = tokens.clamp(1, self.options.max_prompt);
        self.writer.text(&mut self.random, count)
    }

    /// Returns a length with a distribution, of at most `max`.
    fn length(&mut self, distribution: LogNormal, max: usize) -> usize {
        (self.random.log_normal(distribution) as usize).clamp(4, max.max(4))
    }

    /// Returns a streamed chat completion.
    fn chat(&mut self, messages: &Value, max_tokens: usize) -> Value {
        let mut body = json!({
            "messages": messages,
            "max_tokens": max_tokens.clamp(1, self.options.max_output),
            "temperature": 0.0,
            "seed": self.random.below(1 << 30),
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        if self.options.ignore_eos {
            body["ignore_eos"] = Value::Bool(true);
        }
        body
    }

    fn message(&mut self, tokens: usize) -> Value {
        json!({"role": "user", "content": self.text(tokens)})
    }

    fn chat_request(&mut self) -> Value {
        let prompt = self.length(LogNormal { median: 80.0, p95: 900.0 }, self.options.max_prompt);
        let output = self.length(LogNormal { median: 130.0, p95: 500.0 }, self.options.max_output);
        let message = self.message(prompt);
        self.chat(&json!([message]), output)
    }

    fn rag(&mut self) -> Vec<Value> {
        let documents: Vec<String> = (0..DOCUMENTS).map(|_| self.text(2000)).collect();
        let count = self.options.requests;
        let request = |_| {
            let document = &documents[self.random.below(DOCUMENTS)];
            let question = self.text(100);
            let content = format!("{document}\n\nAnswer this question about the text above: {question}");
            self.chat(&json!([{"role": "user", "content": content}]), 100)
        };
        (0..count).map(request).collect()
    }

    fn agents(&mut self) -> Vec<Value> {
        let system = json!({"role": "system", "content": self.text(1500)});
        let mut messages = vec![system.clone()];
        let count = self.options.requests;
        let request = |index: usize| {
            if index.is_multiple_of(TURNS) {
                messages = vec![system.clone()];
            }
            let message = self.message(40);
            messages.push(message);
            let mut body = self.chat(&Value::Array(messages.clone()), 120);
            if self.options.schema {
                let schema: Value = serde_json::from_str(SCHEMA).unwrap_or_default();
                body["response_format"] =
                    json!({"type": "json_schema", "json_schema": {"name": "call", "schema": schema}});
                // The schema decides where a response ends.
                body["ignore_eos"] = Value::Bool(false);
            }
            // What the model answered is not known yet; any text of that length costs the same.
            let answer = self.text(30);
            messages.push(json!({"role": "assistant", "content": answer}));
            body
        };
        (0..count).map(request).collect()
    }

    fn embeddings(&mut self) -> Value {
        let length = 20 + self.random.below(281);
        json!({"input": self.text(length)})
    }
}

impl LoadPlan {
    /// Returns the requests of a workload.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](siskin::ErrorKind::Argument) if an option is out of range.
    pub fn new(workload: Workload, options: &LoadOptions) -> Result<Self> {
        options.check()?;
        match (workload, options.rate) {
            (Workload::Bursts, None) => return Err(Error::argument("rate", "bursts need a rate")),
            (Workload::Prefix | Workload::LongPrompts, Some(_)) => {
                return Err(Error::argument("rate", "no effect: the workload has arrival times of its own"));
            }
            _ => {}
        }
        let mut author = Author { random: WorkloadRandom::new(options.seed), writer: Writer::new(), options };
        let count = options.requests;
        let bodies = match workload {
            Workload::Chat | Workload::Bursts => (0..count).map(|_| author.chat_request()).collect(),
            Workload::Rag => author.rag(),
            Workload::Agents => author.agents(),
            Workload::Embeddings => (0..count).map(|_| author.embeddings()).collect(),
            Workload::Prefix => return Ok(Self::prefix(&mut author)),
            Workload::LongPrompts => return Ok(Self::long_prompts(&mut author)),
        };
        let path = match workload {
            Workload::Embeddings => "/v1/embeddings",
            _ => "/v1/chat/completions",
        };
        // An exponential distribution, or one with a coefficient of variation of 2.
        let shape = if workload == Workload::Bursts { 0.25 } else { 1.0 };
        let mut arrival = Duration::ZERO;
        let requests = bodies.into_iter().enumerate().map(|(index, body)| {
            let is_next_turn = workload == Workload::Agents && !index.is_multiple_of(TURNS);
            if let Some(rate) = options.rate.filter(|_| index > 0 && !is_next_turn) {
                // The other turns of a conversation follow by themselves.
                let turns = if workload == Workload::Agents { TURNS as f64 } else { 1.0 };
                arrival += Duration::from_secs_f64(turns * author.random.gamma(shape) / rate);
            }
            PlannedRequest { arrival, is_next_turn, ..PlannedRequest::new(path, body) }
        });
        let requests = requests.collect();
        Ok(Self { requests, clients: options.rate.is_none().then_some(options.concurrency) })
    }

    fn prefix(author: &mut Author<'_>) -> Self {
        let text = author.text(1000);
        let count = author.options.requests;
        let request = |index: usize| {
            let question = author.text(8);
            let content = format!("{text} {question}");
            let body = author.chat(&json!([{"role": "user", "content": content}]), 16);
            let path = "/v1/chat/completions";
            PlannedRequest { is_measured: index > 0, ..PlannedRequest::new(path, body) }
        };
        let requests = (0..=count).map(request).collect();
        Self { requests, clients: Some(1) }
    }

    fn long_prompts(author: &mut Author<'_>) -> Self {
        let path = "/v1/chat/completions";
        let mut requests = Vec::new();
        for _ in 0..STREAMS {
            let message = author.message(64);
            let body = author.chat(&json!([message]), author.options.max_output);
            let gaps_since = LONG_PROMPTS_START;
            requests.push(PlannedRequest { gaps_since, ..PlannedRequest::new(path, body) });
        }
        for index in 0..author.options.requests {
            let message = author.message(2048);
            let body = author.chat(&json!([message]), 1);
            let arrival = LONG_PROMPTS_START + Duration::from_secs(index as u64);
            requests.push(PlannedRequest { arrival, is_measured: false, ..PlannedRequest::new(path, body) });
        }
        Self { requests: requests.into(), clients: None }
    }
}

impl LoadPlan {
    /// Returns the requests that follow each other, as ranges; most have one.
    pub(super) fn conversations(&self) -> impl Iterator<Item = Range<usize>> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let start = next;
            let first = self.requests.get(start)?;
            debug_assert!(!first.is_next_turn, "a conversation begins with a first turn");
            next = start + 1;
            while self.requests.get(next).is_some_and(|request| request.is_next_turn) {
                next += 1;
            }
            Some(start..next)
        })
    }
}

impl LoadOptions {
    fn check(&self) -> Result<()> {
        if self.requests == 0 {
            return Err(Error::argument("requests", "must be at least 1"));
        }
        for (name, value) in [
            ("concurrency", self.concurrency),
            ("max_prompt", self.max_prompt),
            ("max_output", self.max_output),
        ] {
            if value == 0 {
                return Err(Error::argument(name, "must be at least 1"));
            }
        }
        match self.rate {
            Some(rate) if !(SLOWEST..=FASTEST).contains(&rate) => {
                let message = format!("expected {SLOWEST} to {FASTEST} requests per second, got {rate}");
                Err(Error::argument("rate", message))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(plan: &LoadPlan) -> Vec<String> {
        plan.requests.iter().map(|request| format!("{:?} {}", request.arrival, request.body)).collect()
    }

    #[test]
    fn a_plan_depends_on_the_seed_alone() {
        for (name, workload) in Workload::ALL {
            let rate = (!matches!(workload, Workload::Prefix | Workload::LongPrompts)).then_some(4.0);
            let options = LoadOptions { requests: 20, rate, ..LoadOptions::default() };
            let plan = LoadPlan::new(workload, &options).unwrap();
            let again = LoadPlan::new(workload, &options).unwrap();
            let other = LoadPlan::new(workload, &LoadOptions { seed: 2, ..options.clone() }).unwrap();
            assert_eq!(bodies(&plan), bodies(&again), "{name}");
            assert_ne!(bodies(&plan), bodies(&other), "{name}");
            assert!(plan.requests.iter().filter(|request| request.is_measured).count() >= 4, "{name}");
        }
    }

    #[test]
    fn turns_of_a_conversation_follow_each_other() {
        let options = LoadOptions { requests: 20, rate: Some(4.0), ..LoadOptions::default() };
        let plan = LoadPlan::new(Workload::Agents, &options).unwrap();
        let first: Vec<_> = (0..20).filter(|&index| !plan.requests[index].is_next_turn).collect();
        assert_eq!(first, [0, 8, 16]);
        let turns: Vec<_> = plan.conversations().collect();
        assert_eq!(turns, [0..8, 8..16, 16..20]);
    }

    #[test]
    fn arrivals_have_the_rate() {
        let options = LoadOptions { requests: 2000, rate: Some(50.0), ..LoadOptions::default() };
        for workload in [Workload::Chat, Workload::Bursts] {
            let plan = LoadPlan::new(workload, &options).unwrap();
            let last = plan.requests.last().unwrap().arrival.as_secs_f64();
            assert!((30.0..50.0).contains(&last), "{last}");
        }
    }

    #[test]
    fn lengths_are_limited() {
        let options = LoadOptions { requests: 500, max_prompt: 50, max_output: 20, ..LoadOptions::default() };
        let plan = LoadPlan::new(Workload::Chat, &options).unwrap();
        for request in plan.requests.iter() {
            let text = request.body["messages"][0]["content"].as_str().unwrap();
            assert!(text.split(' ').count() <= 50);
            assert!(request.body["max_tokens"].as_u64().unwrap() <= 20);
        }
    }

    #[test]
    fn options_are_checked() {
        for options in [
            LoadOptions { requests: 0, ..LoadOptions::default() },
            LoadOptions { concurrency: 0, ..LoadOptions::default() },
            LoadOptions { rate: Some(0.0), ..LoadOptions::default() },
            LoadOptions { rate: Some(f64::NAN), ..LoadOptions::default() },
            LoadOptions { rate: Some(1e-300), ..LoadOptions::default() },
            LoadOptions { max_prompt: 0, ..LoadOptions::default() },
            LoadOptions { max_output: 0, ..LoadOptions::default() },
        ] {
            assert!(LoadPlan::new(Workload::Chat, &options).is_err(), "{options:?}");
        }
    }
}
