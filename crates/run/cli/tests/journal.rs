//! `tapeworks journal verify` and `repair` as a user meets them.

#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use support::{Folder, run, stdout};
use tapeworks_journal::{JournalOptions, JournalWriter, Record};

#[test]
fn damage_is_reported_repaired_with_a_copy_and_counted_as_lost_from_then_on() {
    let folder = Folder::new("journal");
    let journal = folder.path("journal");
    let (mut writer, _) = JournalWriter::open(journal.as_ref(), JournalOptions::default()).unwrap();
    for number in 0..100u64 {
        let time = 1_763_130_600_000_000_000 + number;
        writer.append(&Record { time, kind: 1, payload: &[7; 60], ..Record::default() }).unwrap();
    }
    drop(writer);
    let verified = run(&["journal", "verify", &journal]);
    assert_eq!(verified.status.code(), Some(0));
    assert!(stdout(&verified).ends_with("sound\n"), "{}", stdout(&verified));

    let segment = format!("{journal}/{:020}.journal", 0);
    let mut bytes = std::fs::read(&segment).unwrap();
    // In record 50, and behind the last one.
    bytes[64 + 50 * 100 + 70] ^= 1;
    bytes[64 + 100 * 100..][..30].fill(9);
    std::fs::write(&segment, bytes).unwrap();
    let snapshot = format!("{journal}/{:020}.snapshot", 90);
    std::fs::write(&snapshot, b"TAPESNPA and no more").unwrap();
    let verified = run(&["journal", "verify", &journal]);
    let report = stdout(&verified);
    assert_eq!(verified.status.code(), Some(3), "{report}");
    for expected in [
        "1 segment, 99 records, 5,940 bytes of payload",
        "\n1 record damaged or missing\n",
        "\n1 checkpoint, 0 of them sound\n",
        ".journal at byte 5064: record 50 is damaged: 100 bytes\n",
        ".journal at byte 10064: record 100 is torn or damaged: 30 bytes; no sound record follows\n",
        ".snapshot: it is too short\n",
    ] {
        assert!(report.contains(expected), "{expected:?} is not in {report}");
    }

    let repaired = run(&["journal", "repair", &journal]);
    let report = stdout(&repaired);
    assert_eq!(repaired.status.code(), Some(3), "{report}");
    assert!(report.contains("30 bytes of a torn record at the end cut off"), "{report}");
    assert!(report.contains("damage in 1 place: 1 record lost, and the journal says so now"), "{report}");
    assert!(report.contains(".damaged-5064\n") && report.contains(".torn-10064\n"), "{report}");
    assert_eq!(std::fs::read(format!("{journal}/{:020}.torn-10064", 0)).unwrap(), [9; 30]);
    assert_eq!(std::fs::read(format!("{journal}/{:020}.damaged-5064", 0)).unwrap().len(), 100);
    assert!(report.contains("1 checkpoint damaged") && report.contains(".snapshot.damaged\n"), "{report}");
    assert!(!std::path::Path::new(&snapshot).exists());
    let verified = run(&["journal", "verify", &journal]);
    let report = stdout(&verified);
    assert_eq!(verified.status.code(), Some(3), "{report}");
    assert!(report.contains("\n1 lost, as it says itself\n") && report.ends_with("\nsound\n"), "{report}");
    let again = run(&["journal", "repair", &journal]);
    assert_eq!(again.status.code(), Some(0));
    assert!(stdout(&again).ends_with("nothing to mend\n"));
}

#[test]
fn an_empty_folder_is_called_empty() {
    let folder = Folder::new("no-journal");
    for command in ["verify", "repair"] {
        let report = run(&["journal", command, &folder.path("")]);
        assert_eq!(report.status.code(), Some(0));
        assert!(stdout(&report).contains(": empty: no segment of a journal is in it"), "{}", stdout(&report));
        let missing = run(&["journal", command, &folder.path("missing")]);
        assert_eq!(missing.status.code(), Some(1));
    }
    assert!(folder.files().is_empty(), "nothing is made by looking");
}
