//! Order sessions over SoupBinTCP: [`SoupAcceptor`] is the server's end of a user's session, with its connections, and [`SoupInitiator`]
//! the client's end.

mod acceptor;
mod initiator;

pub use acceptor::SoupAcceptor;
pub use initiator::{
    CredentialsTooLong, SoupEvent, SoupInitiator, SoupInitiatorCounters, SoupInitiatorEnd,
    SoupInitiatorSettings, SoupPlace, SoupSendError,
};
pub use tapeworks_session::soupbintcp::SoupEnd;
