//! The settings of a DPDK device, shared by flows and plants.

use tapeworks_nic::{DpdkOptions, MAX_DPDK_BUFFERS};
use tapeworks_runtime::config::{Reading, Section};

/// Reads the keys that flows and plants share.
pub(crate) fn read_dpdk(reading: &mut Reading<'_>, section: &mut Section<'_>, options: &mut DpdkOptions) {
    let arguments = section.each(reading, "arguments", "an argument of DPDK's environment", |text| {
        (!text.is_empty()).then(|| text.to_owned())
    });
    options.arguments = arguments.unwrap_or_default();
    let buffers = section.integer(reading, "device_buffers", 64..=MAX_DPDK_BUFFERS as usize);
    options.buffers = buffers.map_or(options.buffers, |(buffers, _)| buffers as u32);
    let descriptors = section.integer(reading, "descriptors", 32..=32_768);
    options.descriptors = descriptors.map_or(options.descriptors, |(descriptors, _)| descriptors as u16);
}
