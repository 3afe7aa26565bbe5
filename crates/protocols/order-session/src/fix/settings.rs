//! The settings of a FIX session.

use tapeworks_fix_wire::IgnoredTags;

use super::schedule::Schedule;

const SECOND_NS: u64 = 1_000_000_000;

/// Which side sends the first Logon.
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
    /// Which side sends the first Logon.
    pub role: Role,
    /// BeginString (8): `FIX.4.2`, `FIX.4.4` or `FIXT.1.1`.
    pub begin_string: String,
    /// Our CompID, sent as SenderCompID (49).
    pub sender_comp_id: String,
    /// The peer's CompID.
    pub target_comp_id: String,
    /// SenderSubID (50), sent if set.
    pub sender_sub_id: Option<String>,
    /// TargetSubID (57), sent if set.
    pub target_sub_id: Option<String>,
    /// DefaultApplVerID (1137), FIXT only: `9` is 5.0 SP2. A peer with another version is refused.
    pub default_appl_ver_id: Option<String>,
    /// HeartBtInt (108) that an initiator requests, in seconds.
    pub heartbeat_s: u32,
    /// The longest HeartBtInt that an acceptor accepts, in seconds.
    pub longest_heartbeat_s: u32,
    /// Makes an acceptor refuse a HeartBtInt of 0, which disables heartbeats: it would never notice that a peer has vanished.
    pub needs_heartbeats: bool,
    /// How far SendingTime may be from the current time, in nanoseconds; `None` allows any.
    pub tolerance_ns: Option<u64>,
    /// Resets both sequence numbers to 1 on each Logon.
    pub resets_on_logon: bool,
    /// Resets both sequence numbers to 1 after each Logout.
    pub resets_on_logout: bool,
    /// Resets both sequence numbers to 1 after each disconnect.
    pub resets_on_disconnect: bool,
    /// User and password (553, 554) that an acceptor requires in a Logon, or that an initiator sends.
    pub credentials: Option<(String, String)>,
    /// How long a connection may take to log on, in nanoseconds.
    pub logon_timeout_ns: u64,
    /// How long the peer may take to answer a Logout, in nanoseconds.
    pub logout_timeout_ns: u64,
    /// How long the peer may take to close after we answer its Logout, in nanoseconds. With 0 we close immediately.
    pub close_timeout_ns: u64,
    /// Fields that the peer may send in a message body although the dictionary lacks them or does not allow them there.
    pub ignored_tags: IgnoredTags,
    /// Treats a field without a value as absent. Otherwise its message is rejected.
    pub ignores_empty_fields: bool,
    /// The most messages that one ResendRequest of ours covers; 0 is unlimited.
    pub resend_bound: u64,
    /// The longest message, in bytes.
    pub message_limit_bytes: usize,
    /// The most bytes of messages queued after a gap.
    pub queue_limit_bytes: usize,
    /// The most messages accepted in a second of the clock; `None` is unlimited.
    pub throttle_per_second: Option<u32>,
    /// The hours of the session; `None` is always open.
    pub schedule: Option<Schedule>,
    /// Answers a ResendRequest whose MsgSeqNum is too low, as some engines do, without counting it. Otherwise it ends
    /// the session, like any other message with a low number.
    pub answers_any_resend_request: bool,
    /// Resends a Reject (35=3) of an application message on request, because it is the answer to that message. FIX
    /// leaves this to the engine; some gap-fill every session message, and so does this one unless this is set.
    pub resends_rejects: bool,
    /// FIXT: sends DefaultApplVerID in a BusinessMessageReject, as some engines do.
    pub version_in_business_reject: bool,
}

impl Settings {
    /// Returns the default settings: 30-second heartbeats, SendingTime within 120 seconds, messages up to 64 KB.
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

    /// Returns whether this is FIXT, which versions the application separately from the session.
    #[must_use]
    pub fn is_fixt(&self) -> bool {
        self.begin_string.starts_with("FIXT")
    }
}
