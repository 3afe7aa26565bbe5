//! FIX: a stream is cut into messages, messages are read, and sessions take them, whatever the bytes.

use std::sync::Arc;

use tapeworks_fix_wire::order_entry::{Header, Message, SCHEMA};
use tapeworks_fix_wire::{Fields, Framing, SOH, Writer, checksum, next_message};
use tapeworks_order_session::fix::{
    Application, Dictionary, Link, MemoryStore, Received, Role, Session, Settings, Store, Verdict,
};

use crate::take::Take;

/// The longest message, in bytes.
const LIMIT_BYTES: usize = 2_000;
const START_NS: u64 = 1_795_426_200_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// A message with this body, from 35 on, with right length and checksum. In bodies of text `|` is SOH.
pub(crate) fn framed(body: &[u8]) -> Vec<u8> {
    let body: Vec<u8> = body.iter().map(|byte| if *byte == b'|' { SOH } else { *byte }).collect();
    let mut bytes = format!("8=FIX.4.4\x019={}\x01", body.len()).into_bytes();
    bytes.extend_from_slice(&body);
    let sum = checksum(&bytes);
    bytes.extend_from_slice(format!("10={sum:03}\x01").as_bytes());
    bytes
}

/// Reads one message in every way.
fn check(bytes: &[u8]) {
    let walked: usize = Fields::new(bytes).map_while(Result::ok).map(|field| field.value.len()).sum();
    assert!(walked <= bytes.len());
    let mut text = String::new();
    SCHEMA.write_message(&mut text, bytes).unwrap();
    let header = Header::read(bytes);
    if let Ok(message) = Message::read(bytes) {
        // A tag that is not declared may stand among those of the header, and ends it for those who read only that.
        if let Ok(header) = header {
            assert_eq!(header.message_type(), message.message_type());
        }
        assert_eq!(next_message(bytes, bytes.len()), Framing::Message { length: bytes.len() });
        assert!(!format!("{message:?}").is_empty());
        if let Message::NewOrderSingle(order) = message {
            assert_eq!(order.field(11), Some(order.cl_ord_id()));
            assert_eq!(order.field(44).is_some(), order.price().is_some());
            assert_eq!(
                order.parties().map(|party| party.party_id().len()).filter(|length| *length == 0).count(),
                0
            );
        }
    }
}

/// One message: the bytes as they are, and as the body of a sound one.
pub fn fix_message(bytes: &[u8]) {
    check(bytes);
    check(&framed(bytes));
    check(&framed(&[b"35=D|49=A|56=B|34=2|52=20240301-09:30:00|", bytes].concat()));
}

/// A stream: each step goes on, and what is kept is bounded.
pub fn fix_stream(bytes: &[u8]) {
    let mut at = 0;
    loop {
        let rest = &bytes[at..];
        match next_message(rest, LIMIT_BYTES) {
            Framing::Incomplete | Framing::WrongLength => {
                assert!(rest.len() < LIMIT_BYTES);
                break;
            }
            Framing::Message { length } => {
                assert!(length <= LIMIT_BYTES && length <= rest.len());
                check(&rest[..length]);
                at += length;
            }
            Framing::Garbled { length, .. } => {
                assert!(length > 0 && length <= rest.len());
                at += length;
            }
        }
    }
}

/// Sends each message back.
struct Echo;

impl Application for Echo {
    fn message(
        &mut self,
        received: &Received<'_>,
        link: &mut Link,
        store: &mut dyn Store,
        now_ns: u64,
    ) -> Verdict {
        let sent = link.send(store, now_ns, received.message_type, &[], |writer| {
            for (tag, value) in
                received.message.fields().filter(|(tag, _)| ![8, 9, 10, 34, 35, 49, 52, 56].contains(tag))
            {
                writer.copied(tag, value);
            }
        });
        if sent.is_ok() { Verdict::Taken } else { Verdict::Refused(4, "not now") }
    }
}

/// A session and a peer that sends messages of every kind, with any numbers, pieces of any size, and any bytes.
pub fn fix_session(bytes: &[u8]) {
    let mut take = Take(bytes);
    let mut settings = Settings::new(Role::Acceptor, "FIX.4.4", "ISLD", "TW");
    settings.message_limit_bytes = LIMIT_BYTES;
    settings.queue_limit_bytes = LIMIT_BYTES;
    settings.resend_bound = u64::from(take.u8() % 4);
    let mut store = MemoryStore::new(20_000, START_NS);
    let mut session = Session::new(settings, Arc::new(Dictionary::from_schema(&SCHEMA)), START_NS);
    let mut now_ns = START_NS;
    let mut next = 1;
    while !take.is_empty() && session.over().is_none() {
        let choice = take.u8();
        let sequence = if choice & 0x80 == 0 { next } else { u64::from(take.u8()) };
        let mut buffer = [0; 1_000];
        let mut message = |kind: &[u8], body: &dyn Fn(&mut Writer<'_>)| {
            let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", kind);
            writer.number(34, sequence).text(49, b"TW").timestamp(52, now_ns).text(56, b"ISLD");
            body(&mut writer);
            next = sequence.saturating_add(1);
            writer.finish().map(|message| message.to_vec()).unwrap_or_default()
        };
        let (one, two) = (u64::from(take.u8()), u64::from(take.u8()));
        let given = match choice & 0x0f {
            0 => {
                let count = usize::from(take.u8());
                take.bytes(count).to_vec()
            }
            1 => message(b"A", &|writer| _ = writer.number(98, 0).number(108, one)),
            2 => message(b"A", &|writer| _ = writer.number(98, 0).number(108, one).flag(141, true)),
            3 => message(b"2", &|writer| _ = writer.number(7, one).number(16, two)),
            4 => message(b"4", &|writer| _ = writer.flag(43, true).number(36, one).flag(123, true)),
            5 => message(b"4", &|writer| _ = writer.number(36, one)),
            6 => message(b"1", &|writer| _ = writer.number(112, one)),
            7 => message(b"5", &|_| {}),
            8 => {
                now_ns += SECOND_NS * one;
                Vec::new()
            }
            _ => {
                let count = usize::from(take.u8() % 64);
                let rest = take.bytes(count);
                message(b"D", &|writer| {
                    writer.text(11, b"id").text(54, b"1").timestamp(60, now_ns).text(40, b"1");
                    writer.copied(58, rest);
                })
            }
        };
        let size = 1 + usize::from(choice >> 4 & 7) * 40;
        for piece in given.chunks(size) {
            session.receive(piece, &mut store, &mut Echo, now_ns);
        }
        session.tick(&mut store, &mut Echo, now_ns);
        let (input, queue) = session.held_bytes();
        assert!(input <= LIMIT_BYTES && queue <= LIMIT_BYTES, "{input} and {queue} bytes are held");
        let output = session.output().to_vec();
        let mut rest = output.as_slice();
        while !rest.is_empty() {
            let Framing::Message { length } = next_message(rest, LIMIT_BYTES + 100) else {
                panic!("the session sent no message: {}", rest.escape_ascii());
            };
            rest = &rest[length..];
        }
        session.sent(output.len());
    }
    session.closed(&mut store, now_ns);
    assert!(session.over().is_some());
}

/// Where the targets' runs start.
pub(crate) fn seeds(target: &str) -> Vec<Vec<u8>> {
    let bodies: [&[u8]; 6] = [
        b"11=X|54=1|60=20240301-09:30:00.123|40=2|44=101.25|38=500|",
        b"11=X|54=1|60=20240301-09:30:00|40=1|453=2|448=P|447=D|452=3|448=Q|802=1|523=s|803=4|58=text|",
        b"11=X|54=5|60=20240301-09:30:00|40=1|354=3|355=a|b|5000=z|",
        b"35=A|49=A|56=B|34=1|52=20240301-09:30:00|98=0|108=30|95=3|96=a|b|1137=9|",
        b"35=i|49=A|56=B|34=9|52=20240301-09:30:00|117=q|296=1|302=s|295=2|299=1|132=1.5|299=2|133=2|",
        b"35=8|49=A|56=B|34=9|52=20240301-09:30:00|37=o|17=e|150=F|39=1|54=1|151=1|14=2|6=3.5|31=1|32=2|",
    ];
    match target {
        "fix_stream" => {
            let whole = bodies.iter().skip(3).map(|body| framed(body));
            whole
                .clone()
                .chain([whole.collect::<Vec<_>>().concat(), b"8=FIX.4.4\x019=5\x0135=0".to_vec()])
                .collect()
        }
        "fix_session" => vec![
            vec![0, 0x71, 30, 0, 0x76, 1, 2, 0x79, 0, 0, 5, b'h', b'e', b'l', b'l', b'o', 0x73, 1, 0],
            vec![2, 0x71, 30, 0, 0xf6, 9, 1, 2, 0xf4, 2, 5, 0, 0xf4, 5, 9, 0, 0x78, 90, 0, 0x77, 0, 0],
            vec![1, 0x72, 10, 0, 0x70, 0, 0, 4, b'8', b'=', b'F', b'I', 0x78, 12, 0, 0x78, 13, 0],
        ],
        _ => bodies
            .iter()
            .map(|body| body.iter().map(|byte| if *byte == b'|' { SOH } else { *byte }).collect())
            .collect(),
    }
}
