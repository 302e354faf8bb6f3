//! A server on this machine, whose answers a test writes: one function from requests to responses.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A request.
pub(crate) struct Request {
    pub(crate) path: String,
    /// By lowercase names.
    pub(crate) headers: HashMap<String, String>,
}

impl Request {
    /// Returns the range that is asked for: the first byte and the one behind the last.
    pub(crate) fn range(&self) -> Option<(usize, usize)> {
        let (start, last) = self.headers.get("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((start.parse().ok()?, last.parse::<usize>().ok()? + 1))
    }
}

/// What is sent: a head with its headers, and a body that may be shorter than announced.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Closes the connection after so many bytes of the body.
    pub(crate) cut: Option<usize>,
    /// Waits after each piece of so many bytes.
    pub(crate) drip: Option<(usize, Duration)>,
}

impl Response {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), cut: None, drip: None }
    }

    pub(crate) fn header(mut self, name: &str, value: impl ToString) -> Self {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }

    /// Serves a file as servers with ranges do.
    pub(crate) fn file(request: &Request, bytes: &[u8]) -> Self {
        match request.range() {
            Some((start, end)) if start < bytes.len() => {
                let end = end.min(bytes.len());
                let range = format!("bytes {start}-{}/{}", end - 1, bytes.len());
                Self::new(206, &bytes[start..end]).header("content-range", range)
            }
            Some(_) => Self::new(416, ""),
            None => Self::new(200, bytes),
        }
    }
}

type Handler = dyn Fn(&Request) -> Response + Send + Sync;

/// A running server.
pub(crate) struct Server {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Request>>>,
    sent: Arc<AtomicUsize>,
}

impl Server {
    pub(crate) fn start(handler: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let sent = Arc::new(AtomicUsize::new(0));
        let (handler, log): (Arc<Handler>, _) = (Arc::new(handler), Arc::clone(&requests));
        let counter = Arc::clone(&sent);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (handler, log) = (Arc::clone(&handler), Arc::clone(&log));
                let counter = Arc::clone(&counter);
                std::thread::spawn(move || {
                    // A client that leaves is no failure.
                    let _ = answer(stream, &*handler, &log, &counter);
                });
            }
        });
        Self { url, requests, sent }
    }

    /// A server that another process runs.
    pub(crate) fn elsewhere(url: String) -> Self {
        Self { url, requests: Arc::default(), sent: Arc::default() }
    }

    /// Returns how many bytes of bodies were sent.
    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns how many requests there were to paths that contain `part`.
    pub(crate) fn count(&self, part: &str) -> usize {
        self.requests.lock().unwrap().iter().filter(|request| request.path.contains(part)).count()
    }

    /// Returns whether a request had a header.
    pub(crate) fn has_header(&self, name: &str, value: &str) -> bool {
        let requests = self.requests.lock().unwrap();
        requests.iter().any(|request| request.headers.get(name).is_some_and(|found| found == value))
    }
}

fn answer(
    stream: TcpStream,
    handler: &Handler,
    log: &Mutex<Vec<Request>>,
    sent: &AtomicUsize,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut headers = HashMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.insert(name.to_lowercase(), value.to_owned());
        }
        let request = Request { path, headers };
        let response = handler(&request);
        log.lock().unwrap().push(request);
        let mut head =
            format!("HTTP/1.1 {} X\r\ncontent-length: {}\r\n", response.status, response.body.len());
        for (name, value) in &response.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{head}\r\n").as_bytes())?;
        let body = &response.body[..response.cut.unwrap_or(response.body.len()).min(response.body.len())];
        match response.drip {
            None => {
                stream.write_all(body)?;
                sent.fetch_add(body.len(), Ordering::Relaxed);
            }
            Some((bytes, pause)) => {
                for piece in body.chunks(bytes) {
                    stream.write_all(piece)?;
                    sent.fetch_add(piece.len(), Ordering::Relaxed);
                    std::thread::sleep(pause);
                }
            }
        }
        if response.cut.is_some() {
            return stream.shutdown(std::net::Shutdown::Both);
        }
    }
}
