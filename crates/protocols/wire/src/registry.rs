//! Every protocol of this crate, by name.

use crate::schema::{Endian, Schema};
use crate::{cboe, cta, iex, memx, millennium, nasdaq, nyse, utp};

/// A protocol of this crate.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// The schema, which contains the name.
    pub schema: &'static Schema,
    /// Other common names.
    pub aliases: &'static [&'static str],
    /// Whether the protocol is a transport, and which transports carry it.
    pub role: Role,
}

/// Transport, application, or both.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    /// Carries messages of other protocols.
    Transport(Transport),
    /// Is carried by these transports.
    Application(&'static [Carrier]),
    /// Is its own transport on a TCP stream: session and application in one.
    Stream {
        /// Position of the length in a message.
        framing: StreamFraming,
        /// Name of the header at the start of each message.
        header: &'static str,
    },
}

/// Position of the two-byte length in each message of a TCP stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamFraming {
    /// Bytes before the length.
    pub length_offset: usize,
    /// The byte order of the length.
    pub endian: Endian,
    /// Bytes of a message that the length does not count.
    pub uncounted_bytes: usize,
}

impl StreamFraming {
    /// Returns the length in bytes of the first message of `stream`; `None` if its length has not arrived yet.
    #[must_use]
    pub fn message_bytes(&self, stream: &[u8]) -> Option<usize> {
        let length = *stream.get(self.length_offset..)?.first_chunk::<2>()?;
        let length = match self.endian {
            Endian::Big => u16::from_be_bytes(length),
            Endian::Little => u16::from_le_bytes(length),
        };
        Some(self.uncounted_bytes + usize::from(length))
    }
}

/// How a transport carries messages.
#[derive(Clone, Copy, Debug)]
pub enum Transport {
    /// In UDP packets with one header and a field of blocks that holds the messages.
    Datagram {
        /// Name of the header.
        header: &'static str,
        /// A special value of the count, such as the end of session, with its name.
        special_count: Option<(u64, &'static str)>,
        /// Name of the header field that holds the length of the payload, if there is one.
        payload_length: Option<&'static str>,
        /// Name of the header field that holds the length of the packet including its header, if there is one.
        packet_length: Option<&'static str>,
        /// Name of the header of a packet without messages, if it is different.
        without_messages: Option<&'static str>,
        /// The maximum number of zero bytes after the messages.
        padding: u8,
        /// Position of the length in the same packets on a TCP stream, for venues that also send them over TCP.
        stream: Option<StreamFraming>,
    },
    /// In packets on a TCP stream, each with a two-byte length.
    Stream {
        /// Position of the length.
        framing: StreamFraming,
        /// Names of the messages that carry an application's message, each with the field that holds it.
        payloads: &'static [(&'static str, &'static str)],
    },
}

/// A transport that carries an application.
#[derive(Clone, Copy, Debug)]
pub struct Carrier {
    /// The transport's schema.
    pub transport: &'static Schema,
    /// The header field and the value that identify the application; `None` if this is agreed out of band.
    pub selector: Option<(&'static str, u64)>,
    /// The transport message that carries the application; `None` if any message may. A session carries one protocol from its client
    /// and another one to it.
    pub within: Option<&'static str>,
}

/// SoupBinTCP's sequenced messages, which the server sends.
const FROM_SERVER: Carrier =
    Carrier { transport: &nasdaq::soupbintcp::SCHEMA, selector: None, within: Some("SequencedData") };

/// SoupBinTCP's unsequenced messages, which the client sends.
const FROM_CLIENT: Carrier =
    Carrier { transport: &nasdaq::soupbintcp::SCHEMA, selector: None, within: Some("UnsequencedData") };

/// A length that is the packet's first field and counts the whole packet.
const OF_UNITS: StreamFraming =
    StreamFraming { length_offset: 0, endian: Endian::Little, uncounted_bytes: 0 };

static PROTOCOLS: [&Protocol; 26] = [
    &Protocol {
        schema: &nasdaq::itch50::SCHEMA,
        aliases: &["itch", "itch50", "totalview", "nasdaq-itch50", "bx-itch50", "psx-itch50"],
        role: Role::Application(&[
            Carrier { transport: &nasdaq::moldudp64::SCHEMA, selector: None, within: None },
            FROM_SERVER,
        ]),
    },
    &Protocol {
        schema: &nasdaq::glimpse50::SCHEMA,
        aliases: &["glimpse", "glimpse50"],
        role: Role::Application(&[FROM_SERVER]),
    },
    &Protocol {
        schema: &nasdaq::ouch50::outbound::SCHEMA,
        aliases: &["ouch", "ouch-outbound", "ouch50-outbound"],
        role: Role::Application(&[FROM_SERVER]),
    },
    &Protocol {
        schema: &nasdaq::ouch50::inbound::SCHEMA,
        aliases: &["ouch-inbound", "ouch50-inbound"],
        role: Role::Application(&[FROM_CLIENT]),
    },
    &Protocol {
        schema: &nasdaq::moldudp64::SCHEMA,
        aliases: &["mold", "moldudp64"],
        role: Role::Transport(Transport::Datagram {
            header: "DownstreamPacket",
            special_count: Some((nasdaq::moldudp64::END_OF_SESSION as u64, "End of session")),
            payload_length: None,
            packet_length: None,
            without_messages: None,
            padding: 0,
            stream: None,
        }),
    },
    &Protocol {
        schema: &nasdaq::soupbintcp::SCHEMA,
        aliases: &["soup", "soupbin", "soupbintcp"],
        role: Role::Transport(Transport::Stream {
            framing: StreamFraming { length_offset: 0, endian: Endian::Big, uncounted_bytes: 2 },
            payloads: &[("SequencedData", "message"), ("UnsequencedData", "message")],
        }),
    },
    &Protocol {
        schema: &iex::tops16::SCHEMA,
        aliases: &["tops", "tops16", "iex-tops"],
        role: Role::Application(&[Carrier {
            transport: &iex::tp::SCHEMA,
            selector: Some(("message_protocol_id", 0x8003)),
            within: None,
        }]),
    },
    &Protocol {
        schema: &iex::deep10::SCHEMA,
        aliases: &["deep", "deep10", "iex-deep"],
        role: Role::Application(&[Carrier {
            transport: &iex::tp::SCHEMA,
            selector: Some(("message_protocol_id", 0x8004)),
            within: None,
        }]),
    },
    &Protocol {
        schema: &iex::deep_plus10::SCHEMA,
        aliases: &["deep+", "deep-plus", "iex-deep-plus"],
        role: Role::Application(&[Carrier {
            transport: &iex::tp::SCHEMA,
            selector: Some(("message_protocol_id", 0x8005)),
            within: None,
        }]),
    },
    &Protocol {
        schema: &iex::tp::SCHEMA,
        aliases: &["iextp", "iex-tp"],
        role: Role::Transport(Transport::Datagram {
            header: "Segment",
            special_count: None,
            payload_length: Some("payload_length"),
            packet_length: None,
            without_messages: None,
            padding: 0,
            stream: None,
        }),
    },
    &Protocol {
        schema: &memx::depth13::SCHEMA,
        aliases: &["memoir", "memoir-depth", "memx", "memx-depth"],
        role: Role::Application(&[
            Carrier {
                transport: &memx::udp::SCHEMA,
                selector: Some(("header_length", memx::udp::HEADER_LENGTH as u64)),
                within: None,
            },
            Carrier { transport: &memx::tcp::SCHEMA, selector: None, within: Some("SequencedMessage") },
        ]),
    },
    &Protocol {
        schema: &memx::udp::SCHEMA,
        aliases: &["memoir-udp", "memx-udp"],
        role: Role::Transport(Transport::Datagram {
            header: "SequencedPacket",
            special_count: None,
            payload_length: None,
            packet_length: None,
            without_messages: Some("CommonHeader"),
            padding: 0,
            stream: None,
        }),
    },
    &Protocol {
        schema: &memx::tcp::SCHEMA,
        aliases: &["memx-tcp", "memoir-tcp"],
        role: Role::Transport(Transport::Stream {
            framing: StreamFraming {
                length_offset: 1,
                endian: Endian::Big,
                uncounted_bytes: memx::tcp::HEADER_BYTES,
            },
            payloads: &[("SequencedMessage", "message")],
        }),
    },
    &Protocol {
        schema: &cboe::pitch::SCHEMA,
        aliases: &["pitch", "cboe-pitch"],
        role: Role::Application(&[Carrier { transport: &cboe::unit::SCHEMA, selector: None, within: None }]),
    },
    &Protocol {
        schema: &cboe::futures::SCHEMA,
        aliases: &["cfe", "cboe-futures"],
        role: Role::Application(&[Carrier { transport: &cboe::unit::SCHEMA, selector: None, within: None }]),
    },
    &Protocol {
        schema: &cboe::unit::SCHEMA,
        aliases: &["cboe-unit", "sequenced-unit"],
        role: Role::Transport(Transport::Datagram {
            header: "SequencedUnit",
            special_count: None,
            payload_length: None,
            packet_length: Some("length"),
            without_messages: None,
            padding: 0,
            stream: Some(OF_UNITS),
        }),
    },
    &Protocol {
        schema: &cboe::grp::SCHEMA,
        aliases: &["grp", "cboe-grp", "cboe-spin"],
        role: Role::Application(&[Carrier {
            transport: &cboe::unit::SCHEMA,
            selector: Some(("unit", 0)),
            within: None,
        }]),
    },
    &Protocol {
        schema: &nyse::integrated::SCHEMA,
        aliases: &["integrated", "nyse-integrated", "pillar"],
        role: Role::Application(&[Carrier {
            transport: &nyse::packet::SCHEMA,
            selector: None,
            within: None,
        }]),
    },
    &Protocol {
        schema: &nyse::packet::SCHEMA,
        aliases: &["pillar-packet", "nyse-packet"],
        role: Role::Transport(Transport::Datagram {
            header: "PillarPacket",
            special_count: None,
            payload_length: None,
            packet_length: Some("length"),
            without_messages: None,
            padding: 0,
            stream: None,
        }),
    },
    &Protocol {
        schema: &millennium::mitch::SCHEMA,
        aliases: &["mitch", "lse-mitch", "millennium-mitch", "mit303"],
        role: Role::Application(&[Carrier {
            transport: &millennium::unit::SCHEMA,
            selector: None,
            within: None,
        }]),
    },
    &Protocol {
        schema: &millennium::unit::SCHEMA,
        aliases: &["mitch-unit", "lse-mitch-unit"],
        role: Role::Transport(Transport::Datagram {
            header: "UnitHeader",
            special_count: None,
            payload_length: None,
            packet_length: Some("length"),
            without_messages: None,
            padding: 0,
            stream: Some(OF_UNITS),
        }),
    },
    &Protocol {
        schema: &millennium::recovery::SCHEMA,
        aliases: &["mitch-recovery", "lse-mitch-recovery", "mitch-replay"],
        role: Role::Application(&[Carrier {
            transport: &millennium::unit::SCHEMA,
            selector: Some(("market_data_group", 0)),
            within: None,
        }]),
    },
    &Protocol {
        schema: &utp::uqdf15::SCHEMA,
        aliases: &["uqdf", "utp", "utp-uqdf"],
        role: Role::Application(&[Carrier {
            transport: &nasdaq::moldudp64::SCHEMA,
            selector: None,
            within: None,
        }]),
    },
    &Protocol {
        schema: &cta::cqs191::SCHEMA,
        aliases: &["cqs", "cta", "cta-cqs"],
        role: Role::Application(&[Carrier {
            transport: &cta::block::SCHEMA,
            selector: Some(("data_feed_indicator", cta::block::CQS as u64)),
            within: None,
        }]),
    },
    &Protocol {
        schema: &cta::block::SCHEMA,
        aliases: &["cta-block"],
        role: Role::Transport(Transport::Datagram {
            header: "BlockHeader",
            special_count: None,
            payload_length: None,
            packet_length: Some("block_size"),
            without_messages: None,
            padding: 1,
            stream: None,
        }),
    },
    &Protocol {
        schema: &millennium::native::SCHEMA,
        aliases: &["native", "lse-native", "millennium-native", "mit203"],
        role: Role::Stream {
            framing: StreamFraming {
                length_offset: 1,
                endian: Endian::Little,
                uncounted_bytes: millennium::native::UNCOUNTED_BYTES,
            },
            header: "MessageHeader",
        },
    },
];

/// Returns every protocol of this crate.
#[must_use]
pub fn protocols() -> &'static [&'static Protocol] {
    &PROTOCOLS
}

/// Returns the protocol with this name or alias, ignoring case.
#[must_use]
pub fn protocol_by_name(name: &str) -> Option<&'static Protocol> {
    PROTOCOLS
        .iter()
        .find(|protocol| {
            protocol.schema.name.eq_ignore_ascii_case(name)
                || protocol.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(name))
        })
        .copied()
}
