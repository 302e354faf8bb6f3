//! `siskin serve --stdio`: JSON lines from standard input to standard output. `docs/cli.md` describes the protocol.
//!
//! One thread reads, so that a running request can be stopped. The worker thread answers the requests in order and is
//! the only one that writes.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::Args;
use super::answers::{Reply, tell};
use super::json_lines::{InputLine, InputLines};
use super::request::{ParsedLine, RejectedRequest, Request};
use super::request_queue::RequestQueue;
use super::worker::ModelState;
use crate::options::OpenArgs;
use siskin::{Error, ErrorKind, Result};

/// Answers requests until the end of the input.
pub(super) fn run(path: &Path, args: &Args, open: &OpenArgs) -> Result<()> {
    let model = match open.model(path, &args.model_args) {
        Ok(model) => model,
        Err(error) => {
            // Standard error is not visible to a client that connects through a socket.
            tell(None, &Reply::Error(&error))?;
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
