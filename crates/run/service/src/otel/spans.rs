//! Converts samples to OpenTelemetry spans: a trace for each sample, with a child span for each part.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use tapeworks_runtime::traces::{Fact, Sample};

/// The name of the instrumentation scope.
const SCOPE: &str = "tapeworks";

/// The prefix of every attribute's name.
const PREFIX: &str = "tapeworks.";

/// The flags of a span: sampled, and the parent is known to be local.
const FLAGS: u32 = 0x101;

/// Generates trace and span ids that are unique across processes.
#[derive(Clone, Debug)]
pub struct Ids([u64; 2]);

impl Ids {
    /// Creates a generator for one run, from 16 random bytes.
    pub const fn new(random: u128) -> Self {
        Self([random as u64, (random >> 64) as u64])
    }

    /// SplitMix64 (Steele, Lea, Flood 2014): each state has its own output.
    fn next(&mut self, stream: usize) -> [u8; 8] {
        let state = &mut self.0[stream & 1];
        loop {
            *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = *state;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^= mixed >> 31;
            // An id of zeros is invalid.
            if mixed != 0 {
                return mixed.to_be_bytes();
            }
        }
    }

    fn trace(&mut self) -> Vec<u8> {
        [self.next(0), self.next(1)].concat()
    }

    fn span(&mut self) -> Vec<u8> {
        self.next(0).to_vec()
    }
}

fn attribute(key: String, value: Value) -> KeyValue {
    KeyValue { key, value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key.to_owned(), Value::StringValue(value.to_owned()))
}

fn of_fact((name, fact): &(&'static str, Fact)) -> KeyValue {
    let value = match fact {
        Fact::Text(text) => Value::StringValue(text.as_str().into_owned()),
        Fact::Word(word) => Value::StringValue((*word).to_owned()),
        // OTLP's numbers are signed; ours never reach the limit.
        Fact::Number(number) => Value::IntValue(i64::try_from(*number).unwrap_or(i64::MAX)),
        Fact::Flag(flag) => Value::BoolValue(*flag),
    };
    attribute(format!("{PREFIX}{name}"), value)
}

/// Adds the spans of a sample: first the sample's own span, then those of its parts.
pub fn push(sample: &Sample, ids: &mut Ids, spans: &mut Vec<Span>) {
    let (start, end) = sample.times();
    let (trace_id, span_id) = (ids.trace(), ids.span());
    let status = sample.failed.map(|why| Status { message: why.to_owned(), code: StatusCode::Error as i32 });
    let span = |name: &str, span_id, (start_time_unix_nano, end_time_unix_nano)| Span {
        trace_id: trace_id.clone(),
        span_id,
        flags: FLAGS,
        name: name.to_owned(),
        kind: SpanKind::Internal as i32,
        start_time_unix_nano,
        end_time_unix_nano,
        ..Span::default()
    };
    spans.push(Span {
        attributes: sample.facts().iter().map(of_fact).collect(),
        status,
        ..span(sample.name, span_id.clone(), (start, end))
    });
    for part in sample.parts() {
        let times = (part.start_ns, part.end_ns);
        spans.push(Span { parent_span_id: span_id.clone(), ..span(part.name, ids.span(), times) });
    }
}

/// Returns the resource that the spans belong to.
pub fn resource(service_name: &str, instance: &str) -> Resource {
    let attributes = vec![
        text("service.name", service_name),
        text("service.version", env!("CARGO_PKG_VERSION")),
        text("service.instance.id", instance),
        attribute("process.pid".to_owned(), Value::IntValue(i64::from(std::process::id()))),
    ];
    Resource { attributes, ..Resource::default() }
}

/// Returns a request with these spans.
pub fn request(resource: &Resource, spans: Vec<Span>) -> ExportTraceServiceRequest {
    let scope = InstrumentationScope {
        name: SCOPE.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let spans = ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() };
    let spans = ResourceSpans {
        resource: Some(resource.clone()),
        scope_spans: vec![spans],
        ..ResourceSpans::default()
    };
    ExportTraceServiceRequest { resource_spans: vec![spans] }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;
    use prost::Message as _;
    use tapeworks_runtime::traces::{MOST_FACTS, MOST_PARTS, Text};

    use super::*;

    /// Generates samples as threads record them, with the times of clocks that may be set.
    fn sample() -> impl Strategy<Value = Sample> {
        let parts = prop::collection::vec((any::<u64>(), any::<u64>()), 0..MOST_PARTS + 3);
        let texts = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..MOST_FACTS + 3);
        (any::<u64>(), any::<u64>(), parts, texts, any::<bool>()).prop_map(
            |(start, end, parts, texts, failed)| {
                let mut sample = Sample::new("order", start);
                sample.lasts_until(end);
                for (start, end) in parts {
                    sample.part("store", start, end);
                }
                sample.number("bytes", end);
                for bytes in &texts {
                    sample.text("symbol", Text::new(bytes));
                }
                sample.failed = failed.then_some("no answer");
                sample
            },
        )
    }

    proptest! {
        #[test]
        fn spans_are_well_formed_whatever_a_thread_recorded(
            samples in prop::collection::vec(sample(), 1..20),
            random in any::<u128>(),
        ) {
            let (mut ids, mut spans) = (Ids::new(random), Vec::new());
            for sample in &samples {
                push(sample, &mut ids, &mut spans);
            }
            let bytes = request(&resource("plant", "one"), spans).encode_to_vec();
            let read = ExportTraceServiceRequest::decode(&bytes[..]).unwrap();
            let spans = &read.resource_spans[0].scope_spans[0].spans;
            let count: usize = samples.iter().map(|sample| 1 + sample.parts().len()).sum();
            prop_assert_eq!(spans.len(), count);
            let all: HashSet<&[u8]> = spans.iter().map(|span| &span.span_id[..]).collect();
            prop_assert_eq!(all.len(), count, "each span has an id of its own");
            let roots: Vec<&Span> = spans.iter().filter(|span| span.parent_span_id.is_empty()).collect();
            let traces: HashSet<&[u8]> = roots.iter().map(|span| &span.trace_id[..]).collect();
            prop_assert_eq!((roots.len(), traces.len()), (samples.len(), samples.len()));
            for span in spans {
                prop_assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8));
                prop_assert!(span.trace_id.iter().any(|byte| *byte != 0));
                prop_assert!(span.span_id.iter().any(|byte| *byte != 0));
                prop_assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
                if !span.parent_span_id.is_empty() {
                    let parent = roots.iter().find(|root| root.span_id == span.parent_span_id).unwrap();
                    prop_assert_eq!(&parent.trace_id, &span.trace_id);
                    prop_assert!(parent.start_time_unix_nano <= span.start_time_unix_nano);
                    prop_assert!(span.end_time_unix_nano <= parent.end_time_unix_nano);
                }
            }
        }
    }

    #[test]
    fn a_sample_is_encoded_with_what_is_known_of_it() {
        let mut sample = Sample::new("order", 1_000);
        sample.part("read", 1_000, 1_200);
        sample.text("symbol", Text::new(b"AAPL"));
        sample.fact("side", Fact::Word("buy"));
        sample.number("messages", 3);
        sample.fact("sent", Fact::Flag(true));
        sample.failed = Some("rejected");
        let mut spans = Vec::new();
        push(&sample, &mut Ids::new(7), &mut spans);
        let [order, read] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!((order.name.as_str(), read.name.as_str()), ("order", "read"));
        assert_eq!((order.start_time_unix_nano, order.end_time_unix_nano), (1_000, 1_200));
        let known: Vec<(&str, Value)> = order
            .attributes
            .iter()
            .map(|one| (one.key.as_str(), one.value.clone().unwrap().value.unwrap()))
            .collect();
        let expected = [
            ("tapeworks.symbol", Value::StringValue("AAPL".to_owned())),
            ("tapeworks.side", Value::StringValue("buy".to_owned())),
            ("tapeworks.messages", Value::IntValue(3)),
            ("tapeworks.sent", Value::BoolValue(true)),
        ];
        assert_eq!(known, expected);
        let status = order.status.clone().unwrap();
        assert_eq!((status.message.as_str(), status.code), ("rejected", StatusCode::Error as i32));
        assert_eq!(read.status, None);
        let resource = resource("plant-1", "an-id");
        assert_eq!(resource.attributes[0], text("service.name", "plant-1"));
    }
}
