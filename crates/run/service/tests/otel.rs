//! The export of traces, to servers on loopback that answer as a collector does, or as none does.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(feature = "otel")]

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;
use tapeworks_runtime::secrets::{Secret, check_secret};
use tapeworks_runtime::traces::setting::{Sampled, TraceSetting};
use tapeworks_runtime::traces::{Recorder, Sample, Sampling, TraceStatus, Traces};
use tapeworks_service::otel::exporter::{self, Exporter};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request as it came.
struct Request {
    head: String,
    body: Vec<u8>,
}

/// A server that answers its requests with these answers, and then that all is well.
#[derive(Clone)]
struct Server {
    port: u16,
    requests: Arc<Mutex<Vec<Request>>>,
    answers: Arc<Mutex<VecDeque<&'static str>>>,
}

const WELL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

impl Server {
    fn start(answers: &[&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let answers = Arc::new(Mutex::new(answers.iter().copied().collect()));
        let server = Self { port, requests: Arc::default(), answers };
        let of_thread = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let server = of_thread.clone();
                std::thread::spawn(move || server.serve(stream.unwrap()));
            }
        });
        server
    }

    fn serve(&self, stream: TcpStream) -> Option<()> {
        let (mut input, mut stream) = (BufReader::new(stream.try_clone().unwrap()), stream);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                (input.read_line(&mut head).ok()? > 0).then_some(())?;
            }
            let lower = head.to_ascii_lowercase();
            let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "))?;
            let mut body = vec![0; length.trim().parse().ok()?];
            input.read_exact(&mut body).ok()?;
            self.requests.lock().unwrap().push(Request { head: lower, body });
            let answer = self.answers.lock().unwrap().pop_front().unwrap_or(WELL);
            if answer.is_empty() {
                // It does not answer.
                std::thread::sleep(PATIENCE);
            }
            stream.write_all(answer.as_bytes()).ok()?;
        }
    }

    fn setting(&self) -> TraceSetting {
        let url = format!("http://127.0.0.1:{}/v1/traces", self.port);
        TraceSetting {
            export_every: Duration::from_millis(10),
            longest_pause: Duration::from_millis(50),
            ..TraceSetting::new(url, Sampled::Orders)
        }
    }

    fn spans(&self, request: usize) -> usize {
        let requests = self.requests.lock().unwrap();
        let read = ExportTraceServiceRequest::decode(&requests[request].body[..]).unwrap();
        read.resource_spans[0].scope_spans[0].spans.len()
    }
}

fn start(setting: TraceSetting) -> (Exporter, Recorder) {
    let (traces, samples) = Traces::new(Sampling { every: 1, slower_than: None }, 64, true);
    let recorder = traces.take_recorder().unwrap();
    (exporter::start(setting, samples).unwrap(), recorder)
}

fn sample() -> Sample {
    let mut sample = Sample::new("order", 1_000);
    sample.part("read", 1_000, 2_000);
    sample
}

fn until(exporter: &Exporter, is_so: impl Fn(&TraceStatus) -> bool) -> TraceStatus {
    let (began, handle) = (Instant::now(), exporter.handle());
    loop {
        let status = handle.status();
        if is_so(&status) {
            return status;
        }
        assert!(began.elapsed() < PATIENCE, "{status:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_collector_that_is_busy_gets_the_same_spans_again() {
    let busy = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 4\r\n\r\nbusy";
    let server = Server::start(&[busy, busy]);
    let (exporter, mut recorder) = start(server.setting());
    recorder.record(&sample());
    let status = until(&exporter, |status| status.traces == 1);
    assert!(status.is_connected && status.error.is_none());
    assert_eq!((status.spans, status.failures, status.requests), (2, 2, 1));
    let requests = server.requests.lock().unwrap();
    assert_eq!(requests.len(), 3);
    assert!(requests.iter().all(|request| request.body == requests[0].body));
    assert!(requests[0].head.starts_with("post /v1/traces http/1.1\r\n"), "{}", requests[0].head);
    assert!(requests[0].head.contains("content-type: application/x-protobuf\r\n"));
    assert!(!requests[0].head.contains("authorization"));
}

#[test]
fn a_collector_that_refuses_spans_does_not_get_them_again() {
    let partial = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n\u{a}\u{7}\u{8}\u{1}\u{12}\u{3}old";
    let server = Server::start(&["HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", partial]);
    let (exporter, mut recorder) = start(server.setting());
    recorder.record(&sample());
    let status = until(&exporter, |status| status.refused_spans > 0);
    assert_eq!((status.refused_spans, status.failures, status.traces), (2, 1, 0));
    assert_eq!(status.error.as_deref(), Some("the collector answers with 400"));
    recorder.record(&sample());
    let status = until(&exporter, |status| status.requests > 0);
    assert_eq!((status.refused_spans, status.spans, status.traces), (3, 1, 1));
    assert_eq!(status.error.as_deref(), Some("old"));
    assert_eq!(server.spans(1), 2);
    assert_eq!(server.requests.lock().unwrap().len(), 2);
}

#[test]
fn a_token_goes_in_its_header_and_is_the_files_of_now() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "first-token\n").unwrap();
    let server = Server::start(&[]);
    let token = Secret::of_file(&path, check_secret).unwrap();
    let (exporter, mut recorder) = start(TraceSetting { token: Some(token.clone()), ..server.setting() });
    recorder.record(&sample());
    until(&exporter, |status| status.traces == 1);
    std::fs::write(&path, "second-token\n").unwrap();
    let began = Instant::now();
    while &*token.get() != "second-token" {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    recorder.record(&sample());
    until(&exporter, |status| status.traces == 2);
    let (named, mut of_named) = start(TraceSetting {
        token: Some("third".into()),
        token_header: Some("api-key".to_owned()),
        ..server.setting()
    });
    of_named.record(&sample());
    until(&named, |status| status.traces == 1);
    let requests = server.requests.lock().unwrap();
    for (request, wanted) in requests.iter().zip([
        "\r\nauthorization: bearer first-token\r\n",
        "\r\nauthorization: bearer second-token\r\n",
        "\r\napi-key: third\r\n",
    ]) {
        assert!(request.head.contains(wanted), "{wanted}: {}", request.head);
    }
    assert!(!requests[2].head.contains("authorization"));
}

#[test]
fn an_end_exports_what_waits_and_a_silent_collector_does_not_hold_it_up() {
    let server = Server::start(&[]);
    // It would export in ten minutes.
    let idle = TraceSetting { export_every: Duration::from_secs(600), ..server.setting() };
    let (exporter, mut recorder) = start(idle);
    for _ in 0..5 {
        recorder.record(&sample());
    }
    let handle = exporter.handle();
    exporter.join();
    assert_eq!((handle.status().traces, handle.status().lost, server.spans(0)), (5, 0, 10));

    let silent = Server::start(&[""]);
    let setting = TraceSetting {
        linger: Duration::from_millis(100),
        timeout: Duration::from_secs(600),
        ..silent.setting()
    };
    let (exporter, mut recorder) = start(setting);
    recorder.record(&sample());
    let began = Instant::now();
    while silent.requests.lock().unwrap().is_empty() {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
    for _ in 0..100 {
        recorder.record(&sample());
    }
    let handle = exporter.handle();
    let status = handle.status();
    assert_eq!((status.waiting, status.dropped), (64, 36), "they are counted while the request is held");
    // The request that is held would end in ten minutes: that this test ends is what it shows.
    exporter.join();
    assert_eq!(handle.status().lost, 65);
}

#[test]
fn a_server_that_answers_without_end_does_not_get_the_spans_again() {
    let endless = "HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n";
    let without = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 10000000000\r\n\r\n";
    let long = String::leak(format!("{endless}{}", "x".repeat(100 << 10)));
    let server = Server::start(&[long, without]);
    let (exporter, mut recorder) = start(server.setting());
    for (count, error) in
        [(2, "the answer is not that of a collector of OpenTelemetry"), (4, "the collector answers with 500")]
    {
        recorder.record(&sample());
        let status = until(&exporter, |status| status.refused_spans == count);
        assert_eq!(status.error.as_deref(), Some(error));
    }
    recorder.record(&sample());
    until(&exporter, |status| status.traces == 1);
    assert_eq!(server.requests.lock().unwrap().len(), 3);
}

#[test]
fn a_queue_that_a_dead_collector_fills_counts_what_it_drops_and_what_it_loses() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}/v1/traces");
    let setting = TraceSetting {
        export_every: Duration::from_millis(10),
        longest_pause: Duration::from_millis(50),
        linger: Duration::from_millis(50),
        ..TraceSetting::new(url, Sampled::Packets)
    };
    let (exporter, mut recorder) = start(setting);
    recorder.record(&sample());
    until(&exporter, |status| status.failures > 1 && !status.is_connected);
    for _ in 0..100 {
        recorder.record(&sample());
    }
    let status = until(&exporter, |status| status.dropped > 0);
    assert_eq!((status.waiting, status.dropped, status.traces), (64, 36, 0));
    let handle = exporter.handle();
    exporter.join();
    assert_eq!(handle.status().lost, 65);
}

#[test]
fn authorities_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("authorities.pem");
    std::fs::write(&path, "none").unwrap();
    let setting = TraceSetting {
        authorities: Some(path),
        ..TraceSetting::new("https://127.0.0.1:1/v1/traces".to_owned(), Sampled::Packets)
    };
    let error = exporter::check(&setting).unwrap_err();
    assert!(error.to_string().ends_with("authorities.pem: holds no certificate"), "{error}");
}
