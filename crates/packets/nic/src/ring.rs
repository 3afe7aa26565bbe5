//! Frames of a network interface, from a ring shared with the kernel (AF_PACKET, TPACKET_V3).
//!
//! The kernel writes frames into the ring's blocks, one block after the other, and hands a block over when it is full or its
//! timeout expires. [`PacketReceiver`] walks the blocks in order, copies each frame into a packet buffer, and hands each block
//! back after its last frame. Frames without a buffer wait in the ring; when the whole ring is full, the kernel drops frames
//! and counts them.
//!
//! A frame is restored to what was on the wire: a VLAN tag that the kernel or the card removed is put back, and a checksum that
//! the kernel had left to the card (frames of this machine, over `lo` or a veth pair) is completed. Segments coalesced by the
//! card or the kernel (GRO, LRO) are not split again: switch that off with `ethtool -K` where single frames matter.
//!
//! Cost: no system call per frame or block; one copy of the frame, whose header is read from the cache line before it.
//! Memory: `blocks * block_bytes`, in the kernel. Latency: up to the block's timeout, at least a millisecond, unless traffic
//! fills a block sooner.
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{io, ptr, slice};

use memmap2::{MmapOptions, MmapRaw};
use tapeworks_capture::LinkType;
use tapeworks_capture::net::layout::Layout;
use tapeworks_capture::net::rewrite::{self, TAG_BYTES};
use tapeworks_capture::pool::{Description, Pool};

use super::interface::{InterfaceError, RawSocket};
use super::{Received, options};

/// Where the two Ethernet addresses end and a VLAN tag goes.
const MACS_BYTES: usize = 12;

/// IEEE 802.1Q: the type of a tag whose own EtherType the kernel does not report.
const ETHERTYPE_VLAN: u16 = 0x8100;

/// Options for reading an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketOptions {
    /// The interface's name.
    pub interface: String,
    /// Bytes per block: a multiple of the page size. A frame longer than a block is truncated.
    pub block_bytes: usize,
    /// Number of blocks in the ring.
    pub blocks: usize,
    /// How long the kernel waits for more frames before it hands over a partly filled block, in milliseconds; at least 1.
    pub block_timeout_ms: u32,
    /// Receives frames addressed to other machines as well.
    pub promiscuous: bool,
    /// Also receives the frames that leave through the interface.
    pub outgoing: bool,
}

impl PacketOptions {
    /// 64 blocks of 256 KiB, handed over after a millisecond; promiscuous; incoming frames only.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            block_bytes: 256 << 10,
            blocks: 64,
            block_timeout_ms: 1,
            promiscuous: true,
            outgoing: false,
        }
    }
}

/// The kernel's counters since the interface was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketStatistics {
    /// Frames that reached the socket, including dropped ones.
    pub packets: u64,
    /// Frames that the kernel dropped because the ring was full.
    pub drops: u64,
    /// Number of times that the ring was full.
    pub freezes: u64,
}

/// Receives the frames of a network interface. It never blocks.
#[derive(Debug)]
pub struct PacketReceiver {
    raw: RawSocket,
    ring: MmapRaw,
    block_bytes: usize,
    blocks: usize,
    link_type: LinkType,
    /// The current block, or the next one to come.
    block: usize,
    /// Offset of the next frame's header in the block, and the number of frames left from there.
    at: usize,
    left: u32,
    completed_checksums: u64,
    statistics: PacketStatistics,
}

impl AsFd for PacketReceiver {
    /// Returns the descriptor to wait on: the kernel reports it readable when it hands over a block.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.raw.socket.as_fd()
    }
}

impl PacketReceiver {
    /// Opens the interface: from now on its frames go into the ring.
    ///
    /// # Errors
    /// [`InterfaceError`]; it needs the capability `CAP_NET_RAW`.
    pub fn open(wanted: &PacketOptions) -> Result<Self, InterfaceError> {
        let raw = RawSocket::open(&wanted.interface)?;
        let set = |doing, name, value: libc::c_int| {
            options::set(&raw.socket, libc::SOL_PACKET, name, &value)
                .map_err(|cause| raw.failed(doing, cause))
        };
        set("use TPACKET_V3", libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V3 as libc::c_int)?;
        if !wanted.outgoing {
            set("ignore sent frames", libc::PACKET_IGNORE_OUTGOING, 1)?;
        }
        let bytes = wanted.blocks.saturating_mul(wanted.block_bytes);
        let number = |value: usize| libc::c_uint::try_from(value).unwrap_or(libc::c_uint::MAX);
        // Frames have no fixed size in version 3, but the kernel checks the product.
        let frame_bytes = wanted.block_bytes.clamp(1, 2048);
        let request = libc::tpacket_req3 {
            tp_block_size: number(wanted.block_bytes),
            tp_block_nr: number(wanted.blocks),
            tp_frame_size: number(frame_bytes),
            tp_frame_nr: number((wanted.block_bytes / frame_bytes).saturating_mul(wanted.blocks)),
            tp_retire_blk_tov: wanted.block_timeout_ms.max(1),
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        options::set(&raw.socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
            .map_err(|cause| raw.failed("make its ring", cause))?;
        let ring = MmapOptions::new()
            .len(bytes)
            .populate()
            .map_raw(&raw.socket)
            .map_err(|cause| raw.failed("map its ring", cause))?;
        let link_type = raw.bind(libc::ETH_P_ALL)?;
        if wanted.promiscuous {
            let membership = libc::packet_mreq {
                mr_ifindex: raw.index as libc::c_int,
                mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
                mr_alen: 0,
                mr_address: [0; 8],
            };
            options::set(&raw.socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
                .map_err(|cause| raw.failed("make it promiscuous", cause))?;
        }
        Ok(Self {
            raw,
            ring,
            block_bytes: wanted.block_bytes,
            blocks: wanted.blocks,
            link_type,
            block: 0,
            at: 0,
            left: 0,
            completed_checksums: 0,
            statistics: PacketStatistics::default(),
        })
    }

    /// Returns the link type of its frames.
    pub fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// Whether frames are available: one load.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.left > 0 || self.is_handed_over()
    }

    /// Checks that the interface still exists and is up. Frames received before it went down are still in the ring.
    ///
    /// # Errors
    /// [`InterfaceError`], reported once.
    pub fn check(&self) -> Result<(), InterfaceError> {
        self.raw.check()
    }

    /// Returns the kernel's counters since the interface was opened. This is a system call.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn statistics(&mut self) -> Result<PacketStatistics, InterfaceError> {
        let none = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        // SAFETY: three integers.
        let since =
            unsafe { options::get(&self.raw.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, none) };
        let since = since.map_err(|cause| self.raw.failed("read its counts", cause))?;
        // The kernel resets its counters with each query.
        self.statistics.packets += u64::from(since.tp_packets);
        self.statistics.drops += u64::from(since.tp_drops);
        self.statistics.freezes += u64::from(since.tp_freeze_q_cnt);
        Ok(self.statistics)
    }

    /// Returns the number of frames whose checksum the kernel had left to the card and the receiver completed.
    pub fn completed_checksums(&self) -> u64 {
        self.completed_checksums
    }

    /// Takes up to `most` available frames, passes each to `each`, and returns their number. Without a free buffer it takes none:
    /// the frames stay in the ring.
    ///
    /// # Errors
    /// [`InterfaceError::Io`] if the ring is damaged.
    pub fn receive(
        &mut self,
        pool: &mut Pool,
        most: usize,
        entered_ns: u64,
        mut each: impl FnMut(Received),
    ) -> Result<usize, InterfaceError> {
        let mut taken = 0;
        while taken < most {
            if self.left == 0 && !self.next_block()? {
                break;
            }
            if self.left == 0 {
                self.hand_back();
                continue;
            }
            let Ok(mut blank) = pool.blank() else { break };
            let Some(frame) = self.frame() else { return Err(self.damaged()) };
            let next = frame.header.tp_next_offset as usize;
            let (bytes, tag) = (frame.bytes, frame.tag(self.link_type));
            let length = bytes.len() + tag.map_or(0, |_| TAG_BYTES);
            taken += 1;
            if length > pool.packet_bytes() {
                each(Received::TooLong);
            } else {
                let is_partial = frame.header.tp_status & libc::TP_STATUS_CSUMNOTREADY != 0;
                let description = Description {
                    timestamp_ns: u64::from(frame.header.tp_sec) * 1_000_000_000
                        + u64::from(frame.header.tp_nsec),
                    entered_ns,
                    original_length: frame.header.tp_len.saturating_add((length - bytes.len()) as u32),
                    link_type: self.link_type,
                };
                let room = &mut blank.room_mut()[..length];
                match tag {
                    None => room.copy_from_slice(bytes),
                    Some(tag) => {
                        let (macs, rest) = bytes.split_at(MACS_BYTES);
                        room[..MACS_BYTES].copy_from_slice(macs);
                        room[MACS_BYTES..MACS_BYTES + TAG_BYTES].copy_from_slice(&tag);
                        room[MACS_BYTES + TAG_BYTES..].copy_from_slice(rest);
                    }
                }
                if is_partial && description.original_length as usize == length {
                    let layout = Layout::of(self.link_type, room);
                    self.completed_checksums += u64::from(rewrite::complete_checksum(room, &layout));
                }
                each(Received::Packet(blank.fill(length, description)));
            }
            self.at = self.at.saturating_add(next);
            self.left -= 1;
            if self.left == 0 {
                self.hand_back();
            }
        }
        Ok(taken)
    }

    /// Returns the start of the current block.
    fn block_start(&self) -> *mut u8 {
        // SAFETY: `block` is below `blocks`, and the ring has `blocks * block_bytes` bytes.
        unsafe { self.ring.as_mut_ptr().add(self.block * self.block_bytes) }
    }

    /// Returns the word that says who owns the block.
    fn status(&self) -> &AtomicU32 {
        const AT: usize =
            offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, block_status);
        // SAFETY: a block begins with its description, on a page boundary; both sides access this word atomically.
        unsafe { AtomicU32::from_ptr(self.block_start().add(AT).cast()) }
    }

    #[inline]
    fn is_handed_over(&self) -> bool {
        // Acquire: the kernel's writes into the block happen before this.
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Starts the next block; returns `false` if the kernel still owns it.
    fn next_block(&mut self) -> Result<bool, InterfaceError> {
        if !self.is_handed_over() {
            return Ok(false);
        }
        // SAFETY: a block begins with its description, on a page boundary, and is ours until it is handed back.
        let header = unsafe {
            let block = self.block_start().cast::<libc::tpacket_block_desc>();
            ptr::read(&raw const (*block).hdr.bh1)
        };
        self.at = header.offset_to_first_pkt as usize;
        self.left = header.num_pkts;
        Ok(true)
    }

    /// Hands the block back to the kernel and moves on to the next.
    fn hand_back(&mut self) {
        self.left = 0;
        // Release: reads of the block happen before the kernel writes into it.
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.block = if self.block + 1 == self.blocks { 0 } else { self.block + 1 };
    }

    /// Returns the next frame of the block; `None` if it does not lie inside.
    #[inline]
    fn frame(&self) -> Option<Frame<'_>> {
        let room = self.block_bytes.checked_sub(self.at)?;
        if room < size_of::<libc::tpacket3_hdr>() {
            return None;
        }
        // SAFETY: `at` and a header after it lie inside the block, which is ours until it is handed back.
        let (start, header) = unsafe {
            let start = self.block_start().add(self.at).cast_const();
            (start, start.cast::<libc::tpacket3_hdr>().read_unaligned())
        };
        let (offset, length) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        if offset > room || length > room - offset {
            return None;
        }
        // SAFETY: the bytes lie inside the block, as checked above; the kernel does not write them until the block is
        // handed back, which takes `&mut self` and so ends this borrow.
        let bytes = unsafe { slice::from_raw_parts(start.add(offset), length) };
        Some(Frame { header, bytes })
    }

    #[cold]
    fn damaged(&mut self) -> InterfaceError {
        self.left = 0;
        let cause = io::Error::new(io::ErrorKind::InvalidData, "a frame lies outside of its block");
        self.raw.failed("read its ring", cause)
    }
}

/// A frame in the ring.
struct Frame<'r> {
    header: libc::tpacket3_hdr,
    bytes: &'r [u8],
}

impl Frame<'_> {
    /// Returns the VLAN tag that was removed from the frame, with its EtherType.
    #[inline]
    fn tag(&self, link_type: LinkType) -> Option<[u8; TAG_BYTES]> {
        if self.header.tp_status & libc::TP_STATUS_VLAN_VALID == 0
            || link_type != LinkType::ETHERNET
            || self.bytes.len() < MACS_BYTES
        {
            return None;
        }
        let has_type = self.header.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
        let ethertype = if has_type { self.header.hv1.tp_vlan_tpid } else { ETHERTYPE_VLAN };
        let [first, second] = ethertype.to_be_bytes();
        // The control information has 16 bits.
        let [third, fourth] = (self.header.hv1.tp_vlan_tci as u16).to_be_bytes();
        Some([first, second, third, fourth])
    }
}
