//! What inputs can be read as: a feed, or a [session](tapeworks_feed::sessions) on TCP streams.

use tapeworks_feed::Application;

pub use tapeworks_feed::sessions::{Session, sessions};

/// What inputs are read as, if the user specifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAs {
    /// Packets and streams belong to this feed and its sessions.
    Feed(Application),
    /// Streams belong to this session. Packets are recognized.
    Session(Session),
}

impl ReadAs {
    /// Returns the protocol with this name or alias; `None` if it is unknown or is always recognized.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        let session = || Session::by_name(name).filter(Session::may_be_named).map(Self::Session);
        Application::by_name(name).map(Self::Feed).or_else(session)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Feed(application) => application.spec().name,
            Self::Session(session) => session.name(),
        }
    }

    /// The feed.
    #[must_use]
    pub const fn feed(self) -> Option<Application> {
        match self {
            Self::Feed(application) => Some(application),
            Self::Session(_) => None,
        }
    }

    /// The session of the streams.
    pub(crate) fn session(self) -> Option<Session> {
        match self {
            Self::Feed(application) => {
                sessions().find(|session| session.market_schema() == Some(application.spec().schema))
            }
            Self::Session(session) => Some(session),
        }
    }
}

impl From<Application> for ReadAs {
    fn from(application: Application) -> Self {
        Self::Feed(application)
    }
}
