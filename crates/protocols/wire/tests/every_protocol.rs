//! What holds for every message of every protocol.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use tapeworks_wire::schema::{Field, Kind, Schema, SplitMix64, Structure, arbitrary, json, markdown};
use tapeworks_wire::{cboe, cta, iex, memx, millennium, nasdaq, nyse, protocol_by_name, protocols, utp};

/// Encodes what it decodes from random valid bytes, for each message of the protocol.
macro_rules! round_trip {
    ($test:ident, $protocol:path) => {
        #[test]
        fn $test() {
            use $protocol::{Message, SCHEMA};
            let mut random = SplitMix64::new(0x7a9e);
            for structure in SCHEMA.messages {
                for _ in 0..500 {
                    let mut bytes = Vec::new();
                    arbitrary(&SCHEMA, structure, &mut random, &mut bytes);
                    let message = Message::decode(&bytes)
                        .unwrap_or_else(|error| panic!("{}: {error}: {bytes:02x?}", structure.name));
                    assert_eq!(message.name(), structure.name);
                    assert_eq!(message.as_bytes(), bytes);
                    let mut again = vec![0; bytes.len()];
                    assert_eq!(message.encode_into(&mut again), Ok(bytes.len()));
                    assert_eq!(again, bytes, "{message:?}");
                    assert_eq!(SCHEMA.decode(&bytes).error, None);
                }
            }
        }
    };
}

round_trip!(itch50_encodes_what_it_decodes, nasdaq::itch50);
round_trip!(glimpse50_encodes_what_it_decodes, nasdaq::glimpse50);
round_trip!(soupbintcp_encodes_what_it_decodes, nasdaq::soupbintcp);
round_trip!(tops16_encodes_what_it_decodes, iex::tops16);
round_trip!(deep10_encodes_what_it_decodes, iex::deep10);
round_trip!(deep_plus10_encodes_what_it_decodes, iex::deep_plus10);
round_trip!(pitch_encodes_what_it_decodes, cboe::pitch);
round_trip!(futures_encodes_what_it_decodes, cboe::futures);
round_trip!(grp_encodes_what_it_decodes, cboe::grp);
round_trip!(mitch_recovery_encodes_what_it_decodes, millennium::recovery);
round_trip!(memx_tcp_encodes_what_it_decodes, memx::tcp);
round_trip!(integrated_encodes_what_it_decodes, nyse::integrated);
round_trip!(ouch50_inbound_encodes_what_it_decodes, nasdaq::ouch50::inbound);
round_trip!(ouch50_outbound_encodes_what_it_decodes, nasdaq::ouch50::outbound);
round_trip!(native_encodes_what_it_decodes, millennium::native);
round_trip!(mitch_encodes_what_it_decodes, millennium::mitch);
round_trip!(uqdf_encodes_what_it_decodes, utp::uqdf15);
round_trip!(cqs_encodes_what_it_decodes, cta::cqs191);

#[test]
fn headers_encode_to_the_bytes_they_decode() {
    let mut random = SplitMix64::new(0x7a9e);
    for _ in 0..500 {
        let (mut bytes, mut again) = (Vec::new(), [0; 1024]);
        let schema = &nasdaq::moldudp64::SCHEMA;
        arbitrary(schema, schema.structure("DownstreamPacket").unwrap(), &mut random, &mut bytes);
        let view = nasdaq::moldudp64::DownstreamPacket::decode(&bytes).unwrap();
        let length = view.to_fields().encode_into(&mut again).unwrap();
        assert_eq!(again[..length], bytes);
        assert_eq!(view.blocks().filter(Result::is_ok).count(), usize::from(view.message_count()));

        bytes.clear();
        arbitrary(schema, schema.structure("RequestPacket").unwrap(), &mut random, &mut bytes);
        let view = nasdaq::moldudp64::RequestPacket::decode(&bytes).unwrap();
        assert_eq!(view.to_fields().encode()[..], bytes);

        bytes.clear();
        let schema = &cboe::unit::SCHEMA;
        arbitrary(schema, schema.structure("SequencedUnit").unwrap(), &mut random, &mut bytes);
        let length = (bytes.len() as u16).to_le_bytes();
        bytes[..2].copy_from_slice(&length);
        let view = cboe::unit::SequencedUnit::decode(&bytes).unwrap();
        let length = view.to_fields().encode_into(&mut again).unwrap();
        assert_eq!(again[..length], bytes);
        assert_eq!(view.blocks().filter(Result::is_ok).count(), usize::from(view.count()));

        bytes.clear();
        let schema = &millennium::unit::SCHEMA;
        arbitrary(schema, schema.structure("UnitHeader").unwrap(), &mut random, &mut bytes);
        let length = (bytes.len() as u16).to_le_bytes();
        bytes[..2].copy_from_slice(&length);
        let view = millennium::unit::UnitHeader::decode(&bytes).unwrap();
        let length = view.to_fields().encode_into(&mut again).unwrap();
        assert_eq!(again[..length], bytes);
        assert_eq!(view.blocks().filter(Result::is_ok).count(), usize::from(view.message_count()));

        bytes.clear();
        let schema = &cta::block::SCHEMA;
        arbitrary(schema, schema.structure("BlockHeader").unwrap(), &mut random, &mut bytes);
        let length = (bytes.len() as u16).to_be_bytes();
        bytes[1..3].copy_from_slice(&length);
        let view = cta::block::BlockHeader::decode(&bytes).unwrap();
        let length = view.to_fields().encode_into(&mut again).unwrap();
        assert_eq!(again[..length], bytes);
        assert_eq!(view.blocks().filter(Result::is_ok).count(), usize::from(view.messages_in_block()));

        bytes.clear();
        let schema = &nyse::packet::SCHEMA;
        arbitrary(schema, schema.structure("PillarPacket").unwrap(), &mut random, &mut bytes);
        let length = (bytes.len() as u16).to_le_bytes();
        bytes[..2].copy_from_slice(&length);
        let view = nyse::packet::PillarPacket::decode(&bytes).unwrap();
        let length = view.to_fields().encode_into(&mut again).unwrap();
        assert_eq!(again[..length], bytes);
        assert_eq!(view.blocks().filter(Result::is_ok).count(), usize::from(view.count()));

        bytes.clear();
        let schema = &iex::tp::SCHEMA;
        arbitrary(schema, schema.structure("Segment").unwrap(), &mut random, &mut bytes);
        let view = iex::tp::Segment::decode(&bytes).unwrap();
        let length = view.to_fields().encode_into(&mut again).unwrap();
        assert_eq!(again[..length], bytes);
    }
}

/// Lengths of the fields and the tag add up to the whole structure, without holes or overlaps.
fn covered(schema: &Schema, structure: &Structure) {
    let full = structure.full_length.unwrap_or(structure.minimum_length);
    let mut owners = vec![0; full];
    if let (Some(tag), Some(_)) = (schema.tag, structure.tag) {
        owners[tag.offset..tag.offset + tag.length].iter_mut().for_each(|owner| *owner += 1);
    }
    for field in structure.fields {
        if matches!(field.kind, Kind::Group { .. } | Kind::Blocks { .. } | Kind::Rest) {
            assert_eq!(field.offset, full, "{}.{}", structure.name, field.name);
        }
        owners[field.offset..field.offset + field.length].iter_mut().for_each(|owner| *owner += 1);
    }
    assert!(owners.iter().all(|owner| *owner == 1), "{}: {owners:?}", structure.name);
}

#[test]
fn the_schema_covers_every_byte_of_every_structure_once() {
    for protocol in protocols() {
        let schema = protocol.schema;
        for structure in schema.messages.iter().chain(schema.headers).chain(schema.groups) {
            covered(schema, structure);
        }
    }
}

#[test]
fn a_session_in_the_packets_of_a_feed_has_no_message_type_of_the_feed() {
    for (session, feed) in [
        (&cboe::grp::SCHEMA, &cboe::pitch::SCHEMA),
        (&cboe::grp::SCHEMA, &cboe::futures::SCHEMA),
        (&millennium::recovery::SCHEMA, &millennium::mitch::SCHEMA),
    ] {
        let is_shared = |tag: Option<u64>| tag.is_some_and(|tag| feed.message(tag).is_some());
        assert!(session.messages.iter().all(|message| !is_shared(message.tag)), "{}", session.name);
    }
}

#[test]
fn every_protocol_is_found_by_its_names_and_has_its_forms() {
    for protocol in protocols() {
        for name in protocol.aliases.iter().chain([&protocol.schema.name]) {
            let found = protocol_by_name(&name.to_uppercase()).unwrap();
            assert_eq!(found.schema.name, protocol.schema.name);
        }
        let page = markdown(protocol.schema);
        let object: serde_json::Value = serde_json::from_str(&json(protocol.schema)).unwrap();
        assert_eq!(object["name"], protocol.schema.name);
        for message in protocol.schema.messages {
            assert!(page.contains(&format!("### {}\n", message.name)));
            let listed =
                object["messages"].as_array().unwrap().iter().find(|each| each["name"] == message.name);
            assert_eq!(listed.unwrap()["fields"].as_array().unwrap().len(), message.fields.len());
        }
    }
    assert!(protocol_by_name("no such protocol").is_none());
}

#[test]
fn the_json_of_a_message_is_json_whatever_it_holds() {
    let mut random = SplitMix64::new(1);
    for protocol in protocols() {
        for structure in protocol.schema.messages.iter().chain(protocol.schema.headers) {
            for _ in 0..50 {
                let (mut bytes, mut text) = (Vec::new(), String::new());
                arbitrary(protocol.schema, structure, &mut random, &mut bytes);
                structure.decode(&bytes).write_json(&mut text);
                let object: serde_json::Value = serde_json::from_str(&text).unwrap();
                // A field of a later version may be left out.
                let is_there =
                    |field: &&Field| field.since.is_none() || field.offset + field.length <= bytes.len();
                let fields = structure.fields.iter().filter(is_there).count();
                assert_eq!(object.as_object().unwrap().len(), fields, "{}: {text}", structure.name);
            }
        }
    }
}

/// Decodes with the generated code and with the schema, which must agree on what is wrong.
macro_rules! agree {
    ($bytes:expr, $($protocol:path),*) => { $({
        use $protocol::{Message, SCHEMA};
        let described = SCHEMA.decode($bytes);
        match Message::decode($bytes) {
            Ok(message) => {
                prop_assert_eq!(described.error, None);
                prop_assert_eq!(described.name(), Some(message.name()));
                prop_assert_eq!(described.trailing, $bytes.len() - message.as_bytes().len());
                let debug = format!("{:?}", message);
                prop_assert!(!debug.is_empty());
            }
            Err(error) => prop_assert_eq!(described.error, Some(error)),
        }
        let mut text = String::new();
        described.write_json(&mut text);
        described.for_each_field(|found| text.push_str(&found.value.to_string()));
    })* };
}

proptest! {
    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..128), tag in any::<prop::sample::Index>()) {
        use nasdaq::{moldudp64, soupbintcp};
        let mut tagged = bytes.clone();
        if let Some(first) = tagged.first_mut() {
            let schemas = [
                &nasdaq::itch50::SCHEMA,
                &iex::deep10::SCHEMA,
                &iex::deep_plus10::SCHEMA,
                &iex::tops16::SCHEMA,
                &nasdaq::ouch50::inbound::SCHEMA,
                &nasdaq::ouch50::outbound::SCHEMA,
            ];
            let messages = schemas.iter().flat_map(|schema| schema.messages);
            let tags: Vec<u8> = messages.filter_map(|message| message.tag).map(|tag| tag as u8).collect();
            *first = *tag.get(&tags);
        }
        let mut native = bytes.clone();
        if let [start, _, _, type_, ..] = &mut native[..] {
            let tags: Vec<u8> =
                millennium::native::SCHEMA.messages.iter().filter_map(|message| message.tag).map(|tag| tag as u8).collect();
            (*start, *type_) = (2, *tag.get(&tags));
        }
        let mut pitch = bytes.clone();
        if let [_, type_, ..] = &mut pitch[..] {
            let tags: Vec<u8> =
                cboe::pitch::SCHEMA.messages.iter().filter_map(|message| message.tag).map(|tag| tag as u8).collect();
            *type_ = *tag.get(&tags);
        }
        let mut mitch = bytes.clone();
        if let [_, type_, ..] = &mut mitch[..] {
            let tags: Vec<u8> =
                millennium::mitch::SCHEMA.messages.iter().filter_map(|message| message.tag).map(|tag| tag as u8).collect();
            *type_ = *tag.get(&tags);
        }
        let mut integrated = bytes.clone();
        if let [_, _, type_, high, ..] = &mut integrated[..] {
            let tags: Vec<u8> =
                nyse::integrated::SCHEMA.messages.iter().filter_map(|message| message.tag).map(|tag| tag as u8).collect();
            (*type_, *high) = (*tag.get(&tags), 0);
        }
        let mut session = bytes.clone();
        if let [first, second, ..] = &mut session[..] {
            let tags: Vec<u8> = [&cboe::grp::SCHEMA, &millennium::recovery::SCHEMA, &memx::tcp::SCHEMA]
                .iter()
                .flat_map(|schema| schema.messages)
                .filter_map(|message| message.tag)
                .map(|tag| tag as u8)
                .collect();
            (*first, *second) = (*tag.get(&tags), *tag.get(&tags));
        }
        let two_letters = |schema: &Schema| {
            let tags: Vec<u16> = schema.messages.iter().filter_map(|message| message.tag).map(|tag| tag as u16).collect();
            tag.get(&tags).to_be_bytes()
        };
        let (mut uqdf, mut cqs) = (bytes.clone(), bytes.clone());
        if let [version, category, type_, ..] = &mut uqdf[..] {
            *version = utp::uqdf15::VERSION;
            [*category, *type_] = two_letters(&utp::uqdf15::SCHEMA);
        }
        if let [_, _, category, type_, ..] = &mut cqs[..] {
            [*category, *type_] = two_letters(&cta::cqs191::SCHEMA);
        }
        for bytes in [&bytes, &tagged, &native, &pitch, &mitch, &integrated, &uqdf, &cqs, &session] {
            agree!(bytes, cboe::grp, millennium::recovery, memx::tcp);
            agree!(bytes, utp::uqdf15, cta::cqs191);
            if let Ok(block) = cta::block::BlockHeader::decode(bytes) {
                prop_assert!(block.blocks().count() <= usize::from(block.messages_in_block()));
            }
            if let Ok(utp::uqdf15::Message::QuoteShortForm(quote)) = utp::uqdf15::Message::decode(bytes) {
                let _ = quote.national();
            }
            if let Ok(cta::cqs191::Message::ShortQuote(quote)) = cta::cqs191::Message::decode(bytes) {
                let _ = quote.national();
            }
            agree!(bytes, millennium::mitch);
            if let Ok(packet) = millennium::unit::UnitHeader::decode(bytes) {
                prop_assert!(packet.blocks().count() <= usize::from(packet.message_count()));
            }
            agree!(bytes, nyse::integrated);
            if let Ok(packet) = nyse::packet::PillarPacket::decode(bytes) {
                prop_assert!(packet.blocks().count() <= usize::from(packet.count()));
            }
            agree!(bytes, cboe::pitch, cboe::futures);
            if let Ok(packet) = cboe::unit::SequencedUnit::decode(bytes) {
                prop_assert!(packet.blocks().count() <= usize::from(packet.count()));
            }
            agree!(bytes, nasdaq::itch50, nasdaq::soupbintcp, iex::tops16, iex::deep10, iex::deep_plus10);
            agree!(bytes, nasdaq::ouch50::inbound, nasdaq::ouch50::outbound, millennium::native);
            let mut messages = millennium::stream::Messages::new(bytes);
            let whole: usize = messages.by_ref().flatten().map(<[u8]>::len).sum();
            prop_assert_eq!(whole + messages.rest().len(), bytes.len());
            if let Ok(packet) = moldudp64::DownstreamPacket::decode(bytes) {
                prop_assert!(packet.blocks().count() <= usize::from(packet.count()));
            }
            if let Ok(segment) = iex::tp::Segment::decode(bytes) {
                prop_assert!(segment.blocks().count() <= usize::from(segment.message_count()));
            }
            let walked: usize = soupbintcp::Packets::new(bytes).flatten().map(<[u8]>::len).sum();
            prop_assert!(walked <= bytes.len());
        }
    }
}
