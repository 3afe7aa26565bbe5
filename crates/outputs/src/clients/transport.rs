//! The bytes of a connection: TCP, or TLS over it.

use std::io::{self, Read, Write};
use std::net::Shutdown;

use tapeworks_runtime::world::Stream;

/// A connection that never blocks.
#[derive(Debug)]
pub(super) enum Transport<S> {
    Plain(S),
    #[cfg(feature = "tls")]
    Tls(Box<Encrypted<S>>),
}

impl<S: Stream> Transport<S> {
    pub(super) const fn stream(&mut self) -> &mut S {
        match self {
            Self::Plain(stream) => stream,
            #[cfg(feature = "tls")]
            Self::Tls(encrypted) => &mut encrypted.stream,
        }
    }

    /// Whether the TLS layer has no bytes to write.
    pub(super) fn is_settled(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            #[cfg(feature = "tls")]
            Self::Tls(encrypted) => !encrypted.session.wants_write(),
        }
    }

    /// Shuts the sending side.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        #[cfg(feature = "tls")]
        if let Self::Tls(encrypted) = self {
            if encrypted.session.is_handshaking() {
                // It waits for a greeting, as a client without TLS does.
                encrypted.refuse_plainly();
            } else {
                encrypted.session.send_close_notify();
                encrypted.settle()?;
            }
        }
        self.stream().shutdown(Shutdown::Write)
    }

    /// Writes the bytes of the TLS layer: of a handshake, and of encrypted records.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            #[cfg(feature = "tls")]
            Self::Tls(encrypted) => encrypted.settle(),
        }
    }
}

impl<S: Stream> Read for Transport<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(into),
            #[cfg(feature = "tls")]
            Self::Tls(encrypted) => encrypted.read(into),
        }
    }
}

impl<S: Stream> Write for Transport<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[io::IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write_vectored(slices),
            #[cfg(feature = "tls")]
            Self::Tls(encrypted) => encrypted.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The line for a client that does not speak TLS, in the form of the authentication's answers.
#[cfg(feature = "tls")]
const PLAIN_CLIENT: &[u8] = b"success=0|error=this port speaks TLS, and the client does not\n";

/// TLS over TCP.
#[cfg(feature = "tls")]
#[derive(Debug)]
pub(super) struct Encrypted<S> {
    stream: S,
    session: rustls::ServerConnection,
}

#[cfg(feature = "tls")]
impl<S: Stream> Encrypted<S> {
    pub(super) fn new(
        stream: S,
        config: std::sync::Arc<rustls::ServerConfig>,
    ) -> Result<Self, rustls::Error> {
        let mut session = rustls::ServerConnection::new(config)?;
        session.set_buffer_limit(Some(1 << 18));
        Ok(Self { stream, session })
    }

    /// Sends an error line to a client that does not speak TLS.
    fn refuse_plainly(&mut self) {
        // Without room for a line the client gets none.
        let _taken = self.stream.write(PLAIN_CLIENT);
    }

    fn settle(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.stream) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            let count = self.session.read_tls(&mut self.stream)?;
            let processed = self.session.process_new_packets();
            if let Err(rustls::Error::InvalidMessage(_)) = processed
                && self.session.is_handshaking()
            {
                self.refuse_plainly();
                return Err(io::ErrorKind::InvalidData.into());
            }
            // Sends the alert with the error.
            self.settle()?;
            processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if count == 0 {
                return Ok(0);
            }
        }
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.settle()?;
        if self.session.wants_write() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let written = self.session.writer().write_vectored(slices)?;
        self.settle()?;
        Ok(written)
    }
}
