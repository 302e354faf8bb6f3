//! Sends the requests of a plan, and measures when events arrive.

use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::Range;
use std::result::Result as StdResult;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use siskin::{Error, Result};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::plan::{LoadPlan, PlannedRequest};
use super::report::{LoadReport, RequestRecord};

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(600);
/// The maximum number of bytes of an event, of an error message, and of a response that is not streamed.
const MAX_EVENT_BYTES: usize = 16 << 20;
const MAX_ERROR_BYTES: usize = 400;

/// A server and one of its models.
#[derive(Clone, Debug)]
pub struct Target {
    /// Those of the host, which are tried in turn.
    addresses: Vec<SocketAddr>,
    authority: String,
    model: Option<String>,
}

impl Target {
    /// Returns the server at a URL such as `http://127.0.0.1:8080`. Without a model's name, the first one of its list is used.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](siskin::ErrorKind::Argument) if the URL is not one of an HTTP server.
    pub fn new(url: &str, model: Option<String>) -> Result<Self> {
        let invalid = |why: String| Error::argument("url", format!("`{url}`: {why}"));
        let uri: Uri = url.parse().map_err(|error| invalid(format!("{error}")))?;
        if uri.scheme_str() != Some("http") {
            return Err(invalid("expected http://HOST:PORT".to_owned()));
        }
        if !matches!(uri.path(), "/" | "" | "/v1" | "/v1/") {
            return Err(invalid(format!("leave out the path {}", uri.path())));
        }
        let host = uri.host().ok_or_else(|| invalid("it has no host".to_owned()))?;
        let port = uri.port_u16().unwrap_or(80);
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let addresses =
            (bare, port).to_socket_addrs().map_err(|error| Error::io(format!("{host}:{port}"), &error))?;
        Ok(Self { addresses: addresses.collect(), authority: format!("{host}:{port}"), model })
    }

    /// Connects, and sends a request.
    async fn send(&self, request: Request<Full<Bytes>>) -> StdResult<Response<Incoming>, String> {
        let stream = TcpStream::connect(self.addresses.as_slice()).await;
        let stream = stream.map_err(|error| format!("{}: {error}", self.authority))?;
        let _ = stream.set_nodelay(true);
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
        // Ends with the connection.
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(|error| error.to_string())
    }

    fn request(&self, method: &str, path: &str, body: Vec<u8>) -> StdResult<Request<Full<Bytes>>, String> {
        Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.authority)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body.into()))
            .map_err(|error| error.to_string())
    }

    /// Returns the body of the response to a GET.
    pub(crate) async fn get(&self, path: &str) -> StdResult<Bytes, String> {
        let response = self.send(self.request("GET", path, Vec::new())?).await?;
        match response.status() {
            StatusCode::OK => whole(response).await,
            status => Err(format!("{}{path}: status {status}", self.authority)),
        }
    }

    /// Returns the name of the model.
    async fn model(&self) -> StdResult<String, String> {
        if let Some(name) = &self.model {
            return Ok(name.clone());
        }
        let response = self.send(self.request("GET", "/v1/models", Vec::new())?).await?;
        let list: Value = serde_json::from_slice(&whole(response).await?)
            .map_err(|error| format!("/v1/models: {error}"))?;
        let name = list["data"][0]["id"].as_str();
        name.map(str::to_owned).ok_or_else(|| "/v1/models lists no model".to_owned())
    }

    /// Sends a planned request, and reads its response.
    async fn measure(&self, planned: &PlannedRequest, model: &str, start: Instant) -> RequestRecord {
        let mut record = RequestRecord::default();
        record.gaps_since = planned.gaps_since;
        let outcome = tokio::time::timeout(TIMEOUT, self.read(planned, model, start, &mut record)).await;
        record.error = match outcome {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error),
            Err(_) => Some(format!("no response within {} s", TIMEOUT.as_secs())),
        };
        record.total = start.elapsed();
        record
    }

    async fn read(
        &self,
        planned: &PlannedRequest,
        model: &str,
        start: Instant,
        record: &mut RequestRecord,
    ) -> StdResult<(), String> {
        let mut body = planned.body.clone();
        body["model"] = Value::String(model.to_owned());
        let request = self.request("POST", planned.path, body.to_string().into_bytes())?;
        let mut response = self.send(request).await?;
        if !response.status().is_success() {
            let status = response.status();
            let text = whole(response).await?;
            let text = String::from_utf8_lossy(&text[..text.len().min(MAX_ERROR_BYTES)]).into_owned();
            return Err(format!("status {status}: {text}"));
        }
        if planned.body["stream"] != Value::Bool(true) {
            let value: Value = serde_json::from_slice(&whole(response).await?).map_err(|e| e.to_string())?;
            record.read_usage(&value);
            return Ok(());
        }
        let mut events = EventReader::default();
        while let Some(frame) = response.body_mut().frame().await {
            let now = start.elapsed();
            let frame = frame.map_err(|error| error.to_string())?;
            let Some(data) = frame.data_ref() else { continue };
            events.read(data, &mut |event| record.read_event(now, event))?;
        }
        match events.is_done {
            true => Ok(()),
            false => Err("the stream ended without [DONE]".to_owned()),
        }
    }
}

/// Reads a whole response.
async fn whole(response: Response<Incoming>) -> StdResult<Bytes, String> {
    let limited = http_body_util::Limited::new(response.into_body(), MAX_EVENT_BYTES);
    Ok(limited.collect().await.map_err(|error| error.to_string())?.to_bytes())
}

/// Splits server-sent events, which may come in any pieces.
#[derive(Default)]
struct EventReader {
    line: Vec<u8>,
    is_done: bool,
}

impl EventReader {
    fn read(&mut self, bytes: &[u8], each: &mut dyn FnMut(&Value)) -> StdResult<(), String> {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.line.extend_from_slice(part);
            if self.line.len() > MAX_EVENT_BYTES {
                return Err("an event is too long".to_owned());
            }
            if self.line.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                self.read_line(&line, each)?;
            }
        }
        Ok(())
    }

    fn read_line(&mut self, line: &[u8], each: &mut dyn FnMut(&Value)) -> StdResult<(), String> {
        let Some(data) = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii) else { return Ok(()) };
        if data == b"[DONE]" {
            self.is_done = true;
            return Ok(());
        }
        let event: Value = serde_json::from_slice(data).map_err(|error| format!("an event: {error}"))?;
        if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
            return Err(format!("an event: {error}"));
        }
        each(&event);
        Ok(())
    }
}

/// What all tasks of a run share.
struct Run {
    target: Target,
    model: String,
    start: Instant,
    requests: Arc<[PlannedRequest]>,
    /// Requests that follow each other.
    conversations: Vec<Range<usize>>,
    /// The next conversation of a closed loop.
    next: AtomicUsize,
}

impl Run {
    async fn measure(&self, index: usize, start: Instant) -> RequestRecord {
        let request = &self.requests[index];
        let mut record = self.target.measure(request, &self.model, start).await;
        record.is_measured = request.is_measured;
        record.ended = self.start.elapsed();
        record
    }

    /// Sends the requests of a conversation, each after the response to the one before it.
    async fn converse(&self, conversation: usize, start: Instant, records: &mut Vec<RequestRecord>) {
        for (turn, index) in self.conversations[conversation].clone().enumerate() {
            let start = if turn == 0 { start } else { Instant::now() };
            records.push(self.measure(index, start).await);
        }
    }

    /// Starts each conversation when it arrives.
    async fn open_loop(self: Arc<Self>, start: Instant) -> Vec<RequestRecord> {
        let mut tasks = JoinSet::new();
        for (conversation, range) in self.conversations.iter().enumerate() {
            let (run, arrival) = (Arc::clone(&self), start + self.requests[range.start].arrival);
            tasks.spawn(async move {
                let mut records = Vec::new();
                tokio::time::sleep_until(arrival).await;
                run.converse(conversation, arrival, &mut records).await;
                records
            });
        }
        tasks.join_all().await.concat()
    }

    /// Lets some clients have one conversation after the other.
    async fn closed_loop(self: Arc<Self>, clients: usize) -> Vec<RequestRecord> {
        let mut tasks = JoinSet::new();
        for _ in 0..clients.min(self.conversations.len()) {
            let run = Arc::clone(&self);
            tasks.spawn(async move {
                let mut records = Vec::new();
                loop {
                    let conversation = run.next.fetch_add(1, Ordering::Relaxed);
                    if conversation >= run.conversations.len() {
                        return records;
                    }
                    run.converse(conversation, Instant::now(), &mut records).await;
                }
            });
        }
        tasks.join_all().await.concat()
    }
}

impl LoadPlan {
    /// Sends all requests, and waits for the responses.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](siskin::ErrorKind::Io) if the server cannot be reached. Requests that fail are part of the report.
    pub fn run(&self, target: &Target) -> Result<LoadReport> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Error::io("sockets", &error))?;
        runtime.block_on(async {
            let model = target.model().await;
            let model = model.map_err(|why| Error::io("server", &std::io::Error::other(why)))?;
            let (target, requests) = (target.clone(), Arc::clone(&self.requests));
            let conversations = self.conversations().collect();
            let start = Instant::now();
            let next = AtomicUsize::new(0);
            let run = Arc::new(Run { target, model, start, requests, conversations, next });
            let records = match self.clients {
                Some(clients) => run.closed_loop(clients).await,
                None => run.open_loop(start).await,
            };
            Ok(LoadReport::new(&records))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> StdResult<(Vec<String>, bool), String> {
        let (mut events, mut reader) = (Vec::new(), EventReader::default());
        for piece in pieces {
            reader.read(piece, &mut |event| events.push(event.to_string()))?;
        }
        Ok((events, reader.is_done))
    }

    #[test]
    fn events_come_in_any_pieces() {
        let stream = b": comment\n\ndata: {\"a\":1}\r\n\r\ndata:{\"b\":2}\n\ndata: [DONE]\n\n";
        let expected = Ok((vec![r#"{"a":1}"#.to_owned(), r#"{"b":2}"#.to_owned()], true));
        for cut in 0..stream.len() {
            assert_eq!(read(&[&stream[..cut], &stream[cut..]]), expected, "{cut}");
        }
        assert!(read(&[b"data: {\n"]).is_err());
        assert!(read(&[b"data: {\"error\": {\"message\": \"no\"}}\n"]).unwrap_err().contains("no"));
        assert_eq!(read(&[b"data: [DONE]"]), Ok((vec![], false)));
    }

    #[test]
    fn targets_are_http_servers() {
        for url in ["https://localhost", "localhost:8080", "http://", "http://127.0.0.1:1/v2", "ftp://a"] {
            assert!(Target::new(url, None).is_err(), "{url}");
        }
        let target = Target::new("http://127.0.0.1:81/", None).unwrap();
        assert_eq!(target.authority, "127.0.0.1:81");
        assert_eq!(Target::new("http://[::1]:81", None).unwrap().addresses[0].port(), 81);
    }
}
