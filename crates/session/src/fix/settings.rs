//! What a session of FIX is set to.

use tapeworks_wire::fix::IgnoredTags;

use super::schedule::Schedule;

const SECOND_NS: u64 = 1_000_000_000;

/// Which side begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Waits for a Logon.
    Acceptor,
    /// Sends the first Logon.
    Initiator,
}

/// The settings of one session.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which side begins.
    pub role: Role,
    /// BeginString (8): `FIX.4.2`, `FIX.4.4` or `FIXT.1.1`.
    pub begin_string: String,
    /// Our CompID: SenderCompID (49) of what is sent.
    pub sender_comp_id: String,
    /// The peer's CompID.
    pub target_comp_id: String,
    /// SenderSubID (50), sent if there is one.
    pub sender_sub_id: Option<String>,
    /// TargetSubID (57), sent if there is one.
    pub target_sub_id: Option<String>,
    /// DefaultApplVerID (1137), FIXT only: `9` is 5.0 SP2. A peer's other version is refused.
    pub default_appl_ver_id: Option<String>,
    /// HeartBtInt (108) that an initiator asks for, in seconds.
    pub heartbeat_s: u32,
    /// The longest HeartBtInt that an acceptor takes, in seconds.
    pub longest_heartbeat_s: u32,
    /// An acceptor refuses a HeartBtInt of 0, which is no heartbeats: a peer that has vanished would never be noticed.
    pub needs_heartbeats: bool,
    /// How far SendingTime may be from now, in nanoseconds; `None`: any.
    pub tolerance_ns: Option<u64>,
    /// Both numbers begin at 1 with each Logon.
    pub resets_on_logon: bool,
    /// Both numbers begin at 1 after each Logout.
    pub resets_on_logout: bool,
    /// Both numbers begin at 1 after each disconnect.
    pub resets_on_disconnect: bool,
    /// User and password that a Logon must have (553, 554), or that an initiator sends.
    pub credentials: Option<(String, String)>,
    /// How long a connection may take to log on, in nanoseconds.
    pub logon_timeout_ns: u64,
    /// How long the peer may take to answer a Logout, in nanoseconds.
    pub logout_timeout_ns: u64,
    /// How long the peer may take to close after our answer to its Logout, in nanoseconds. 0: we close at once.
    pub close_timeout_ns: u64,
    /// Fields that the peer may send in the body of a message though the dictionary does not have them, or not for this message.
    pub ignored_tags: IgnoredTags,
    /// A field without a value counts as absent. Else its message is rejected.
    pub ignores_empty_fields: bool,
    /// The most messages of one ResendRequest that is sent; 0: all.
    pub resend_bound: u64,
    /// The longest message, in bytes.
    pub message_limit_bytes: usize,
    /// The most bytes of messages that are kept while those before them are missing.
    pub queue_limit_bytes: usize,
    /// The most messages in a second of the clock; `None`: any.
    pub throttle_per_second: Option<u32>,
    /// When the session runs; `None`: always.
    pub schedule: Option<Schedule>,
    /// A ResendRequest whose MsgSeqNum is too low is answered, as some engines do; it is not counted. Else it ends the session, as any
    /// other message with a number that is too low.
    pub answers_any_resend_request: bool,
    /// A Reject (35=3) of a message of the application is sent again when the peer requests it; it is the answer to that message. FIX leaves
    /// that to the engine; some fill every message of the session, and so does this one without the setting.
    pub resends_rejects: bool,
    /// FIXT: a BusinessMessageReject has DefaultApplVerID, as that of some engines has.
    pub version_in_business_reject: bool,
}

impl Settings {
    /// Settings with the defaults: heartbeats of 30 seconds, SendingTime within 120, messages of at most 64 KB.
    #[must_use]
    pub fn new(role: Role, begin_string: &str, sender_comp_id: &str, target_comp_id: &str) -> Self {
        Self {
            role,
            begin_string: begin_string.to_owned(),
            sender_comp_id: sender_comp_id.to_owned(),
            target_comp_id: target_comp_id.to_owned(),
            sender_sub_id: None,
            target_sub_id: None,
            default_appl_ver_id: (begin_string == "FIXT.1.1").then(|| "9".to_owned()),
            heartbeat_s: 30,
            longest_heartbeat_s: 3_600,
            needs_heartbeats: false,
            tolerance_ns: Some(120 * SECOND_NS),
            resets_on_logon: false,
            resets_on_logout: false,
            resets_on_disconnect: false,
            credentials: None,
            logon_timeout_ns: 10 * SECOND_NS,
            logout_timeout_ns: 2 * SECOND_NS,
            close_timeout_ns: 2 * SECOND_NS,
            ignored_tags: IgnoredTags::default(),
            ignores_empty_fields: false,
            resend_bound: 0,
            message_limit_bytes: 64 << 10,
            queue_limit_bytes: 1 << 20,
            throttle_per_second: None,
            schedule: None,
            answers_any_resend_request: false,
            resends_rejects: false,
            version_in_business_reject: false,
        }
    }

    /// FIXT carries the application's version apart from the session's.
    #[must_use]
    pub fn is_fixt(&self) -> bool {
        self.begin_string.starts_with("FIXT")
    }
}
