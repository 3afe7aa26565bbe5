//! The client of an OpenTelemetry collector: sends OTLP requests over HTTP, and interprets the answers.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use tapeworks_outputs::https;
use tapeworks_outputs::text::one_line;
use tapeworks_runtime::traces::setting::TraceSetting;
use ureq::Agent;

use super::error::ExportError;

/// Maximum number of bytes read from an answer.
const LONGEST_ANSWER: u64 = 64 << 10;

/// The error for an answer that is not a collector's.
const NO_COLLECTOR: &str = "the answer is not that of a collector of OpenTelemetry";

/// Maximum number of characters shown of a collector's message.
const MOST_CHARACTERS: usize = 200;

/// The result of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// The collector accepted the spans, except `refused` of them for the reason `why`.
    Taken { refused: u64, why: Option<String> },
    /// The collector may accept the spans later: after this time, if it names one.
    Later { why: String, after: Option<Duration> },
    /// The collector refuses the request.
    Refused(String),
}

/// A client that connects to the collector on demand.
pub(super) struct Client {
    agent: Agent,
    setting: TraceSetting,
}

impl Client {
    /// Creates a client. It does not connect yet.
    pub(super) fn new(setting: TraceSetting) -> Result<Self, ExportError> {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            // Only the configuration decides where the collector is, not environment variables.
            .proxy(None)
            .user_agent(concat!("tapeworks/", env!("CARGO_PKG_VERSION")));
        if let Some(authorities) = &setting.authorities {
            config = config.tls_config(https::trusting(authorities).map_err(ExportError::Authorities)?);
        }
        Ok(Self { agent: config.build().into(), setting })
    }

    /// Posts a request, and waits for the answer for at most `longest`.
    pub(super) fn post(&self, body: &[u8], longest: Duration) -> Answer {
        let request = self.agent.post(&self.setting.url).config().timeout_global(Some(longest)).build();
        let mut request = request.header("Content-Type", "application/x-protobuf");
        if let Some(token) = self.setting.token.as_ref().map(|token| token.get()) {
            request = match &self.setting.token_header {
                Some(header) => request.header(header.as_str(), &*token),
                None => request.header("Authorization", format!("Bearer {token}")),
            };
        }
        let later = |error: ureq::Error| Answer::Later {
            why: one_line(&error.to_string(), MOST_CHARACTERS),
            after: None,
        };
        let mut answer = match request.send(body) {
            Ok(answer) => answer,
            Err(error) => return later(error),
        };
        let (status, retry) = (answer.status(), answer.headers().get("Retry-After").cloned());
        let seconds = retry.and_then(|retry| retry.to_str().ok()?.trim().parse().ok());
        let after = seconds.map(Duration::from_secs);
        if !status.is_success() {
            // The body of an error is not needed.
            return read(status.as_u16(), after, &[]);
        }
        match answer.body_mut().with_config().limit(LONGEST_ANSWER).read_to_vec() {
            Ok(body) => read(status.as_u16(), after, &body),
            Err(ureq::Error::BodyExceedsLimit(_)) => Answer::Refused(NO_COLLECTOR.to_owned()),
            // The collector may have the spans even if its answer was cut off.
            Err(error) => later(error),
        }
    }
}

/// Interprets an answer.
fn read(status: u16, after: Option<Duration>, body: &[u8]) -> Answer {
    match status {
        200..=299 => match ExportTraceServiceResponse::decode(body) {
            Ok(response) => {
                let partial = response.partial_success.unwrap_or_default();
                let why =
                    Some(one_line(&partial.error_message, MOST_CHARACTERS)).filter(|why| !why.is_empty());
                Answer::Taken { refused: u64::try_from(partial.rejected_spans).unwrap_or(0), why }
            }
            Err(_) => Answer::Refused(NO_COLLECTOR.to_owned()),
        },
        // OTLP/HTTP, "Retryable Response Codes".
        429 | 502 | 503 | 504 => Answer::Later { why: format!("the collector answers with {status}"), after },
        _ => Answer::Refused(format!("the collector answers with {status}")),
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;

    use super::*;

    #[test]
    fn an_answer_says_whether_the_spans_are_there_and_whether_to_try_again() {
        let taken = |refused, why: Option<&str>| Answer::Taken { refused, why: why.map(str::to_owned) };
        assert_eq!(read(200, None, b""), taken(0, None));
        let partial = ExportTracePartialSuccess { rejected_spans: 3, error_message: "too\nold".to_owned() };
        let response = ExportTraceServiceResponse { partial_success: Some(partial) };
        assert_eq!(read(200, None, &response.encode_to_vec()), taken(3, Some("too old")));
        let after = Some(Duration::from_secs(2));
        for status in [429, 502, 503, 504] {
            let Answer::Later { after: found, .. } = read(status, after, b"busy") else { panic!("{status}") };
            assert_eq!(found, after, "{status}");
        }
        for status in [301, 400, 401, 404, 500] {
            assert!(matches!(read(status, after, b""), Answer::Refused(_)), "{status}");
        }
        assert!(matches!(read(200, None, b"<html>welcome</html>"), Answer::Refused(_)));
    }
}
