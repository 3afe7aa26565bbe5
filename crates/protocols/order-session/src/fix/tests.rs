//! Session behavior, one test per rule. The peer writes bytes like a client; answers are compared field by field.

use std::sync::Arc;

use proptest::prelude::*;
use tapeworks_fix_wire::order_entry::SCHEMA;
use tapeworks_fix_wire::{Fields, Framing, IgnoredTags, Writer, message_type, next_message};

use super::*;

const START_NS: u64 = 1_795_426_200_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// The fields of an order after its ClOrdID.
const ORDER: &str = "21=1|40=1|54=1|55=INTC|60=20261123-15:30:00|";

/// Echoes every application message except execution reports.
#[derive(Default)]
struct Echo {
    seen: Vec<String>,
    logons: usize,
    refuses_resend: bool,
}

impl Application for Echo {
    fn message(
        &mut self,
        received: &Received<'_>,
        link: &mut Link,
        store: &mut dyn Store,
        now_ns: u64,
    ) -> Verdict {
        self.seen.push(String::from_utf8_lossy(received.field(11).unwrap_or_default()).into_owned());
        if matches!(received.message_type, b"8" | b"c" | b"AE") {
            return Verdict::UnsupportedType;
        }
        if received.message_type != b"D" {
            return Verdict::Taken;
        }
        let sent = link.send(store, now_ns, received.message_type, &[], |writer| {
            for (tag, value) in received.message.fields().filter(|(t, _)| [11, 21, 40, 54, 55].contains(t)) {
                writer.text(tag, value);
            }
        });
        if sent.is_ok() { Verdict::Taken } else { Verdict::Refused(4, "not now") }
    }

    fn logged_on(&mut self, _link: &mut Link, _store: &mut dyn Store, _now_ns: u64) {
        self.logons += 1;
    }

    fn may_resend(&mut self, _message: &[u8]) -> bool {
        !self.refuses_resend
    }
}

/// A session and its peer.
struct Pair {
    session: Session,
    store: MemoryStore,
    application: Echo,
    now_ns: u64,
    next: u64,
    begin_string: String,
    peer: &'static str,
}

fn settings() -> Settings {
    Settings::new(Role::Acceptor, "FIX.4.4", "ISLD", "TW")
}

impl Pair {
    fn new(settings: Settings) -> Self {
        Self::with_store(settings, MemoryStore::new(1 << 20, START_NS))
    }

    fn with_store(settings: Settings, store: MemoryStore) -> Self {
        let begin_string = settings.begin_string.clone();
        let next = store.next_incoming();
        let session = Session::new(settings, Arc::new(Dictionary::from_schema(&SCHEMA)), START_NS);
        Self {
            session,
            store,
            application: Echo::default(),
            now_ns: START_NS,
            next,
            begin_string,
            peer: "TW",
        }
    }

    fn logged_on() -> Self {
        let mut pair = Self::new(settings());
        pair.log_on();
        pair
    }

    fn log_on(&mut self) {
        assert_eq!(self.say("A", "98=0|108=30|"), ["A|34=1|98=0|108=30"]);
        assert!(self.session.is_logged_on());
    }

    /// Reconnects with the same store.
    fn reconnected(self) -> Self {
        Self::with_store(self.session.settings().clone(), self.store)
    }

    /// Builds a message from its sequence number, extra header fields and body.
    fn message(&self, kind: &str, sequence: u64, header: &str, body: &str) -> Vec<u8> {
        self.message_at(kind, sequence, header, body, self.now_ns)
    }

    fn message_at(&self, kind: &str, sequence: u64, header: &str, body: &str, sent_ns: u64) -> Vec<u8> {
        let mut buffer = vec![0; 8_192];
        let mut writer = Writer::begin(&mut buffer, self.begin_string.as_bytes(), kind.as_bytes());
        writer.number(34, sequence).text(49, self.peer.as_bytes()).timestamp(52, sent_ns).text(56, b"ISLD");
        for field in header.split('|').chain(body.split('|')).filter(|field| !field.is_empty()) {
            let (tag, value) = field.split_once('=').unwrap();
            writer.copied(tag.parse().unwrap(), value.replace('^', "\x01").as_bytes());
        }
        writer.finish().unwrap().to_vec()
    }

    fn give(&mut self, bytes: &[u8]) -> Vec<String> {
        self.session.receive(bytes, &mut self.store, &mut self.application, self.now_ns);
        self.answers()
    }

    /// Sends the peer's next message and returns the answers.
    fn say(&mut self, kind: &str, body: &str) -> Vec<String> {
        let message = self.message(kind, self.next, "", body);
        self.next += 1;
        self.give(&message)
    }

    /// Sends a message with any sequence number.
    fn say_as(&mut self, kind: &str, sequence: u64, header: &str, body: &str) -> Vec<String> {
        let message = self.message(kind, sequence, header, body);
        self.give(&message)
    }

    fn wait(&mut self, seconds: u64) -> Vec<String> {
        let mut answers = Vec::new();
        for _ in 0..seconds {
            self.now_ns += SECOND_NS;
            self.session.tick(&mut self.store, &mut self.application, self.now_ns);
            answers.extend(self.answers());
        }
        answers
    }

    /// Takes the session's output: type, number and body of each message, without CompIDs and times.
    fn answers(&mut self) -> Vec<String> {
        let output = self.session.output().to_vec();
        self.session.sent(output.len());
        let (mut rest, mut answers) = (output.as_slice(), Vec::new());
        while !rest.is_empty() {
            let Framing::Message { length } = next_message(rest, 1 << 20) else { panic!("no message") };
            let (message, behind) = rest.split_at(length);
            let mut text = String::from_utf8_lossy(message_type(message)).into_owned();
            for field in Fields::new(message).map(Result::unwrap) {
                if ![8, 9, 10, 35, 49, 52, 56, 122].contains(&field.tag) {
                    text += &format!(
                        "|{}={}",
                        field.tag,
                        String::from_utf8_lossy(field.value).replace('\x01', "^")
                    );
                }
            }
            answers.push(text);
            rest = behind;
        }
        answers
    }

    fn end(&self) -> Option<End> {
        self.session.over().cloned()
    }

    /// Asserts that the sequence numbers match on both sides.
    fn assert_in_step(&mut self) {
        let outgoing = self.store.next_outgoing();
        assert_eq!(self.say("1", "112=HELLO|"), [format!("0|34={outgoing}|112=HELLO")]);
    }

    fn order(&mut self, id: &str) -> Vec<String> {
        self.say("D", &format!("11={id}|{ORDER}"))
    }
}

fn echoed(sequence: u64, id: &str) -> String {
    format!("D|34={sequence}|11={id}|21=1|40=1|54=1|55=INTC")
}

/// A store that writes but fails to read.
struct Blind(MemoryStore);

impl Store for Blind {
    fn next_outgoing(&self) -> u64 {
        self.0.next_outgoing()
    }

    fn next_incoming(&self) -> u64 {
        self.0.next_incoming()
    }

    fn created_ns(&self) -> u64 {
        self.0.created_ns()
    }

    fn keep(&mut self, sequence: u64, message: &[u8]) -> Result<(), StoreError> {
        self.0.keep(sequence, message)
    }

    fn set_next_outgoing(&mut self, sequence: u64) -> Result<(), StoreError> {
        self.0.set_next_outgoing(sequence)
    }

    fn set_next_incoming(&mut self, sequence: u64) -> Result<(), StoreError> {
        self.0.set_next_incoming(sequence)
    }

    fn read(&self, _: u64, _: &mut Vec<u8>) -> Result<bool, StoreError> {
        Err(StoreError::Failed("no descriptor".to_owned()))
    }

    fn reset(&mut self, now_ns: u64) -> Result<(), StoreError> {
        self.0.reset(now_ns)
    }

    fn unsent_from(&mut self) -> &mut Option<u64> {
        self.0.unsent_from()
    }
}

// ---- logon -----------------------------------------------------------------------------------------------

#[test]
fn a_valid_logon_is_answered_with_its_interval() {
    let mut pair = Pair::new(settings());
    assert_eq!(pair.say("A", "98=0|108=17|"), ["A|34=1|98=0|108=17"]);
    assert!(pair.session.is_logged_on());
    assert_eq!(pair.application.logons, 1);
    pair.assert_in_step();
}

#[test]
fn a_logon_that_is_too_high_is_answered_and_the_gap_asked_for() {
    let mut pair = Pair::new(settings());
    assert_eq!(pair.say_as("A", 5, "", "98=0|108=30|"), ["A|34=1|98=0|108=30", "2|34=2|7=1|16=0"]);
    assert_eq!(pair.say_as("4", 1, "43=Y|122=20261123-09:29:59|", "123=Y|36=6|"), [""; 0]);
    pair.next = 6;
    pair.assert_in_step();
}

#[test]
fn a_logon_that_is_too_low_is_refused_with_the_numbers() {
    let mut store = MemoryStore::new(1 << 20, START_NS);
    store.set_next_incoming(5).unwrap();
    let mut pair = Pair::with_store(settings(), store);
    let answers = pair.say_as("A", 2, "", "98=0|108=30|");
    assert_eq!(answers, ["5|34=1|58=MsgSeqNum too low, expecting 5 but received 2"]);
    assert!(matches!(pair.end(), Some(End::Refused(_))));
}

#[test]
fn a_first_message_that_is_no_good_logon_closes_the_connection_without_an_answer() {
    let refused = |change: &dyn Fn(&mut Pair) -> Vec<u8>| {
        let mut pair = Pair::new(settings());
        let bytes = change(&mut pair);
        assert_eq!(pair.give(&bytes), [""; 0]);
        assert!(matches!(pair.end(), Some(End::Refused(_))), "{:?}", pair.end());
        assert_eq!((pair.store.next_incoming(), pair.store.next_outgoing()), (1, 1), "nothing is counted");
    };
    const LOGON: &str = "98=0|108=30|";
    refused(&|pair| pair.message("0", 1, "", ""));
    refused(&|pair| {
        pair.peer = "WT";
        pair.message("A", 1, "", LOGON)
    });
    refused(&|pair| {
        let text = String::from_utf8(pair.message("A", 1, "", LOGON)).unwrap().replace("56=ISLD", "56=DLSI");
        let sum = tapeworks_fix_wire::checksum(&text.as_bytes()[..text.len() - 7]);
        format!("{}10={sum:03}\x01", &text[..text.len() - 7]).into_bytes()
    });
    refused(&|pair| pair.message_at("A", 1, "", LOGON, START_NS - 86_401 * SECOND_NS));
    refused(&|pair| {
        pair.begin_string = "FIX.4.2".to_owned();
        pair.message("A", 1, "", LOGON)
    });
    refused(&|pair| {
        String::from_utf8(pair.message("A", 1, "", LOGON))
            .unwrap()
            .replace("\x019=", "\x019=1")
            .replace("9=1", "9=")
            .replacen("9=", "9=0", 1)
            .replace("108=30", "108=3")
            .into_bytes()
    });
}

#[test]
fn a_logon_of_a_clock_that_is_wrong_by_minutes_gets_the_reason_and_uses_up_no_number() {
    for wrong_s in [121, 3_600] {
        for sent_ns in [START_NS - wrong_s * SECOND_NS, START_NS + wrong_s * SECOND_NS] {
            let mut pair = Pair::new(settings());
            let logon = pair.message_at("A", 1, "", "98=0|108=30|", sent_ns);
            assert_eq!(pair.give(&logon), ["5|34=1|58=SendingTime is too far from now"]);
            assert!(matches!(pair.end(), Some(End::Refused(_))));
            assert_eq!((pair.store.next_incoming(), pair.store.next_outgoing()), (1, 1));
        }
    }
}

#[test]
fn a_logon_that_expects_messages_that_were_never_sent_is_refused_with_the_numbers() {
    for (wanted, answer) in
        [(1, "A|34=1|98=0|108=30"), (2, "5|34=1|58=NextExpectedMsgSeqNum too high, the next is 1 and not 2")]
    {
        let mut pair = Pair::new(settings());
        assert_eq!(pair.say("A", &format!("98=0|108=30|789={wanted}|")), [answer]);
        if wanted > 1 {
            let mut again = pair.reconnected();
            assert_eq!(again.say("A", &format!("98=0|108=30|789={wanted}|")), [answer]);
        }
    }
}

#[test]
fn a_logon_with_encryption_or_a_strange_interval_is_refused_with_the_reason() {
    for (body, text) in [
        ("98=1|108=30|", "EncryptMethod is not supported"),
        ("98=0|108=99999|", "HeartBtInt is out of range"),
        ("98=0|108=-1|", "HeartBtInt is out of range"),
        ("108=30|", "Required tag missing"),
    ] {
        let mut pair = Pair::new(settings());
        assert_eq!(pair.say("A", body), [format!("5|34=1|58={text}")]);
        assert!(matches!(pair.end(), Some(End::Refused(_))));
    }
}

#[test]
fn fixt_needs_the_version_of_the_application() {
    let fixt = || Settings::new(Role::Acceptor, "FIXT.1.1", "ISLD", "TW");
    let mut pair = Pair::new(fixt());
    assert_eq!(pair.say("A", "98=0|108=30|"), [""; 0]);
    assert_eq!(pair.end(), Some(End::Refused("no DefaultApplVerID".to_owned())));
    let mut pair = Pair::new(fixt());
    assert_eq!(pair.say("A", "98=0|108=30|1137=9|"), ["A|34=1|98=0|108=30|1137=9"]);
    let mut pair = Pair::new(fixt());
    assert_eq!(pair.say("A", "98=0|108=30|1137=7|"), ["5|34=1|58=DefaultApplVerID is not supported"]);
}

#[test]
fn a_password_is_required_if_one_is_set() {
    let with = |body: &str| {
        let credentials = Some(("me".to_owned(), "secret".to_owned()));
        let mut pair = Pair::new(Settings { credentials, ..settings() });
        pair.say("A", body);
        pair.session.is_logged_on()
    };
    assert!(with("98=0|108=30|553=me|554=secret|"));
    assert!(!with("98=0|108=30|553=me|554=secreT|"));
    assert!(!with("98=0|108=30|554=secret|"));
    assert!(!with("98=0|108=30|"));
}

#[test]
fn a_reset_flag_begins_both_numbers_at_one_in_a_logon_and_later() {
    let mut pair = Pair::logged_on();
    pair.order("a");
    pair.next = 1;
    assert_eq!(pair.say("A", "98=0|108=30|141=Y|"), ["A|34=1|98=0|108=30|141=Y"]);
    assert_eq!((pair.store.next_incoming(), pair.store.next_outgoing()), (2, 2));
    pair.assert_in_step();
    let mut pair = pair.reconnected();
    pair.next = 1;
    assert_eq!(pair.say("A", "98=0|108=30|141=Y|"), ["A|34=1|98=0|108=30|141=Y"]);
    pair.assert_in_step();
}

#[test]
fn settings_reset_the_numbers_at_logon_logout_or_disconnect() {
    let mut pair = Pair::new(Settings { resets_on_logout: true, ..settings() });
    pair.log_on();
    pair.say("5", "");
    assert_eq!((pair.store.next_incoming(), pair.store.next_outgoing()), (1, 1));
    let mut pair = Pair::new(Settings { resets_on_disconnect: true, ..settings() });
    pair.log_on();
    pair.session.closed(&mut pair.store, pair.now_ns);
    assert_eq!((pair.store.next_incoming(), pair.store.next_outgoing()), (1, 1));
    let mut pair = Pair::new(Settings { resets_on_logon: true, ..settings() });
    pair.log_on();
    pair.order("a");
    let mut pair = pair.reconnected();
    pair.next = 1;
    pair.log_on();
}

#[test]
fn a_connection_without_a_logon_is_closed() {
    let mut pair = Pair::new(settings());
    pair.give(b"8=FIX.4.4\x019=");
    pair.wait(9);
    assert_eq!(pair.end(), None);
    pair.wait(1);
    assert_eq!(pair.end(), Some(End::NoLogon));
}

// ---- sequence numbers ------------------------------------------------------------------------------------

#[test]
fn a_gap_is_asked_for_once_and_what_came_behind_it_is_taken_in_order() {
    let mut pair = Pair::logged_on();
    assert_eq!(pair.say_as("1", 4, "", "112=four|"), ["2|34=2|7=2|16=0"]);
    assert_eq!(pair.say_as("1", 5, "", "112=five|"), [""; 0]);
    let dup = "43=Y|122=20261123-09:29:59|";
    assert_eq!(pair.say_as("D", 2, dup, &format!("11=two|{ORDER}")), [echoed(3, "two")]);
    let answers = pair.say_as("D", 3, dup, &format!("11=three|{ORDER}"));
    assert_eq!(answers, [echoed(4, "three"), "0|34=5|112=four".to_owned(), "0|34=6|112=five".to_owned()]);
    assert_eq!(pair.application.seen, ["two", "three"]);
    pair.next = 6;
    pair.assert_in_step();
}

#[test]
fn a_gap_is_asked_for_in_parts_if_a_bound_is_set_and_again_if_nothing_comes() {
    let mut pair = Pair::new(Settings { resend_bound: 2, ..settings() });
    pair.log_on();
    assert_eq!(pair.say_as("0", 6, "", ""), ["2|34=2|7=2|16=3"]);
    assert_eq!(pair.say_as("4", 2, "43=Y|122=20261123-09:29:59|", "123=Y|36=4|"), ["2|34=3|7=4|16=5"]);
    let again = pair.wait(30);
    assert!(again.contains(&"2|34=4|7=4|16=5".to_owned()), "{again:?}");
    pair.say_as("4", 4, "43=Y|122=20261123-09:29:59|", "123=Y|36=6|");
    pair.next = 7;
    let outgoing = pair.store.next_outgoing();
    assert_eq!(pair.say("1", "112=x|"), [format!("0|34={outgoing}|112=x")]);
}

#[test]
fn a_number_that_is_too_low_ends_the_session_unless_it_is_a_duplicate() {
    let mut pair = Pair::logged_on();
    pair.order("a");
    let dup = "43=Y|122=20261123-09:29:59|";
    assert_eq!(pair.say_as("D", 2, dup, &format!("11=a|{ORDER}")), [""; 0]);
    assert_eq!((pair.application.seen.len(), pair.session.counters().duplicates), (1, 1));
    let answers = pair.say_as("D", 2, "", &format!("11=a|{ORDER}"));
    assert_eq!(answers, ["5|34=3|58=MsgSeqNum too low, expecting 3 but received 2"]);
    assert!(pair.end().is_some());
}

#[test]
fn a_duplicate_that_was_not_received_is_taken() {
    let mut pair = Pair::logged_on();
    let answers = pair.say_as("D", 2, "43=Y|122=20261123-09:29:59|", &format!("11=a|{ORDER}"));
    assert_eq!(answers, [echoed(2, "a")]);
}

#[test]
fn a_duplicate_needs_a_time_of_its_first_sending_which_is_not_later() {
    let mut pair = Pair::logged_on();
    pair.order("a");
    let answers = pair.say_as("D", 2, "43=Y|", &format!("11=a|{ORDER}"));
    assert_eq!(answers, ["3|34=3|45=2|58=Required tag missing|371=122|372=D|373=1"]);
    pair.assert_in_step();
    let answers = pair.say_as("D", 2, "43=Y|122=20991123-15:30:00|", &format!("11=a|{ORDER}"));
    assert_eq!(answers, ["3|34=5|45=2|58=SendingTime accuracy problem|372=D|373=10", "5|34=6"]);
    assert_eq!(pair.say("5", ""), [""; 0]);
    assert_eq!(pair.end(), Some(End::LoggedOut));
}

#[test]
fn wrong_comp_ids_and_times_are_rejected_and_end_the_session() {
    let mut pair = Pair::logged_on();
    pair.peer = "WT";
    assert_eq!(pair.order("a"), ["3|34=2|45=2|58=CompID problem|372=D|373=9", "5|34=3"]);
    pair.peer = "TW";
    pair.say("5", "");
    assert_eq!((pair.end(), pair.store.next_incoming()), (Some(End::LoggedOut), 4));
    for early_ns in [START_NS - 121 * SECOND_NS, START_NS + 121 * SECOND_NS] {
        let mut pair = Pair::logged_on();
        let message = pair.message_at("0", 2, "", "", early_ns);
        assert_eq!(
            pair.give(&message),
            ["3|34=2|45=2|58=SendingTime accuracy problem|372=0|373=10", "5|34=3"]
        );
        pair.wait(2);
        assert_eq!(pair.end(), Some(End::NoLogout));
    }
}

#[test]
fn another_begin_string_ends_the_session() {
    let mut pair = Pair::logged_on();
    pair.begin_string = "FIX.4.2".to_owned();
    assert_eq!(pair.say_as("1", 2, "", "112=x|"), ["5|34=2|58=Incorrect BeginString"]);
    pair.begin_string = "FIX.4.4".to_owned();
    pair.say_as("5", 3, "", "");
    assert_eq!(pair.end(), Some(End::LoggedOut));
}

#[test]
fn a_gap_fill_moves_the_number_forward_only() {
    let mut pair = Pair::logged_on();
    assert_eq!(pair.say_as("4", 2, "", "123=Y|36=20|"), [""; 0]);
    pair.next = 20;
    pair.assert_in_step();
    assert_eq!(pair.say_as("4", 30, "", "123=Y|36=40|"), ["2|34=3|7=21|16=0"], "a gap is asked for first");
    let answers = pair.say_as("4", 21, "", "123=Y|36=5|");
    assert_eq!(
        answers,
        ["3|34=4|45=21|58=Value is incorrect (out of range) for this tag|371=36|372=4|373=5"]
    );
    assert_eq!(pair.say_as("4", 2, "43=Y|", "123=Y|36=20|"), [""; 0]);
    assert_eq!(pair.store.next_incoming(), 22);
    let answers = pair.say_as("4", 2, "", "123=Y|36=20|");
    assert_eq!(answers, ["5|34=5|58=MsgSeqNum too low, expecting 22 but received 2"]);
}

#[test]
fn a_reset_takes_a_greater_number_counts_an_equal_one_and_rejects_a_lesser_one() {
    let mut pair = Pair::logged_on();
    assert_eq!(pair.say_as("4", 0, "", "36=25|"), [""; 0]);
    pair.next = 25;
    pair.assert_in_step();
    assert_eq!(pair.say_as("4", 0, "", "36=26|123=N|"), [""; 0]);
    assert_eq!(pair.session.counters().needless_resets, 1);
    let answers = pair.say_as("4", 0, "", "36=1|123=N|");
    assert_eq!(answers, ["3|34=3|45=0|58=Value is incorrect (out of range) for this tag|372=4|373=5"]);
    pair.assert_in_step();
}

// ---- resends ---------------------------------------------------------------------------------------------

#[test]
fn messages_are_resent_as_duplicates_and_those_of_the_session_are_gap_filled_joined() {
    let mut pair = Pair::logged_on();
    for _ in 0..3 {
        pair.assert_in_step();
    }
    pair.order("five");
    pair.order("six");
    pair.assert_in_step();
    pair.order("eight");
    let dup = |sequence: u64, id: &str| echoed(sequence, id).replacen("|11", "|43=Y|11", 1);
    let fill = |sequence: u64, next: u64| format!("4|34={sequence}|43=Y|36={next}|123=Y");
    assert_eq!(pair.say("2", "7=2|16=4|"), [fill(2, 5)]);
    assert_eq!(pair.say("2", "7=2|16=6|"), [fill(2, 5), dup(5, "five"), dup(6, "six")]);
    let all = [fill(1, 5), dup(5, "five"), dup(6, "six"), fill(7, 8), dup(8, "eight")];
    assert_eq!(pair.say("2", "7=1|16=0|"), all);
    assert_eq!(pair.say("2", "7=1|16=999|"), all);
    assert_eq!(pair.say("2", "7=5|16=5|"), [dup(5, "five")]);
    assert_eq!(pair.say("2", "7=100|16=0|"), [""; 0]);
    pair.application.refuses_resend = true;
    assert_eq!(pair.say("2", "7=1|16=0|"), [fill(1, 9)], "stale messages are filled");
    assert_eq!(pair.session.link().messages_resent, 9);
    pair.assert_in_step();
}

#[test]
fn a_reject_of_an_application_message_is_sent_again_only_if_set() {
    for resends_rejects in [false, true] {
        let mut pair = Pair::new(Settings { resends_rejects, ..settings() });
        pair.log_on();
        let of_order = pair.say("D", "11=a|");
        assert_eq!(of_order, ["3|34=2|45=2|58=Required tag missing|371=54|372=D|373=1"]);
        pair.say("0", "44=1|");
        let again = of_order[0].replacen("|45", "|43=Y|45", 1);
        let expected = match resends_rejects {
            false => vec!["4|34=1|43=Y|36=4|123=Y".to_owned()],
            true => {
                vec!["4|34=1|43=Y|36=2|123=Y".to_owned(), again, "4|34=3|43=Y|36=4|123=Y".to_owned()]
            }
        };
        assert_eq!(pair.say("2", "7=1|16=0|"), expected);
        pair.assert_in_step();
    }
}

#[test]
fn a_request_whose_number_is_too_low_is_answered_only_if_set() {
    let mut pair = Pair::logged_on();
    pair.order("a");
    let answers = pair.say_as("2", 2, "", "7=1|16=0|");
    assert_eq!(answers, ["5|34=3|58=MsgSeqNum too low, expecting 3 but received 2"]);
    let mut pair = Pair::new(Settings { answers_any_resend_request: true, ..settings() });
    pair.log_on();
    pair.order("a");
    let answers = pair.say_as("2", 2, "", "7=1|16=0|");
    assert_eq!(answers, ["4|34=1|43=Y|36=2|123=Y".to_owned(), echoed(2, "a").replacen("|11", "|43=Y|11", 1)]);
    assert_eq!(pair.store.next_incoming(), 3, "it is not counted");
    pair.assert_in_step();
}

#[test]
fn a_request_while_a_resend_goes_on_loses_nothing_of_either() {
    let mut pair = Pair::logged_on();
    for index in 0..1_000 {
        pair.order(&format!("order-number-{index}"));
    }
    for range in ["7=2|16=900|", "7=901|16=0|"] {
        let request = pair.message("2", pair.next, "", range);
        pair.next += 1;
        pair.session.receive(&request, &mut pair.store, &mut pair.application, pair.now_ns);
    }
    let mut numbers = std::collections::BTreeSet::new();
    while !pair.session.output().is_empty() {
        numbers.extend(pair.answers().iter().map(|answer| answer.split('|').nth(1).unwrap().to_owned()));
        // No time passes in between.
        assert_eq!(pair.session.has_to_resend(), numbers.len() < 1_000);
        pair.session.resend(&mut pair.store, &mut pair.application, pair.now_ns);
    }
    assert_eq!(numbers.len(), 1_000);
}

#[test]
fn a_resend_after_a_restart_has_the_first_sending_time() {
    let mut pair = Pair::logged_on();
    pair.order("a");
    let mut pair = pair.reconnected();
    pair.now_ns += 60 * SECOND_NS;
    pair.say("A", "98=0|108=30|");
    let message = pair.message("2", pair.next, "", "7=2|16=2|");
    pair.session.receive(&message, &mut pair.store, &mut pair.application, pair.now_ns);
    let output = String::from_utf8_lossy(pair.session.output()).replace('\x01', "|");
    assert!(
        output.contains("|43=Y|49=ISLD|52=20261123-09:31:00.000|56=TW|122=20261123-09:30:00.000|11=a|"),
        "{output}"
    );
}

#[test]
fn a_resend_of_a_clock_that_was_set_back_was_not_first_sent_later() {
    let mut pair = Pair::logged_on();
    pair.order("a");
    let mut pair = pair.reconnected();
    pair.now_ns -= 60 * SECOND_NS;
    pair.say("A", "98=0|108=30|");
    let message = pair.message("2", pair.next, "", "7=2|16=2|");
    pair.session.receive(&message, &mut pair.store, &mut pair.application, pair.now_ns);
    let output = String::from_utf8_lossy(pair.session.output()).replace('\x01', "|");
    assert!(
        output.contains("|43=Y|49=ISLD|52=20261123-09:29:00.000|56=TW|122=20261123-09:29:00.000|11=a|"),
        "{output}"
    );
}

#[test]
fn both_sides_may_ask_for_a_resend_at_once() {
    let mut pair = Pair::logged_on();
    pair.order("two");
    pair.order("three");
    assert_eq!(pair.say_as("0", 7, "", ""), ["2|34=4|7=4|16=0"]);
    let resent = pair.say_as("2", 8, "", "7=2|16=3|");
    assert_eq!(resent.len(), 2);
    for sequence in 4..7 {
        assert_eq!(pair.say_as("0", sequence, "43=Y|122=20261123-09:29:59|", ""), [""; 0]);
    }
    assert_eq!(pair.store.next_incoming(), 9, "the request is not answered twice");
}

#[test]
fn a_long_resend_goes_on_as_the_output_is_sent() {
    let mut pair = Pair::logged_on();
    for index in 0..1_000 {
        pair.order(&format!("order-number-{index}"));
    }
    let request = pair.message("2", pair.next, "", "7=2|16=0|");
    pair.session.receive(&request, &mut pair.store, &mut pair.application, pair.now_ns);
    let mut numbers = Vec::new();
    while !pair.session.output().is_empty() {
        assert!(pair.session.output().len() < (64 << 10) + 1_024, "bounded");
        numbers.extend(pair.answers().iter().map(|answer| answer.split('|').nth(1).unwrap().to_owned()));
        pair.session.tick(&mut pair.store, &mut pair.application, pair.now_ns);
    }
    let expected: Vec<_> = (2..1_002).map(|sequence| format!("34={sequence}")).collect();
    assert_eq!(numbers, expected);
}

// ---- bugs of other engines ---------------------------------------------------------------------------------

/// Returns the fields of a message that a resend must not change.
fn body_of(message: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let of_header = [8, 9, 10, 34, 43, 52, 122];
    let fields = Fields::new(message).map(Result::unwrap).filter(|field| !of_header.contains(&field.tag));
    fields.map(|field| (field.tag, field.value.to_vec())).collect()
}

// quickfixj#1081
#[test]
fn a_resent_message_has_the_fields_and_values_of_the_first_in_their_order() {
    let mut pair = Pair::logged_on();
    let parts: &[(u32, &[u8])] = &[
        (11, b"id"),
        (453, b"2"),
        (448, b"A"),
        (447, b"D"),
        (448, b"B"),
        (452, b"1"),
        (55, b"INTC"),
        (54, b"1"),
        (354, b"5"),
        (355, b"a\x01=\x01b"),
        (58, b" spaces and \xc3\xa9 "),
        (9_000, b"a field of the user"),
    ];
    pair.session
        .link()
        .send(&mut pair.store, START_NS, b"D", &[(115, b"them"), (129, b"desk")], |writer| {
            for (tag, value) in parts {
                writer.copied(*tag, value);
            }
        })
        .unwrap();
    let first = pair.session.output().to_vec();
    pair.session.sent(first.len());
    let request = pair.message("2", pair.next, "", "7=2|16=2|");
    pair.session.receive(&request, &mut pair.store, &mut pair.application, pair.now_ns + SECOND_NS);
    let again = pair.session.output().to_vec();
    assert_eq!(
        next_message(&again, 1 << 20),
        Framing::Message { length: again.len() },
        "length and sum are right"
    );
    assert_ne!(first, again);
    assert_eq!(body_of(&first), body_of(&again));
}

// artio#529
#[test]
fn each_of_three_restarts_replays_each_message_once() {
    let mut pair = Pair::logged_on();
    pair.order("a");
    for restart in 0..3u64 {
        pair.session.closed(&mut pair.store, pair.now_ns);
        pair = pair.reconnected();
        let logon = pair.store.next_outgoing();
        pair.say("A", "98=0|108=30|");
        let fill = |sequence: u64, next: u64| format!("4|34={sequence}|43=Y|36={next}|123=Y");
        let answers = pair.say("2", "7=1|16=0|");
        let expected = [fill(1, 2), echoed(2, "a").replacen("|11", "|43=Y|11", 1), fill(3, logon + 1)];
        assert_eq!(answers, expected, "restart {restart}");
    }
}

// artio#545
#[test]
fn a_session_goes_on_at_once_after_the_gap_of_its_logon_is_filled() {
    let mut pair = Pair::logged_on();
    pair.order("a");
    pair.session.closed(&mut pair.store, pair.now_ns);
    let mut pair = pair.reconnected();
    assert_eq!(pair.say_as("A", 5, "", "98=0|108=30|"), ["A|34=3|98=0|108=30", "2|34=4|7=3|16=0"]);
    let dup = "43=Y|122=20261123-09:29:59|";
    assert_eq!(pair.say_as("D", 3, dup, &format!("11=three|{ORDER}")), [echoed(5, "three")]);
    assert_eq!(pair.say_as("4", 4, dup, "123=Y|36=6|"), [""; 0]);
    pair.next = 6;
    assert_eq!(pair.order("six"), [echoed(6, "six")], "without waiting for a heartbeat");
}

// artio#503
#[test]
fn a_resend_that_crosses_our_own_request_ends_at_the_number_of_what_comes_next() {
    let mut pair = Pair::logged_on();
    pair.order("a");
    pair.session.closed(&mut pair.store, pair.now_ns);
    let mut pair = pair.reconnected();
    // Each side lacks the other's last message.
    assert_eq!(pair.say_as("A", 4, "", "98=0|108=30|"), ["A|34=3|98=0|108=30", "2|34=4|7=3|16=0"]);
    let answers = pair.say_as("2", 5, "", "7=2|16=0|");
    assert_eq!(answers, [echoed(2, "a").replacen("|11", "|43=Y|11", 1), "4|34=3|43=Y|36=5|123=Y".to_owned()]);
    assert_eq!(pair.say_as("4", 3, "43=Y|122=20261123-09:29:59|", "123=Y|36=6|"), [""; 0]);
    pair.next = 6;
    assert_eq!(pair.order("b"), [echoed(5, "b")], "as the last gap fill said");
}

// artio#576
#[test]
fn a_resend_that_ends_in_heartbeats_is_filled_to_its_end() {
    let mut pair = Pair::logged_on();
    pair.order("a");
    pair.assert_in_step();
    pair.assert_in_step();
    let dup = echoed(2, "a").replacen("|11", "|43=Y|11", 1);
    let fill = "4|34=3|43=Y|36=5|123=Y".to_owned();
    for range in ["7=2|16=4|", "7=2|16=0|", "7=2|16=10|"] {
        assert_eq!(pair.say("2", range), [dup.clone(), fill.clone()], "{range}");
    }
    assert_eq!(pair.say("2", "7=3|16=4|"), [fill]);
    pair.assert_in_step();
}

// IronFix#9
#[test]
fn a_gap_fill_ahead_of_its_turn_moves_no_number_and_a_reset_does() {
    let mut pair = Pair::logged_on();
    assert_eq!(pair.say_as("4", 5, "", "123=Y|36=9|"), ["2|34=2|7=2|16=0"]);
    assert_eq!(pair.store.next_incoming(), 2, "what is missing is still missing");
    assert_eq!(pair.say_as("4", 2, "43=Y|122=20261123-09:29:59|", "123=Y|36=5|"), [""; 0]);
    assert_eq!(pair.store.next_incoming(), 9, "then its turn comes");
    assert_eq!(pair.say_as("4", 500, "", "123=N|36=12|"), [""; 0]);
    assert_eq!(pair.store.next_incoming(), 12);
}

// IronFix#1
#[test]
fn numbers_go_on_past_32_bits_and_do_not_wrap() {
    let mut store = MemoryStore::new(1 << 20, START_NS);
    let last = u64::from(u32::MAX);
    store.set_next_incoming(last).unwrap();
    store.set_next_outgoing(last).unwrap();
    let mut pair = Pair::with_store(settings(), store);
    assert_eq!(pair.say("A", "98=0|108=30|"), [format!("A|34={last}|98=0|108=30")]);
    assert_eq!(pair.order("a"), [echoed(last + 1, "a")]);
    let answers = pair.say("2", &format!("7={}|16=0|", last + 1));
    assert_eq!(answers, [echoed(last + 1, "a").replacen("|11", "|43=Y|11", 1)]);
    // A number above the highest valid one is never accepted as the next.
    for body in [format!("36={}|", i64::MAX as u64 + 1), format!("123=Y|36={}|", i64::MAX as u64 + 1)] {
        let expected = pair.store.next_incoming();
        let refused = pair.say("4", &body);
        assert!(refused[0].contains("|371=36|"), "{refused:?}");
        assert!(pair.store.next_incoming() <= expected + 1, "{body}");
        pair.next = pair.store.next_incoming();
    }
    pair.next = i64::MAX as u64;
    assert_eq!(pair.say_as("4", 0, "", &format!("36={}|", i64::MAX)), [""; 0]);
    pair.assert_in_step();
    let beyond = pair.say_as("4", 0, "", &format!("36={}|", u64::MAX));
    assert!(beyond[0].contains("|371=36|"), "{beyond:?}");
    // The highest number is valid like any other. No number follows it.
    assert_eq!((pair.end(), pair.store.next_incoming()), (None, i64::MAX as u64 + 1));
    pair.say_as("0", i64::MAX as u64 + 1, "", "");
    assert!(matches!(pair.end(), Some(End::LoggedOut)), "{:?}", pair.end());
    for last in [i64::MAX as u64 + 1, u64::MAX] {
        let mut pair = Pair::new(settings());
        pair.say_as("A", last, "", "98=0|108=30|");
        assert!(matches!(pair.end(), Some(End::Refused(_))), "{:?}", pair.end());
    }
}

// quickfixj#399
#[test]
fn a_session_comes_back_in_step_once_a_full_disk_has_room() {
    let mut pair = Pair::logged_on();
    pair.order("a");
    pair.store.set_failing(true);
    pair.order("b");
    assert_eq!(pair.end(), Some(End::Store(StoreError::Full)));
    let mut pair = pair.reconnected();
    assert_eq!(pair.say("A", "98=0|108=30|"), [""; 0], "it stays full: nothing is answered or counted");
    let mut pair = pair.reconnected();
    pair.store.set_failing(false);
    // The order that was not accepted has number 3, so the peer's Logon has 4.
    assert_eq!(pair.say_as("A", 4, "", "98=0|108=30|"), ["A|34=3|98=0|108=30", "2|34=4|7=3|16=0"]);
    let answers = pair.say_as("D", 3, "43=Y|122=20261123-09:29:59|", &format!("11=b|{ORDER}"));
    assert_eq!(answers, [echoed(5, "b")]);
    assert_eq!(pair.say_as("4", 4, "43=Y|122=20261123-09:29:59|", "123=Y|36=5|"), [""; 0]);
    pair.next = 5;
    pair.assert_in_step();
}

// ---- heartbeats ------------------------------------------------------------------------------------------

#[test]
fn a_long_run_of_messages_of_the_session_is_filled_in_pieces() {
    let mut pair = Pair::logged_on();
    for _ in 0..5_000 {
        assert_eq!(pair.say("1", "112=X|").len(), 1);
    }
    let mut fills = pair.say("2", "7=1|16=0|");
    assert!((1..4).contains(&fills.len()), "others have their turn: {fills:?}");
    fills.extend(pair.wait(4));
    let mut next = 1;
    for fill in fills.iter().filter(|fill| fill.starts_with("4|")) {
        let behind = fill.strip_prefix(&format!("4|34={next}|43=Y|36=")).unwrap();
        next = behind.strip_suffix("|123=Y").unwrap().parse().unwrap();
    }
    assert_eq!(next, 5_002);
}

#[test]
fn a_store_that_could_not_be_read_keeps_what_comes_while_the_peer_is_away() {
    let mut pair = Pair::logged_on();
    pair.order("A");
    let mut store = Blind(pair.store.clone());
    let request = pair.message("2", pair.next, "", "7=1|16=0|");
    pair.session.receive(&request, &mut store, &mut pair.application, pair.now_ns);
    assert!(matches!(pair.end(), Some(End::Store(_))));
    let next = store.next_outgoing();
    let body = |writer: &mut Writer<'_>| _ = writer.text(11, b"A");
    assert_eq!(pair.session.link().send_or_keep(&mut store, pair.now_ns, b"8", body), Ok(next));
    assert_eq!(store.next_outgoing(), next + 1);
}

#[test]
fn heartbeats_fill_silence_and_a_dead_peer_is_tested_then_left() {
    let mut pair = Pair::new(settings());
    pair.say("A", "98=0|108=10|");
    assert_eq!(pair.wait(10), ["0|34=2"]);
    assert_eq!(pair.say("0", ""), [""; 0]);
    assert_eq!(pair.wait(10), ["0|34=3"]);
    assert_eq!(pair.wait(2), ["1|34=4|112=TEST"]);
    assert_eq!(pair.say("0", "112=TEST|"), [""; 0]);
    assert_eq!(pair.wait(12), ["0|34=5", "1|34=6|112=TEST"]);
    assert_eq!(pair.wait(11), [""; 0]);
    assert_eq!(pair.end(), None);
    pair.wait(1);
    assert_eq!(pair.end(), Some(End::TimedOut));
}

#[test]
fn an_interval_of_zero_has_no_heartbeats() {
    let mut pair = Pair::new(settings());
    pair.say("A", "98=0|108=0|");
    assert_eq!(pair.wait(1_000), [""; 0]);
    assert!(pair.session.is_logged_on());
    let mut pair = Pair::new(Settings { needs_heartbeats: true, ..settings() });
    assert_eq!(pair.say("A", "98=0|108=0|"), ["5|34=1|58=HeartBtInt is out of range"]);
    let mut pair = Pair::new(Settings { needs_heartbeats: true, ..settings() });
    assert_eq!(pair.say("A", "98=0|108=1|"), ["A|34=1|98=0|108=1"]);
}

// ---- garbled messages ------------------------------------------------------------------------------------

#[test]
fn garbled_messages_are_skipped_and_do_not_count() {
    let mut pair = Pair::logged_on();
    let good = pair.message("1", 2, "", "112=x|");
    let text = String::from_utf8(good.clone()).unwrap();
    let mut wrong_sum = good.clone();
    *wrong_sum.last_chunk_mut::<2>().unwrap() = [b'x', 1];
    let with_sum = |text: String| {
        let sum = tapeworks_fix_wire::checksum(&text.as_bytes()[..text.len() - 7]);
        format!("{}10={sum:03}\x01", &text[..text.len() - 7]).into_bytes()
    };
    let swapped = with_sum(text.replace("\x0135=1\x0134=2", "\x0134=2\x0135=1"));
    let named = with_sum(text.replace("49=TW", "4x=TW"));
    for garbled in [&b"\r\n junk "[..], &wrong_sum, &swapped, &named, &good[20..]] {
        assert_eq!(pair.give(garbled), [""; 0]);
    }
    assert!(pair.session.counters().garbled >= 5);
    assert_eq!(pair.give(&good), ["0|34=2|112=x"]);
    assert_eq!(pair.store.next_incoming(), 3);
}

#[test]
fn a_length_that_swallows_the_next_message_loses_both_and_both_are_asked_for() {
    let mut pair = Pair::logged_on();
    let first = pair.message("1", 2, "", "112=x|");
    let second = pair.message("1", 3, "", "112=y|");
    let text = String::from_utf8(first).unwrap();
    let length: usize = text.split('\x01').nth(1).unwrap().strip_prefix("9=").unwrap().parse().unwrap();
    let longer = text.replacen(&format!("\x019={length}\x01"), &format!("\x019={}\x01", length + 30), 1);
    let mut bytes = longer.into_bytes();
    bytes.extend_from_slice(&second);
    pair.give(&bytes);
    assert!(pair.session.counters().garbled > 0);
    pair.next = 2;
    pair.assert_in_step();
}

#[test]
fn bytes_may_come_in_pieces_of_any_size() {
    let mut whole = Pair::logged_on();
    let mut stream = whole.message("1", 2, "", "112=x|");
    stream.extend(whole.message("D", 3, "", &format!("11=a|{ORDER}354=3|355=a^b|")));
    let expected = whole.give(&stream);
    assert_eq!(expected.len(), 2);
    for size in [1, 2, 7, 64] {
        let mut pair = Pair::logged_on();
        let answers: Vec<_> = stream.chunks(size).flat_map(|piece| pair.give(piece)).collect();
        assert_eq!(answers, expected, "{size}");
    }
}

#[test]
fn a_message_over_the_limit_is_refused_without_being_kept() {
    let mut pair = Pair::new(Settings { message_limit_bytes: 500, ..settings() });
    pair.log_on();
    let long = pair.message("D", 2, "", &format!("11={}|{ORDER}", "x".repeat(600)));
    for piece in long.chunks(50) {
        pair.give(piece);
        assert!(pair.session.held_bytes().0 < 500);
    }
    let endless = vec![b'8'; 100_000];
    pair.give(&endless);
    assert!(pair.session.held_bytes().0 < 500);
    pair.assert_in_step();
}

#[test]
fn a_message_of_a_hundred_thousand_fields_is_one_reject() {
    let mut pair = Pair::new(Settings { message_limit_bytes: 1 << 20, ..settings() });
    pair.log_on();
    let mut buffer = vec![0; 1 << 20];
    let mut writer = Writer::begin(&mut buffer, b"FIX.4.4", b"0");
    writer.number(34, 2).text(49, b"TW").timestamp(52, START_NS).text(56, b"ISLD");
    for _ in 0..100_000 {
        writer.text(112, b"x");
    }
    let message = writer.finish().unwrap().to_vec();
    assert_eq!(pair.give(&message), ["3|34=2|45=2|58=Tag appears more than once|371=112|372=0|373=13"]);
    assert_eq!(pair.session.held_bytes(), (0, 0));
    pair.next = 3;
    pair.assert_in_step();
}

// ---- rejects ---------------------------------------------------------------------------------------------

#[test]
fn each_fault_is_rejected_with_its_reason_and_counts() {
    let order = |id: &str| format!("11={id}|{ORDER}");
    for (kind, body, expected) in [
        ("0", "999=HI|".to_owned(), "58=Invalid tag number|371=999|372=0|373=0"),
        ("0", "0=HI|".to_owned(), "58=Invalid tag number|371=0|372=0|373=0"),
        ("D", "11=a|".to_owned(), "58=Required tag missing|371=54|372=D|373=1"),
        ("0", "44=1|".to_owned(), "58=Tag not defined for this message type|371=44|372=0|373=2"),
        ("D", order("a") + "44=|", "58=Tag specified without a value|371=44|372=D|373=4"),
        ("D", order("a") + "59=Z|", "58=Value is incorrect (out of range) for this tag|371=59|372=D|373=5"),
        ("D", order("a") + "38=+200|", "58=Incorrect data format for value|371=38|372=D|373=6"),
        ("*", String::new(), "58=Invalid MsgType|372=*|373=11"),
        ("ZZ", String::new(), "58=Invalid MsgType|372=ZZ|373=11"),
        ("D", order("a") + "40=1|", "58=Tag appears more than once|371=40|372=D|373=13"),
        ("D", order("a") + "97=Y|", "58=Tag specified out of required order|371=97|372=D|373=14"),
        (
            "D",
            order("a") + "453=1|447=D|448=P|",
            "58=Repeating group fields out of order|371=447|372=D|373=15",
        ),
        (
            "D",
            order("a") + "453=2|448=P|447=D|",
            "58=Incorrect NumInGroup count for repeating group|371=453|372=D|373=16",
        ),
        // A wrong group count outranks an invalid value in the entries.
        (
            "D",
            order("a") + "453=2|448=P|447=D|452=x|",
            "58=Incorrect NumInGroup count for repeating group|371=453|372=D|373=16",
        ),
        (
            "D",
            order("a") + "453=1|448=P|447=D|452=x|",
            "58=Incorrect data format for value|371=452|372=D|373=6",
        ),
    ] {
        let mut pair = Pair::logged_on();
        assert_eq!(pair.say(kind, &body), [format!("3|34=2|45=2|{expected}")], "{kind} {body}");
        assert!(pair.application.seen.is_empty());
        pair.assert_in_step();
    }
}

#[test]
fn a_negative_tag_is_rejected_with_its_number() {
    let mut pair = Pair::logged_on();
    let text = String::from_utf8(pair.message("0", 2, "", "9=HI|")).unwrap().replace("\x019=HI", "\x01-1=H");
    let sum = tapeworks_fix_wire::checksum(&text.as_bytes()[..text.len() - 7]);
    let bytes = format!("{}10={sum:03}\x01", &text[..text.len() - 7]);
    assert_eq!(pair.give(bytes.as_bytes()), ["3|34=2|45=2|58=Invalid tag number|371=-1|372=0|373=0"]);
}

#[test]
fn a_missing_comp_id_is_a_missing_tag() {
    let mut pair = Pair::logged_on();
    let text = String::from_utf8(pair.message("0", 2, "", "")).unwrap();
    let body = text.replace("\x0156=ISLD", "");
    let length = body.find("\x0110=").unwrap() + 1 - (body.find("35=").unwrap());
    let start =
        format!("8=FIX.4.4\x019={length}\x01{}", &body[body.find("35=").unwrap()..body.find("10=").unwrap()]);
    let bytes = format!("{start}10={:03}\x01", tapeworks_fix_wire::checksum(start.as_bytes()));
    assert_eq!(pair.give(bytes.as_bytes()), ["3|34=2|45=2|58=Required tag missing|371=56|372=0|373=1"]);
}

#[test]
fn the_messages_of_fixt_know_no_field_of_the_application() {
    let part = |fields: &str, messages: &str, names: &[(u32, &str)]| {
        let names: String = names
            .iter()
            .map(|(tag, name)| format!("<field number='{tag}' name='{name}' type='STRING'/>"))
            .collect();
        let text = format!(
            "<fix><header>{fields}</header><trailer><field name='CheckSum'/></trailer>
             <messages>{messages}</messages><fields>{names}</fields></fix>"
        );
        Dictionary::from_xml(&text).unwrap()
    };
    let header = [(8, "B"), (9, "L"), (35, "T"), (34, "N"), (49, "S"), (56, "R"), (52, "I")];
    let fields: String = header.iter().map(|(_, name)| format!("<field name='{name}'/>")).collect();
    let session = "<message msgtype='0'/><message msgtype='A'><field name='E'/><field name='H'/><field name='V'/></message>";
    let mut names = header.to_vec();
    names.extend([(10, "CheckSum"), (98, "E"), (108, "H"), (1137, "V")]);
    let session = part(&fields, session, &names);
    let application = part(
        "",
        "<message msgtype='D'><field name='Unit'/></message>",
        &[(10, "CheckSum"), (999, "Unit"), (998, "More")],
    );
    let mut pair = Pair::new(Settings::new(Role::Acceptor, "FIXT.1.1", "ISLD", "TW"));
    pair.session = Session::new(
        pair.session.settings().clone(),
        Arc::new(session.with_application(application)),
        START_NS,
    );
    pair.say("A", "98=0|108=30|1137=9|");
    assert_eq!(pair.say("0", "999=HI|"), ["3|34=2|45=2|58=Invalid tag number|371=999|372=0|373=0"]);
    let answers = pair.say("D", "998=HI|");
    assert_eq!(answers, ["3|34=3|45=3|58=Tag not defined for this message type|371=998|372=D|373=2"]);
    let answers = pair.say("0", "98=0|");
    assert_eq!(answers, ["3|34=4|45=4|58=Tag not defined for this message type|371=98|372=0|373=2"]);
}

#[test]
fn reasons_that_an_old_version_lacks_are_left_out() {
    let mut pair = Pair::new(Settings::new(Role::Acceptor, "FIX.4.2", "ISLD", "TW"));
    pair.log_on();
    let answers = pair.say("D", &format!("11=a|{ORDER}40=1|"));
    assert_eq!(answers, ["3|34=2|45=2|58=Tag appears more than once|371=40|372=D"]);
}

#[test]
fn fields_in_another_order_are_taken_and_groups_of_no_entries_too() {
    let mut pair = Pair::logged_on();
    assert_eq!(pair.say("D", "40=1|55=INTC|60=20261123-15:30:00|54=1|453=0|21=1|11=a|").len(), 1);
    assert_eq!(pair.application.seen, ["a"]);
}

#[test]
fn ignored_tags_pass_the_dictionary_in_bodies_and_no_others_do() {
    let with = |tags: Vec<u32>, user_defined| {
        let mut pair = Pair::new(Settings { ignored_tags: IgnoredTags { tags, user_defined }, ..settings() });
        pair.log_on();
        pair
    };
    let order = |more: &str| format!("11=a|{ORDER}{more}");
    let is_taken = |pair: &mut Pair, more: &str| pair.say("D", &order(more))[0].starts_with("D|");
    let mut listed = with(vec![9_999, 320], false);
    assert!(is_taken(&mut listed, "9999=x|"));
    assert!(is_taken(&mut listed, "9999=|"), "whatever its value");
    assert!(is_taken(&mut listed, "320=x|"));
    assert!(!is_taken(&mut listed, "453=1|448=P|9999=x|447=D|452=1|"), "not in an entry of a group");
    assert!(!is_taken(&mut listed, "9998=x|"));
    let mut of_users = with(Vec::new(), true);
    assert!(is_taken(&mut of_users, "5000=x|20001=y|"));
    assert!(!is_taken(&mut of_users, "4999=x|"));
    // Ignored tags do not apply to the header.
    let rejected = of_users.say_as("D", 4, "9999=x|", &order("97=Y|"));
    assert!(rejected[0].contains("371=97|372=D|373=14"), "{rejected:?}");
}

#[test]
fn a_type_that_the_application_does_not_take_is_a_business_reject() {
    let mut pair = Pair::logged_on();
    let answers = pair.say("8", "37=id|17=id|150=0|39=0|55=WLRI|54=1|151=100|14=0|6=0.0|");
    assert_eq!(answers, ["j|34=2|45=2|58=Unsupported Message Type|372=8|380=3"]);
    // An undeclared type is also a business reject, whatever its fields, but its header is checked.
    for (number, kind) in [(3, "c"), (4, "AE")] {
        let answers = pair.say(kind, "571=X|9999=|320=Q|");
        assert_eq!(
            answers,
            [format!("j|34={number}|45={number}|58=Unsupported Message Type|372={kind}|380=3")]
        );
    }
    let answers = pair.say_as("AE", 5, "43=Q|", "571=X|");
    assert!(answers[0].starts_with("3|34=5|45=5|") && answers[0].contains("371=43"), "{answers:?}");
    pair.next = 6;
    pair.assert_in_step();
}

#[test]
fn a_reject_reverses_the_routing_fields_that_have_values() {
    let mut pair = Pair::logged_on();
    let bad = format!("11=a|{ORDER}59=Z|");
    let answers =
        |pair: &mut Pair, header: &str| pair.say_as("D", pair.store.next_incoming(), header, &bad)[0].clone();
    assert!(answers(&mut pair, "115=JCD|116=CS|144=CHI|").starts_with("3|34=2|128=JCD|129=CS|145=CHI|45=2|"));
    assert!(answers(&mut pair, "128=JCD|129=CS|145=CHI|").starts_with("3|34=3|115=JCD|116=CS|144=CHI|45=3|"));
    assert!(
        answers(&mut pair, "115=JCD|116=|")
            .starts_with("3|34=4|128=JCD|45=4|58=Tag specified without a value|371=116|")
    );
}

#[test]
fn a_reject_and_an_unknown_heartbeat_are_taken_without_an_answer() {
    let mut pair = Pair::logged_on();
    assert_eq!(pair.say("3", "45=1|58=x|"), [""; 0]);
    assert_eq!(pair.say("0", "112=never asked|"), [""; 0]);
    pair.assert_in_step();
}

#[test]
fn a_message_that_is_rejected_inside_of_a_gap_does_not_stop_what_is_behind_it() {
    let mut pair = Pair::logged_on();
    assert_eq!(pair.say_as("1", 3, "", "112=HELLO1|"), ["2|34=2|7=2|16=0"]);
    let mut answers =
        pair.say_as("D", 2, "43=Y|122=20261123-09:29:59|", &format!("11=a|{ORDER}126=20040415|"));
    answers.extend(pair.say_as("1", 4, "", "112=HELLO2|"));
    let expected = [
        "3|34=3|45=2|58=Incorrect data format for value|371=126|372=D|373=6",
        "0|34=4|112=HELLO1",
        "0|34=5|112=HELLO2",
    ];
    assert_eq!(answers, expected);
}

// ---- logout ----------------------------------------------------------------------------------------------

#[test]
fn a_logout_is_answered_whatever_its_number_and_the_peer_may_close() {
    for sequence in [2, 11, 1] {
        let mut pair = Pair::logged_on();
        assert_eq!(pair.say_as("5", sequence, "", ""), ["5|34=2"]);
        assert_eq!(pair.end(), None, "the peer closes");
        assert_eq!(pair.say_as("1", 3, "", "112=x|"), [""; 0], "nothing is taken any more");
        pair.wait(2);
        assert_eq!(pair.end(), Some(End::LoggedOut));
        assert_eq!(pair.store.next_incoming(), if sequence == 2 { 3 } else { 2 });
    }
    let mut pair = Pair::logged_on();
    pair.say("5", "");
    assert_eq!(pair.say("5", ""), [""; 0], "a peer that answers our answer gets none");
    assert_eq!(pair.store.next_incoming(), 4, "but its number is counted");
    pair.say_as("5", 9, "", "");
    assert_eq!(pair.store.next_incoming(), 4);
    let mut pair = Pair::new(Settings { close_timeout_ns: 0, ..settings() });
    pair.log_on();
    assert_eq!(pair.say("5", ""), ["5|34=2"]);
    assert_eq!(pair.end(), Some(End::LoggedOut), "or we close at once");
}

#[test]
fn a_session_comes_back_with_its_numbers_after_a_disconnect() {
    let mut pair = Pair::logged_on();
    pair.order("a");
    pair.session.closed(&mut pair.store, pair.now_ns);
    assert_eq!(pair.end(), Some(End::Closed));
    let mut pair = pair.reconnected();
    assert_eq!(pair.say("A", "98=0|108=30|"), ["A|34=3|98=0|108=30"]);
    pair.assert_in_step();
}

#[test]
fn a_schedule_resets_the_numbers_for_a_new_day_and_ends_the_old_one() {
    let schedule = Schedule::daily("UTC", "09:00:00", "09:31:00").unwrap();
    let scheduled = Settings { schedule: Some(schedule), ..settings() };
    let mut store = MemoryStore::new(1 << 20, START_NS - 86_400 * SECOND_NS);
    store.set_next_incoming(40).unwrap();
    let mut pair = Pair::with_store(scheduled, store);
    pair.next = 1;
    pair.log_on();
    pair.assert_in_step();
    let answers = pair.wait(60);
    assert!(answers.last().unwrap().ends_with("58=the session's hours are over"), "{answers:?}");
    let mut pair = pair.reconnected();
    pair.now_ns += 120 * SECOND_NS;
    assert!(pair.say_as("A", 1, "", "98=0|108=30|")[0].ends_with("58=outside of the session's hours"));
}

#[test]
fn reports_between_two_sessions_are_sent_in_the_next_one() {
    let keep = |pair: &mut Pair, id: &str| {
        let body = |writer: &mut Writer<'_>| _ = writer.text(37, id.as_bytes());
        pair.session.link().send_or_keep(&mut pair.store, pair.now_ns, b"8", body).unwrap()
    };
    // Was the peer disconnected when the session ended, and did the process restart since?
    for (was_away, begins_anew) in [(false, false), (true, false), (false, true)] {
        let schedule = Schedule::daily("UTC", "09:00:00", "09:31:00").unwrap();
        let mut pair = Pair::new(Settings { schedule: Some(schedule), ..settings() });
        pair.log_on();
        pair.order("a");
        if was_away {
            pair.session.closed(&mut pair.store, pair.now_ns);
            assert_eq!(keep(&mut pair, "away"), 3);
        } else {
            let answers = pair.wait(60);
            assert!(answers.last().unwrap().ends_with("58=the session's hours are over"), "{answers:?}");
        }
        pair.now_ns = START_NS + 3_600 * SECOND_NS;
        let mut wanted = vec!["A|34=1|98=0|108=30".to_owned()];
        if was_away {
            // Nothing shows that the peer had received it when the connection broke.
            wanted.push("D|34=2|97=Y|11=a|21=1|40=1|54=1|55=INTC".to_owned());
            wanted.push("8|34=3|37=away".to_owned());
        }
        for id in ["b", "c"] {
            keep(&mut pair, id);
            wanted.push(format!("8|34={}|37={id}", wanted.len() + 1));
        }
        if begins_anew {
            // A new process knows only what the stored messages show.
            *pair.store.unsent_from() = None;
        }
        // A message of the new session, before the peer has logged on.
        pair.now_ns = START_NS + 84_610 * SECOND_NS;
        keep(&mut pair, "d");
        wanted.push(format!("8|34={}|37=d", wanted.len() + 1));
        pair.now_ns = START_NS + 3_600 * SECOND_NS;
        // A Logon outside the session's hours consumes no number.
        let numbers = |pair: &Pair| (pair.store.next_outgoing(), pair.store.next_incoming());
        let (before, now_ns) = (numbers(&pair), pair.now_ns);
        let mut pair = pair.reconnected();
        pair.now_ns = now_ns;
        assert!(pair.say("A", "98=0|108=30|")[0].ends_with("58=outside of the session's hours"));
        assert_eq!(numbers(&pair), before);
        let mut pair = pair.reconnected();
        pair.now_ns = START_NS + 86_400 * SECOND_NS;
        pair.next = 1;
        // A refused Logon loses no messages.
        assert!(pair.say("A", "98=0|108=30|789=99|")[0].contains("NextExpectedMsgSeqNum"));
        let mut pair = pair.reconnected();
        (pair.now_ns, pair.next) = (START_NS + 86_400 * SECOND_NS, 1);
        assert_eq!(pair.say("A", "98=0|108=30|789=1|"), wanted);
        pair.assert_in_step();
        // The messages belong to the new session and are sent once.
        let resent = pair.say("2", "7=2|16=0|");
        // All except the Logon, plus a gap fill for the Heartbeat.
        assert_eq!((resent.len(), resent[0].contains("|43=Y|")), (wanted.len(), true), "{resent:?}");
        let now_ns = pair.now_ns;
        let mut pair = pair.reconnected();
        pair.now_ns = now_ns;
        assert_eq!(pair.say("A", "98=0|108=30|").len(), 1);
    }
}

#[test]
fn reports_that_may_have_been_sent_before_the_connection_broke_have_poss_resend_in_the_next_session() {
    let schedule = Schedule::daily("UTC", "09:00:00", "09:31:00").unwrap();
    let mut pair = Pair::new(Settings { schedule: Some(schedule), ..settings() });
    pair.log_on();
    pair.order("a");
    pair.say("1", "112=X|");
    pair.order("b");
    pair.session.closed(&mut pair.store, pair.now_ns);
    let mut pair = pair.reconnected();
    (pair.now_ns, pair.next) = (START_NS + 86_400 * SECOND_NS, 1);
    let answers = pair.say("A", "98=0|108=30|");
    let resent = ["A|34=1|98=0|108=30", "D|34=2|97=Y|11=b|21=1|40=1|54=1|55=INTC"];
    assert_eq!(answers, resent, "only what was sent after the last Heartbeat is in doubt");
}

#[test]
fn many_reports_of_the_pause_are_sent_as_the_output_has_room() {
    let schedule = Schedule::daily("UTC", "09:00:00", "09:31:00").unwrap();
    let store = MemoryStore::new(1 << 24, START_NS - 86_400 * SECOND_NS);
    let mut pair = Pair::with_store(Settings { schedule: Some(schedule), ..settings() }, store);
    for number in 0..2_000u64 {
        let body = |writer: &mut Writer<'_>| _ = writer.number(37, number).text(58, &[b'x'; 100]);
        pair.session.link().send_or_keep(&mut pair.store, START_NS - 3_600 * SECOND_NS, b"8", body).unwrap();
    }
    pair.next = 1;
    let mut answers = pair.say("A", "98=0|108=30|");
    assert!(answers.len() > 100 && answers.len() < 2_000, "{}", answers.len());
    while answers.len() < 2_001 {
        let more = pair.wait(1);
        assert!(!more.is_empty(), "{}", answers.len());
        answers.extend(more.into_iter().filter(|answer| answer.starts_with("8|")));
    }
    for (number, answer) in answers.iter().skip(1).enumerate() {
        let (sequence, order) = (format!("34={}|", number + 2), format!("37={number}|"));
        assert!(answer.contains(&sequence) && answer.contains(&order), "{answer}");
    }
}

// ---- limits ----------------------------------------------------------------------------------------------

#[test]
fn a_full_store_stops_the_session_and_no_number_is_lost() {
    let mut pair = Pair::logged_on();
    pair.order("a");
    pair.store.set_failing(true);
    assert_eq!(pair.order("b"), [""; 0]);
    assert_eq!(pair.end(), Some(End::Store(StoreError::Full)));
    assert_eq!((pair.store.next_outgoing(), pair.store.next_incoming()), (3, 3));
    assert_eq!(pair.application.seen, ["a"], "what was not counted is not taken either");
}

#[test]
fn too_many_messages_in_a_second_end_the_session() {
    let mut pair = Pair::new(Settings { throttle_per_second: Some(3), ..settings() });
    pair.log_on();
    pair.say("0", "");
    pair.say("0", "");
    assert_eq!(pair.say("0", ""), ["5|34=2|58=too many messages in a second"]);
    assert_eq!(pair.end(), Some(End::Throttled));
}

#[test]
fn messages_behind_a_gap_count_once_for_the_throttle() {
    let mut pair = Pair::new(Settings { throttle_per_second: Some(5), ..settings() });
    pair.log_on();
    for sequence in [3, 4, 5, 2] {
        pair.say_as("1", sequence, "", "112=X|");
    }
    assert_eq!((pair.end(), pair.store.next_incoming()), (None, 6));
}

#[test]
fn messages_that_were_asked_for_do_not_count_for_the_throttle_and_other_duplicates_do() {
    let mut pair = Pair::new(Settings { throttle_per_second: Some(3), ..settings() });
    pair.log_on();
    assert_eq!(pair.say_as("1", 9, "", "112=X|"), ["2|34=2|7=2|16=0"]);
    let again = "43=Y|122=20261123-15:30:00|";
    for sequence in 2..8 {
        pair.say_as("1", sequence, again, "112=X|");
    }
    pair.say_as("4", 8, again, "36=9|123=Y|");
    assert_eq!((pair.end(), pair.store.next_incoming()), (None, 10));
    pair.say_as("1", 2, again, "112=X|");
    assert_eq!(pair.end(), None);
    pair.say_as("1", 2, again, "112=X|");
    assert_eq!(pair.end(), Some(End::Throttled));
}

#[test]
fn messages_behind_a_gap_are_bounded() {
    let mut pair = Pair::new(Settings { queue_limit_bytes: 1_000, ..settings() });
    pair.log_on();
    let mut last = Vec::new();
    for sequence in 3..30 {
        last.extend(pair.say_as("D", sequence, "", &format!("11=a|{ORDER}")));
    }
    assert_eq!(last, ["2|34=2|7=2|16=0", "5|34=3|58=too many messages behind a gap"]);
    assert_eq!(pair.end(), Some(End::QueueFull));
}

// ---- initiator -------------------------------------------------------------------------------------------

#[test]
fn an_initiator_logs_on_sends_and_logs_out_with_an_acceptor() {
    let dictionary = Arc::new(Dictionary::from_schema(&SCHEMA));
    let credentials = Some(("u".to_owned(), "p".to_owned()));
    let ours = Settings {
        credentials: credentials.clone(),
        ..Settings::new(Role::Initiator, "FIX.4.4", "TW", "ISLD")
    };
    let mut client = Session::new(ours, dictionary.clone(), START_NS);
    let mut server = Session::new(Settings { credentials, ..settings() }, dictionary, START_NS);
    let (mut client_store, mut server_store) = (MemoryStore::new(1 << 20, 0), MemoryStore::new(1 << 20, 0));
    let (mut client_side, mut server_side) =
        (Echo { refuses_resend: false, ..Echo::default() }, Echo::default());
    let mut exchange = |client: &mut Session, client_store: &mut MemoryStore, client_side: &mut Echo| {
        for _ in 0..10 {
            let bytes = client.output().to_vec();
            client.sent(bytes.len());
            server.receive(&bytes, &mut server_store, &mut server_side, START_NS);
            let bytes = server.output().to_vec();
            server.sent(bytes.len());
            client.receive(&bytes, client_store, client_side, START_NS);
            if bytes.is_empty() {
                break;
            }
        }
        (server.is_logged_on(), server_side.seen.len())
    };
    assert_eq!(
        client.link().send(&mut client_store, START_NS, b"D", &[], |_| {}),
        Err(SendError::NotLoggedOn)
    );
    client.tick(&mut client_store, &mut client_side, START_NS);
    assert!(exchange(&mut client, &mut client_store, &mut client_side).0);
    assert!(client.is_logged_on());
    let sent = client.link().send(&mut client_store, START_NS, b"8", &[], |writer| {
        writer.text(37, b"o").text(17, b"e").text(150, b"0").text(39, b"0").text(54, b"1");
        writer.number(151, 0).number(14, 0).number(6, 0);
    });
    assert_eq!(sent, Ok(2));
    assert_eq!(exchange(&mut client, &mut client_store, &mut client_side).1, 1);
    assert_eq!(client_store.next_incoming(), 3, "the business reject came");
    client.log_out(&mut client_store, "done", START_NS);
    exchange(&mut client, &mut client_store, &mut client_side);
    assert_eq!(client.over(), Some(&End::LoggedOut));
    assert_eq!((client_store.next_incoming(), client_store.next_outgoing()), (4, 4));
}

proptest! {
    #[test]
    fn hostile_bytes_do_not_make_a_session_panic_or_grow(
        pieces in prop::collection::vec((0..12usize, 0u64..12, prop::collection::vec(any::<u8>(), 0..80)), 0..40),
    ) {
        let mut pair = Pair::new(Settings { queue_limit_bytes: 2_000, message_limit_bytes: 1_000, ..settings() });
        for (kind, sequence, bytes) in pieces {
            let text: String = bytes.iter().map(|byte| char::from(b' ' + byte % 90)).filter(|letter| !"|=^".contains(*letter)).collect();
            let message = match kind {
                0 => bytes,
                1 => pair.message("A", sequence, "", "98=0|108=30|"),
                2 => pair.message("2", sequence, "", &format!("7={sequence}|16=0|")),
                3 => pair.message("4", sequence, "43=Y|", &format!("36={}|123=Y|", sequence + 2)),
                4 => pair.message("4", sequence, "", &format!("36={}|", sequence + 3)),
                5 => pair.message("A", sequence, "", "98=0|108=30|141=Y|"),
                6 => pair.message("5", sequence, "", ""),
                _ => pair.message("D", sequence, "", &format!("11=x{text}|{ORDER}")),
            };
            pair.give(&message);
            pair.wait(1);
            let (input, queue) = pair.session.held_bytes();
            prop_assert!(input <= 1_000 && queue <= 2_000);
        }
    }
}
