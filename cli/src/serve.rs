//! `siskin serve`: answers requests as JSON lines. `docs/cli.md` describes the protocol.
//!
//! One thread reads, so that a running request can be stopped. The worker thread answers the requests in order and is
//! the only one that writes.

mod answers;
mod base64;
mod fields;
mod json_lines;
mod request;
mod request_queue;
mod worker;

use crate::options::{ContextArgs, ModelArgs, OpenArgs};
use answers::tell;
use json_lines::{InputLine, InputLines};
use request::{ParsedLine, RejectedRequest, Request};
use request_queue::RequestQueue;
use siskin::{Error, ErrorKind, Result};
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use worker::ModelState;

/// Answer requests: one JSON object per line, from standard input to standard output
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A .siskin, GGUF or ONNX file, or a model folder
    model: PathBuf,
    /// Maximum size of a request in bytes: longer requests are rejected. Also the capacity of the request queue in
    /// bytes
    #[arg(long, default_value_t = 16 << 20, value_name = "BYTES")]
    max_request_bytes: usize,
    /// Upper limit for max_tokens in every request
    #[arg(long, value_name = "N")]
    max_tokens: Option<usize>,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    model_args: ModelArgs,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let model = match open.model(&args.model, &args.model_args) {
        Ok(model) => model,
        Err(error) => {
            // Standard error is not visible to a client that connects through a socket.
            tell(None, &answers::Reply::Error(&error))?;
            return Err(error);
        }
    };
    let queue = Arc::new(RequestQueue::new(args.max_request_bytes));
    let (input, longest) = (Arc::clone(&queue), args.max_request_bytes);
    std::thread::spawn(move || {
        read(std::io::stdin(), longest, &input);
        input.end();
    });
    let mut work = ModelState::new(model, args, &queue);
    while let Some(job) = queue.take() {
        let outcome = work.answer(job);
        queue.done();
        outcome?;
    }
    Ok(())
}

/// Reads requests from `input` into the queue until end of file.
fn read(input: impl Read, longest: usize, queue: &RequestQueue) {
    let mut lines = InputLines::new(input, longest);
    let mut number = 0;
    loop {
        let line = lines.next();
        number += 1;
        let rejected = |kind, message: String| {
            Err(RejectedRequest { id: None, error: Error::new(kind, format!("line {number}"), message) })
        };
        let parsed = match line {
            Ok(None) => return,
            Err(error) => {
                let error = Error::io("standard input", &error);
                queue.put(Err(RejectedRequest { id: None, error }), 0);
                return;
            }
            Ok(Some(InputLine::TooLong)) => rejected(
                ErrorKind::TooLong,
                format!("line too long: more than {longest} bytes; see --max-request-bytes"),
            ),
            Ok(Some(InputLine::Whole(bytes))) => match std::str::from_utf8(bytes) {
                Ok(text) if text.trim().is_empty() => continue,
                Ok(text) => Request::read(text).map_err(|rejection| rejection.on_line(number)),
                Err(error) => {
                    rejected(ErrorKind::Argument, format!("not UTF-8 at byte {}", error.valid_up_to()))
                }
            },
        };
        match parsed {
            Ok(ParsedLine::Cancel(id)) => queue.cancel(&id),
            Ok(ParsedLine::Request(request)) => queue.put(Ok(*request), lines.length()),
            Err(rejection) => queue.put(Err(rejection), lines.length()),
        }
    }
}
