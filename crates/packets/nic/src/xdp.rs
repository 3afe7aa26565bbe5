//! Frames of a network interface before the kernel's network stack sees them (AF_XDP).
//!
//! The options are in every build; the receiver needs the feature `af-xdp`.

#[cfg(feature = "af-xdp")]
pub(super) mod receiver;

/// Where the program that selects the frames runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum XdpMode {
    /// In the driver if it supports that, otherwise in the kernel.
    #[default]
    Auto,
    /// In the kernel, with every driver, after the kernel has allocated its buffer ("generic").
    Skb,
    /// In the driver.
    Native,
}

impl XdpMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Skb, Self::Native];

    /// Returns its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Skb => "skb",
            Self::Native => "native",
        }
    }
}

/// Maximum number of frames in the memory shared with the kernel.
pub const MAX_XDP_FRAMES: u32 = 1 << 16;

/// Options for reading an interface through AF_XDP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XdpOptions {
    /// The interface's name.
    pub interface: String,
    /// The receive queue, from 0. Frames of other queues go to the kernel's stack as usual.
    pub queue: u32,
    /// Where the program runs.
    pub mode: XdpMode,
    /// Number of frames in the memory shared with the kernel: a power of two, at most [`MAX_XDP_FRAMES`].
    pub frames: u32,
}

impl XdpOptions {
    /// The first queue, in the driver if it supports that, with memory for 4,096 frames.
    pub fn new(interface: impl Into<String>) -> Self {
        Self { interface: interface.into(), queue: 0, mode: XdpMode::Auto, frames: 4096 }
    }
}
