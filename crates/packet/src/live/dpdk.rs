//! Frames of a device that the program reads itself, without the kernel (DPDK).
//!
//! The options are in every build; the receiver is part of a build with the feature `dpdk`.

#[cfg(feature = "dpdk")]
pub(super) mod receiver;
#[cfg(all(test, feature = "dpdk"))]
mod tests;

/// The most buffers that a device may have.
pub const MAX_DPDK_BUFFERS: u32 = 1 << 20;

/// Options for reading a device by DPDK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DpdkOptions {
    /// The device as DPDK names it, with its own options: a card (`0000:01:00.0`) that a driver of DPDK holds, or a virtual one
    /// (`net_af_packet0,iface=eth1`, `net_pcap0,rx_pcap=day.pcap`).
    pub device: String,
    /// Arguments for DPDK's environment, as its programs take them (`--no-huge`, `-m`, `256`). They count once for a process.
    pub arguments: Vec<String>,
    /// Buffers of 2,048 bytes, which frames wait in: at most [`MAX_DPDK_BUFFERS`]. A frame may take several.
    pub buffers: u32,
    /// Places of the card's receive ring, as near as the device can.
    pub descriptors: u16,
    /// Receives frames to other machines too. Otherwise those to all groups come.
    pub promiscuous: bool,
}

impl DpdkOptions {
    /// 16,384 buffers, 4,096 places in the card's ring, promiscuous, no arguments.
    pub fn new(device: impl Into<String>) -> Self {
        Self {
            device: device.into(),
            arguments: Vec::new(),
            buffers: 16_384,
            descriptors: 4_096,
            promiscuous: true,
        }
    }
}
