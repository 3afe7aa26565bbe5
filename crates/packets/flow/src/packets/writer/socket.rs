//! Writers of packets to the network.

use std::net::SocketAddr;

use tapeworks_capture::LinkType;
use tapeworks_capture::net::layout::Fragment;
use tapeworks_capture::pool::Packet;
use tapeworks_nic::{Sender, Sent};

use super::super::{PAYLOAD, PacketStage, Passing, Reason, Routed, StageError, To};
use tapeworks_stage::{Sink, Stage};

/// The part of a packet that is sent.
#[derive(Debug, Clone, Copy)]
enum What {
    /// The payload of a UDP packet.
    Payload,
    /// The whole frame, if it has this link type.
    Frame(LinkType),
}

impl What {
    /// Returns the bytes to send, or why there are none.
    fn of(self, packet: &Packet) -> Result<&[u8], Reason> {
        let (bytes, description) = (packet.bytes(), packet.description());
        let is_cut = (bytes.len() as u64) < u64::from(description.original_length);
        match self {
            Self::Frame(link_type) if description.link_type != link_type => Err(Reason::LinkType),
            Self::Frame(_) => {
                if is_cut {
                    Err(Reason::Cut)
                } else {
                    Ok(bytes)
                }
            }
            Self::Payload if is_cut => Err(Reason::NoPayload),
            Self::Payload if description.link_type == PAYLOAD => Ok(bytes),
            Self::Payload => {
                let layout = packet.layout();
                let payload =
                    if layout.fragment == Fragment::Whole { layout.udp_payload(bytes) } else { None };
                payload.ok_or(Reason::NoPayload)
            }
        }
    }
}

/// Sends the payload of UDP packets to an address, or whole frames out of a network interface.
#[derive(Debug)]
pub struct SocketWriter {
    sender: Sender,
    what: What,
    /// The packets of the current batch, and the outcome of each.
    held: Vec<Packet>,
    outcomes: Vec<To>,
    failure: Option<StageError>,
    is_broken: bool,
}

impl SocketWriter {
    /// Sends UDP payloads to `to` from a port that the kernel chooses. `hops` limits how far multicast travels (the kernel's
    /// default is 1).
    ///
    /// # Errors
    /// Why the socket cannot be opened, in one line that names the address.
    pub fn udp(to: SocketAddr, hops: Option<u32>) -> Result<Self, StageError> {
        let sender = Sender::udp(to, hops)
            .map_err(|error| StageError::failed(format!("cannot send to {to}: {error}")))?;
        Ok(Self::new(sender, What::Payload))
    }

    /// Sends frames out of the interface `name`.
    ///
    /// # Errors
    /// Why the interface cannot be written to, in one line that names it.
    pub fn interface(name: &str) -> Result<Self, StageError> {
        let (sender, link_type) =
            Sender::interface(name).map_err(|error| StageError::failed(error.to_string()))?;
        Ok(Self::new(sender, What::Frame(link_type)))
    }

    fn new(sender: Sender, what: What) -> Self {
        Self { sender, what, held: Vec::new(), outcomes: Vec::new(), failure: None, is_broken: false }
    }

    /// Sends the held packets and records the outcome of each.
    fn send(&mut self) {
        let Self { sender, what, held, outcomes, .. } = self;
        outcomes.extend(held.iter().map(|packet| what.of(packet).map_or_else(To::Dropped, |_| To::Consumed)));
        if self.is_broken {
            outcomes.fill(To::Dropped(Reason::Failed));
            return;
        }
        let mut sendable = outcomes.iter_mut().filter(|outcome| **outcome == To::Consumed);
        let mut failed = None;
        sender.send(held.iter().filter_map(|packet| what.of(packet).ok()), |sent| {
            let reason = match sent {
                Sent::Taken => None,
                Sent::TooLong => Some(Reason::TooLong),
                Sent::QueueFull => Some(Reason::QueueFull),
                Sent::Refused => Some(Reason::Refused),
                Sent::Failed(error) => {
                    failed.get_or_insert(error);
                    Some(Reason::Failed)
                }
            };
            // There is one result per packet, in the same order.
            if let (Some(outcome), Some(reason)) = (sendable.next(), reason) {
                *outcome = To::Dropped(reason);
            }
        });
        if let Some(error) = failed {
            self.is_broken = true;
            self.failure = Some(StageError::failed(sender.describe(error)));
        }
    }
}

impl<S: Sink<Routed>> Stage<Passing, S> for SocketWriter {
    fn process(&mut self, batch: &[Passing], sink: &mut S) {
        self.held.extend(batch.iter().filter_map(Passing::take));
        self.send();
        for (packet, to) in self.held.drain(..).zip(self.outcomes.drain(..)) {
            sink.put(Routed { packet, to });
        }
    }
}

impl PacketStage for SocketWriter {
    fn ports(&self) -> usize {
        0
    }

    fn take_failure(&mut self) -> Option<StageError> {
        self.failure.take()
    }
}
