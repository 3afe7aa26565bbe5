//! A signal while a flow is being built: nothing runs, and no output is left behind. The flag that says so is one of the
//! process, so this test is a program of its own.

#![allow(clippy::unwrap_used, missing_docs)]

use std::ops::ControlFlow;

use tapeworks_capture::stop;
use tapeworks_flow::builder::OpenError;
use tapeworks_service::flow::{self, FlowError};
use tapeworks_service::flow_config;

#[test]
fn a_flow_that_is_stopped_while_it_is_built_does_not_run_and_leaves_no_output() {
    let folder = std::env::temp_dir().join(format!("tapeworks-flow-stop-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let out = folder.join("out.pcap");
    let text = format!(
        "[[stage]]\nname = \"in\"\ntype = \"udp_reader\"\nlisten = \"127.0.0.1:0\"\n\
         [[stage]]\nname = \"out\"\ntype = \"capture_writer\"\nfile = \"{}\"\n\
         [[edge]]\nfrom = \"in\"\nto = \"out\"\n",
        out.display()
    );
    let config = flow_config::parse("flow.toml", &text).unwrap();
    stop::request();
    let ended = flow::run(&config, |_, _| ControlFlow::Continue(()));
    assert!(matches!(ended, Err(FlowError::Open(OpenError::Stopped))), "{ended:?}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    std::fs::remove_dir(&folder).unwrap();
}
