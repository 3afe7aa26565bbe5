//! Reads packets the way a host's IP layer does.

use super::{Checksums, Datagram, Defragmenter, HeaderError, Origin};
use crate::link_type::LinkType;

/// Finds the datagrams in packets: it [reassembles fragments](Defragmenter) and discards datagrams whose
/// [checksum](Checksums) shows damage. All readers of captures use this type.
#[derive(Debug, Default)]
pub struct Receiver {
    fragments: Defragmenter,
    checksums: Checksums,
}

impl Receiver {
    /// Finds the UDP or TCP payload in a captured packet, or in the packet that it completes. It also returns the packet's location:
    /// `origin`, or that of the fragment with the transport header.
    ///
    /// # Errors
    /// As [`parse`](super::parse); [`HeaderError::Fragment`] for a fragment that was kept, and [`HeaderError::Checksum`]
    /// for a damaged datagram.
    #[inline]
    pub fn receive<'a>(
        &'a mut self,
        link_type: LinkType,
        bytes: &'a [u8],
        origin: Origin,
    ) -> Result<(Datagram<'a>, Origin), HeaderError> {
        let (datagram, transport, origin) = self.fragments.parse_with_transport(link_type, bytes, origin)?;
        self.checksums.check(&datagram, transport, origin)?;
        Ok((datagram, origin))
    }

    /// Whether [`Receiver::take_report`] may return something.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.fragments.is_pending() || self.checksums.has_reports()
    }

    /// Returns damage found only after its packet was read. Either a fragmented packet is still [incomplete](HeaderError::Incomplete)
    /// at `now_ns` (`None` at the end of the input), reported at the location of its first fragment; or a datagram that was used turned
    /// out to have a wrong [checksum](HeaderError::Checksum).
    #[cold]
    pub fn take_report(&mut self, now_ns: Option<u64>) -> Option<(Origin, HeaderError)> {
        self.checksums.take_report().or_else(|| self.fragments.take_lost(now_ns))
    }

    /// See [`Checksums::unverified`].
    pub const fn unverified(&self) -> u64 {
        self.checksums.unverified()
    }
}
