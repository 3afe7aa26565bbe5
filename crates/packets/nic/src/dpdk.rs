//! Frames of a device that the program reads itself, bypassing the kernel (DPDK).
//!
//! The options are in every build; the receiver needs the feature `dpdk`.

#[cfg(feature = "dpdk")]
pub(super) mod receiver;
#[cfg(all(test, feature = "dpdk"))]
mod tests;

/// Maximum number of buffers of a device.
pub const MAX_DPDK_BUFFERS: u32 = 1 << 20;

/// Options for reading a device through DPDK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DpdkOptions {
    /// The device as DPDK names it, with its device options: a card (`0000:01:00.0`) bound to a DPDK driver, or a virtual device
    /// (`net_af_packet0,iface=eth1`, `net_pcap0,rx_pcap=day.pcap`).
    pub device: String,
    /// Arguments for DPDK's environment, as its programs take them (`--no-huge`, `-m`, `256`). They apply once per process.
    pub arguments: Vec<String>,
    /// Buffers of 2,048 bytes for frames that wait: at most [`MAX_DPDK_BUFFERS`]. A frame may take several.
    pub buffers: u32,
    /// Descriptors in the card's receive ring, as near as the device allows.
    pub descriptors: u16,
    /// Receives frames addressed to other machines as well. Otherwise frames to all multicast groups arrive.
    pub promiscuous: bool,
}

impl DpdkOptions {
    /// 16,384 buffers, 4,096 descriptors, promiscuous, no arguments.
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
