//! Decoders: a decoded message encodes to the same bytes, and the schema agrees with the typed view.

use tapeworks_session::{CboeUnit, CtaBlock, Memoir, MitchUnit, Pillar, Request, Transport as _};
use tapeworks_wire::framing::{BigEndian, Blocks, LittleEndian};
use tapeworks_wire::schema::{Decoded, Structure};
use tapeworks_wire::{cboe, cta, iex, memx, millennium, nasdaq, nyse, protocols, utp};

/// The fields that the schema returns are JSON, whatever they hold, and lie inside the message.
fn check_fields(decoded: &Decoded<'_>) {
    decoded.for_each_field(|field| {
        let end = field.offset + field.bytes.len();
        assert!(end <= decoded.bytes.len(), "{} ends at {end} of {}", field.field.name, decoded.bytes.len());
        assert_eq!(field.bytes, &decoded.bytes[field.offset..end]);
        assert!(field.value.to_string().len() < 1 << 20);
    });
    let mut text = String::new();
    decoded.write_json(&mut text);
    let value: serde_json::Value = serde_json::from_str(&text).expect("fields as JSON");
    assert!(value.is_object(), "{text}");
}

macro_rules! decoder {
    ($(#[$doc:meta])* $visible:vis $name:ident, $protocol:path) => {
        $(#[$doc])*
        $visible fn $name(bytes: &[u8]) {
            use $protocol::{Message, SCHEMA};
            let shown = SCHEMA.decode(bytes);
            check_fields(&shown);
            match Message::decode(bytes) {
                Ok(message) => {
                    assert_eq!(shown.error, None);
                    assert_eq!(shown.name(), Some(message.name()));
                    let own = message.as_bytes();
                    assert!(bytes.starts_with(own));
                    let mut again = vec![0; own.len()];
                    assert_eq!(message.encode_into(&mut again), Ok(own.len()), "{message:?}");
                    assert_eq!(again, own, "{message:?}");
                    if let Some(short) = own.len().checked_sub(1) {
                        assert!(message.encode_into(&mut again[..short]).is_err());
                    }
                }
                Err(error) => assert_eq!(shown.error, Some(error)),
            }
        }
    };
}

decoder!(
    /// One message of TotalView-ITCH 5.0.
    pub itch50,
    nasdaq::itch50
);
decoder!(
    /// One message of IEX TOPS 1.6.
    pub tops16,
    iex::tops16
);
decoder!(
    /// One message of IEX DEEP 1.0.
    pub deep10,
    iex::deep10
);

decoder!(
    /// One message of IEX DEEP+ 1.0.
    pub deep_plus10,
    iex::deep_plus10
);

decoder!(
    /// One message of Cboe PITCH 2.41.
    pub pitch,
    cboe::pitch
);

decoder!(
    /// One message of Cboe Futures PITCH 1.1.
    pub cfe,
    cboe::futures
);

decoder!(
    /// One message of NYSE Integrated 2.5.
    pub integrated,
    nyse::integrated
);

decoder!(
    /// One message of LSE MITCH Level 2 11.9.
    pub mitch,
    millennium::mitch
);

mod quotes {
    use super::check_fields;
    decoder!(
        /// One message of UTP UQDF 1.5.
        pub(super) uqdf,
        super::utp::uqdf15
    );
    decoder!(
        /// One message of CTA CQS 1.91.
        pub(super) cqs,
        super::cta::cqs191
    );
}

/// One message of UTP UQDF 1.5. What a quote says of the national best lies inside it.
pub fn uqdf(bytes: &[u8]) {
    use utp::uqdf15::Message;
    quotes::uqdf(bytes);
    match Message::decode(bytes) {
        Ok(Message::QuoteShortForm(quote)) => drop(quote.national()),
        Ok(Message::QuoteLongForm(quote)) => drop(quote.national()),
        _ => {}
    }
}

/// One message of CTA CQS 1.91. What a quote says of the national best lies inside it.
pub fn cqs(bytes: &[u8]) {
    use cta::cqs191::Message;
    quotes::cqs(bytes);
    match Message::decode(bytes) {
        Ok(Message::ShortQuote(quote)) => drop(quote.national()),
        Ok(Message::LongQuote(quote)) => drop(quote.national()),
        Ok(Message::SpecialLongQuote(quote)) => drop(quote.national()),
        _ => {}
    }
}

decoder!(
    /// One message of MEMX MEMOIR Depth 1.3.
    pub memoir13,
    memx::depth13
);

mod orders {
    use super::check_fields;
    decoder!(
        /// One message of Millennium's native gateway.
        pub(super) native,
        super::millennium::native
    );
    decoder!(
        /// One message of OUCH 5.0 from a client.
        pub(super) ouch_inbound,
        super::nasdaq::ouch50::inbound
    );
    decoder!(
        /// One message of OUCH 5.0 to a client.
        pub(super) ouch_outbound,
        super::nasdaq::ouch50::outbound
    );
}

/// A stream of Millennium's native gateway: its messages and the rest are the stream, and each message decodes as it does
/// alone.
pub fn native(bytes: &[u8]) {
    orders::native(bytes);
    let mut messages = millennium::stream::Messages::new(bytes);
    let mut whole = 0;
    for message in messages.by_ref().flatten() {
        orders::native(message);
        whole += message.len();
    }
    assert_eq!(whole + messages.rest().len(), bytes.len());
    assert!(bytes.ends_with(messages.rest()));
}

/// One message of OUCH 5.0 of either direction, and an appendage: the fields that are read are written back.
pub fn ouch50(bytes: &[u8]) {
    orders::ouch_inbound(bytes);
    orders::ouch_outbound(bytes);
    let mut again = vec![0; bytes.len()];
    let mut written = 0;
    for field in nasdaq::ouch50::appendage::OptionalFields::new(bytes).map_while(Result::ok) {
        written += field.write(&mut again[written..]).expect("as long as it was");
    }
    assert_eq!(again[..written], bytes[..written]);
}

mod sessions {
    use super::check_fields;
    decoder!(
        /// One message of Cboe's gap request proxy or of a spin server.
        pub(super) grp,
        super::cboe::grp
    );
    decoder!(
        /// One message of MITCH's replay or recovery channel.
        pub(super) mitch,
        super::millennium::recovery
    );
    decoder!(
        /// One message of MEMX-TCP.
        pub(super) memx,
        super::memx::tcp
    );
}

/// One message of the requests for missed messages and snapshots of Cboe, Millennium and MEMX, and a stream of MEMX's, whose messages
/// carry those of the feed.
pub fn recovery(bytes: &[u8]) {
    use memx::tcp::{HEADER_BYTES, Message};
    sessions::grp(bytes);
    sessions::mitch(bytes);
    sessions::memx(bytes);
    let mut rest = bytes;
    while let Some([_, high, low]) = rest.first_chunk::<HEADER_BYTES>() {
        let length = HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low]));
        let Some((message, after)) = rest.split_at_checked(length) else { break };
        sessions::memx(message);
        if let Ok(Message::SequencedMessage(carrier)) = Message::decode(message) {
            assert!(message.ends_with(carrier.message()));
            memoir13(carrier.message());
        }
        rest = after;
    }
}

mod soup {
    use super::check_fields;
    decoder!(
        /// One packet of SoupBinTCP.
        pub(super) packet,
        super::nasdaq::soupbintcp
    );
}

mod glimpse {
    use super::check_fields;
    decoder!(
        /// One message of GLIMPSE 5.0.
        pub(super) message,
        super::nasdaq::glimpse50
    );
}

/// A stream of SoupBinTCP: its packets and the rest are the stream, and each packet decodes as a message does.
pub fn soupbintcp(bytes: &[u8]) {
    soup::packet(bytes);
    glimpse::message(bytes);
    let mut packets = nasdaq::soupbintcp::Packets::new(bytes);
    let mut whole = 0;
    for packet in packets.by_ref().flatten() {
        soup::packet(packet);
        whole += packet.len();
    }
    assert!(whole + packets.rest().len() <= bytes.len());
    assert!(bytes.ends_with(packets.rest()));
}

/// Blocks lie one behind the other, and are at most as many as said.
fn check_blocks<'a, E: std::fmt::Debug>(
    bytes: &[u8],
    count: u16,
    blocks: impl Iterator<Item = Result<&'a [u8], E>>,
) {
    let (mut seen, mut length, mut errors) = (0, 0, 0);
    for block in blocks {
        match block {
            Ok(block) => {
                assert_eq!(errors, 0, "nothing comes after an error");
                (seen, length) = (seen + 1, length + 2 + block.len());
            }
            Err(_) => errors += 1,
        }
    }
    assert!(errors <= 1 && seen <= usize::from(count) && length <= bytes.len());
    assert!(errors == 1 || seen == usize::from(count), "{seen} of {count} blocks and no error");
}

fn check_header(structure: &'static Structure, bytes: &[u8]) {
    check_fields(&structure.decode(bytes));
}

/// A downstream packet and a request of MoldUDP64.
pub fn moldudp64(bytes: &[u8]) {
    for header in nasdaq::moldudp64::SCHEMA.headers {
        check_header(header, bytes);
    }
    if let Ok(packet) = nasdaq::moldudp64::DownstreamPacket::decode(bytes) {
        check_blocks(bytes, packet.count(), packet.blocks());
        assert!(!(packet.is_heartbeat() && packet.is_end_of_session()));
        let fields = packet.to_fields();
        let mut again = vec![0; bytes.len()];
        if let Ok(length) = fields.encode_into(&mut again) {
            assert_eq!(&again[..length], &bytes[..length]);
        }
    }
    if let Ok(request) = nasdaq::moldudp64::RequestPacket::decode(bytes) {
        assert!(bytes.starts_with(&request.to_fields().encode()));
    }
    for block in Blocks::new(bytes, BigEndian).flatten() {
        assert!(block.len() + 2 <= bytes.len());
    }
}

/// A segment of IEX-TP.
pub fn iextp(bytes: &[u8]) {
    for header in iex::tp::SCHEMA.headers {
        check_header(header, bytes);
    }
    if let Ok(segment) = iex::tp::Segment::decode(bytes) {
        check_blocks(bytes, segment.message_count(), segment.blocks());
        let mut again = vec![0; bytes.len()];
        if let Ok(length) = segment.to_fields().encode_into(&mut again) {
            assert_eq!(&again[..length], &bytes[..length]);
        }
    }
    for block in Blocks::new(bytes, LittleEndian).flatten() {
        assert!(block.len() + 2 <= bytes.len());
    }
}

/// A packet of MEMOIR UDP.
pub fn memoirudp(bytes: &[u8]) {
    for header in memx::udp::SCHEMA.headers {
        check_header(header, bytes);
    }
    if let Ok(packet) = memx::udp::SequencedPacket::decode(bytes) {
        check_blocks(bytes, packet.message_count(), packet.blocks());
        let mut again = vec![0; bytes.len()];
        if let Ok(length) = packet.to_fields().encode_into(&mut again) {
            assert_eq!(&again[..length], &bytes[..length]);
        }
    }
    match Memoir::packet(bytes) {
        Ok(packet) => {
            assert!(packet.header_bytes <= bytes.len());
            assert!(packet.header.count == 0 || packet.header_bytes == 20);
            let request = Request { session: packet.header.session, first: packet.header.first, count: 1 };
            assert_eq!(Memoir::read_request(&request.encode()), Some(request));
        }
        Err(_) => assert_eq!(Memoir::read_request(bytes), None),
    }
}

/// A packet of a Cboe unit: its messages lie inside it, and it encodes to the same bytes.
pub fn cboeunit(bytes: &[u8]) {
    check_header(&cboe::unit::SCHEMA.headers[0], bytes);
    if let Ok(packet) = cboe::unit::SequencedUnit::decode(bytes) {
        let mut blocks = packet.blocks();
        let walked: usize = blocks.by_ref().flatten().map(<[u8]>::len).sum();
        assert!(8 + walked <= bytes.len().max(8));
        let mut again = vec![0; bytes.len()];
        if let Ok(length) = packet.to_fields().encode_into(&mut again) {
            assert_eq!(&again[..length], &bytes[..length]);
        }
        let is_request = CboeUnit::read_request(bytes).is_some();
        assert!(!is_request || bytes.len() == 8);
    }
    assert!(!CboeUnit::is_sound(bytes) || CboeUnit::packet(bytes).is_ok());
}

/// A packet of a market data group of MITCH: its messages lie inside it, it encodes to the same bytes, and Cboe's header reads it alike.
pub fn mitchunit(bytes: &[u8]) {
    check_header(&millennium::unit::SCHEMA.headers[0], bytes);
    if let Ok(packet) = millennium::unit::UnitHeader::decode(bytes) {
        let mut blocks = packet.blocks();
        let walked: usize = blocks.by_ref().flatten().map(<[u8]>::len).sum();
        assert!(8 + walked <= bytes.len().max(8));
        let mut again = vec![0; bytes.len()];
        if let Ok(length) = packet.to_fields().encode_into(&mut again) {
            assert_eq!(&again[..length], &bytes[..length]);
        }
        let cboes = cboe::unit::SequencedUnit::decode(bytes).expect("the same bytes");
        assert!(cboes.blocks().flatten().eq(packet.blocks().flatten()));
        assert_eq!((cboes.sequence(), cboes.count()), (packet.sequence_number(), packet.message_count()));
        if let Some(request) = MitchUnit::read_request(bytes) {
            assert_eq!(MitchUnit::read_request(&request.encode()), Some(request));
        }
    }
    assert_eq!(MitchUnit::is_sound(bytes), CboeUnit::is_sound(bytes));
}

/// A block of CTA: its messages lie inside it, it encodes to the same bytes, and a request is one that would be written.
pub fn ctablock(bytes: &[u8]) {
    check_header(&cta::block::SCHEMA.headers[0], bytes);
    if let Ok(block) = cta::block::BlockHeader::decode(bytes) {
        let mut blocks = block.blocks();
        let walked: usize = blocks.by_ref().flatten().map(<[u8]>::len).sum();
        assert!(cta::block::HEADER_BYTES + walked <= bytes.len().max(cta::block::HEADER_BYTES));
        let mut again = vec![0; bytes.len()];
        if let Ok(length) = block.to_fields().encode_into(&mut again) {
            assert_eq!(&again[..length], &bytes[..length]);
        }
        if let Some(request) = CtaBlock::read_request(bytes) {
            assert_eq!(CtaBlock::read_request(&request.encode()), Some(request));
        }
    }
    let mut answer = bytes.to_vec();
    CtaBlock::mark_answer(&mut answer, true);
    assert_eq!(CtaBlock::is_sound(&answer), CtaBlock::is_sound(bytes));
}

/// A packet of NYSE's Pillar: its messages lie inside it, it encodes to the same bytes, and a request is one that would be written.
pub fn pillarpacket(bytes: &[u8]) {
    check_header(&nyse::packet::SCHEMA.headers[0], bytes);
    if let Ok(packet) = nyse::packet::PillarPacket::decode(bytes) {
        let mut blocks = packet.blocks();
        let walked: usize = blocks.by_ref().flatten().map(<[u8]>::len).sum();
        assert!(16 + walked <= bytes.len());
        let mut again = vec![0; bytes.len()];
        if let Ok(length) = packet.to_fields().encode_into(&mut again) {
            assert_eq!(&again[..length], &bytes[..length]);
        }
        if let Some(request) = Pillar::read_request(bytes) {
            assert_eq!(Pillar::read_request(&request.encode()), Some(request));
        }
        assert!(Pillar::packet(bytes).is_ok() == packet.delivery_flag().is_of_channel());
    }
}

/// Every protocol's schema over the same bytes: no structure reads outside, and its fields are JSON.
pub fn schema(bytes: &[u8]) {
    for protocol in protocols() {
        let schema = protocol.schema;
        check_fields(&schema.decode(bytes));
        for structure in schema.headers.iter().chain(schema.messages) {
            let decoded = structure.decode(bytes);
            check_fields(&decoded);
            if let Ok(length) = structure.measure(bytes) {
                assert!(length <= bytes.len(), "{} measures {length} of {}", structure.name, bytes.len());
            }
        }
    }
}
