//! Lists of nodes from another allocator.

use std::alloc::{GlobalAlloc, Layout};

use tapeworks_lab::catalogue::allocators::LISTS;
use tapeworks_lab::measure::Peers;

pub const LIST_PEERS: Peers = Peers {
    technique: "allocators",
    experiment: LISTS,
    add: |setup, variants| variants.add("mimalloc 0.1.52", move || listed(&mimalloc::MiMalloc, setup.items)),
};

struct Node {
    value: u64,
    weight: u64,
    next: *mut Node,
}

/// A list is built by pushing in front, walked, and taken down from the front.
fn listed(allocator: &impl GlobalAlloc, nodes: u64) -> u64 {
    let layout = Layout::new::<Node>();
    let mut first: *mut Node = std::ptr::null_mut();
    for value in 0..nodes {
        // SAFETY: the layout has a size; the node is written before it is read, and released below with its layout.
        first = unsafe {
            let node = allocator.alloc(layout).cast::<Node>();
            assert!(!node.is_null(), "there is memory");
            node.write(Node { value, weight: value & 7, next: first });
            node
        };
    }
    let mut sum = 0u64;
    let mut at = first;
    while !at.is_null() {
        // SAFETY: nodes of the list are alive.
        let node = unsafe { &*at };
        sum = sum.wrapping_add(node.value ^ node.weight);
        at = node.next;
    }
    while !first.is_null() {
        // SAFETY: as above; each is released once.
        unsafe {
            let next = (*first).next;
            allocator.dealloc(first.cast(), layout);
            first = next;
        }
    }
    sum
}
