//! The byte stream of a connection: TCP, or TLS over TCP.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};

use crate::config::{Reading, Section};
#[cfg(feature = "tls")]
use crate::followed::Followed;
use crate::followed::FollowedFiles;
use crate::world::Stream;

/// The PEM files of a TLS server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The server's certificate, and any intermediates up to an authority that clients trust.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub private_key: PathBuf,
    /// Authorities, one of which must have signed a client's certificate. Without authorities, clients present no certificate.
    pub client_authorities: Option<PathBuf>,
}

impl TlsFiles {
    /// Reads `certificate`, `private_key` and `client_authorities` of a section, with paths relative to the configuration file.
    /// Returns `None` if they are missing or invalid.
    pub fn read(reading: &mut Reading<'_>, section: &mut Section<'_>, beside: &Path) -> Option<Self> {
        let mut path = |key| section.text(reading, key).map(|(path, _)| beside.join(path));
        let [certificate, private_key, client_authorities] =
            ["certificate", "private_key", "client_authorities"].map(&mut path);
        match (&certificate, &private_key) {
            (Some(_), None) => section.missing(reading, "private_key"),
            (None, Some(_)) => section.missing(reading, "certificate"),
            (None, None) if client_authorities.is_some() => section.missing(reading, "certificate"),
            _ => {}
        }
        Some(Self { certificate: certificate?, private_key: private_key?, client_authorities })
    }

    /// Loads the files.
    ///
    /// # Errors
    /// [`NoTls`].
    pub fn acceptor(&self) -> Result<Acceptor, NoTls> {
        #[cfg(feature = "tls")]
        return Ok(Acceptor::tls(self)?);
        #[cfg(not(feature = "tls"))]
        return Err(NoTls::NotBuilt);
    }

    /// Returns a connector to another machine by the same files. That machine must present a certificate for `name`, signed by
    /// one of the client authorities, and receives this machine's certificate.
    ///
    /// # Errors
    /// [`NoTls`].
    #[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "nothing is connected"))]
    pub fn connector(&self, name: &str) -> Result<Connector, NoTls> {
        #[cfg(feature = "tls")]
        {
            let authorities = self.client_authorities.as_ref().unwrap_or(&self.certificate);
            let identity = (self.certificate.as_path(), self.private_key.as_path());
            Ok(Connector::tls(authorities, Some(identity), name)?)
        }
        #[cfg(not(feature = "tls"))]
        Err(NoTls::NotBuilt)
    }
}

/// The PEM files of a TLS client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientTlsFiles {
    /// Authorities, one of which must have signed the server's certificate.
    pub authorities: PathBuf,
    /// The client's own certificate and key, for a server that requests them.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl ClientTlsFiles {
    /// Reads `authorities`, `certificate` and `private_key` of a section, with paths relative to the configuration file. Returns
    /// `None` if they are missing or invalid.
    pub fn read(reading: &mut Reading<'_>, section: &mut Section<'_>, beside: &Path) -> Option<Self> {
        let mut path = |key| section.text(reading, key).map(|(path, _)| beside.join(path));
        let [authorities, certificate, private_key] =
            ["authorities", "certificate", "private_key"].map(&mut path);
        match (&certificate, &private_key) {
            (Some(_), None) => section.missing(reading, "private_key"),
            (None, Some(_)) => section.missing(reading, "certificate"),
            (Some(_), Some(_)) if authorities.is_none() => section.missing(reading, "authorities"),
            _ => {}
        }
        Some(Self { authorities: authorities?, identity: certificate.zip(private_key) })
    }

    /// Loads the files. The server must present a certificate for `name`.
    ///
    /// # Errors
    /// [`NoTls`].
    #[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "nothing is connected"))]
    pub fn connector(&self, name: &str) -> Result<Connector, NoTls> {
        #[cfg(feature = "tls")]
        {
            let identity = self.identity.as_ref().map(|(chain, key)| (chain.as_path(), key.as_path()));
            Ok(Connector::tls(&self.authorities, identity, name)?)
        }
        #[cfg(not(feature = "tls"))]
        Err(NoTls::NotBuilt)
    }
}

/// The reason why TLS cannot be used.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum NoTls {
    /// The files are unusable.
    #[cfg(feature = "tls")]
    #[error(transparent)]
    Files(#[from] crate::tls::TlsError),
    /// The program was built without TLS.
    #[cfg(not(feature = "tls"))]
    #[error("this program was built without the feature 'tls'")]
    NotBuilt,
}

/// How to accept connections.
#[derive(Clone, Debug, Default)]
pub enum Acceptor {
    /// Without encryption.
    #[default]
    Plain,
    /// With TLS from the first byte.
    #[cfg(feature = "tls")]
    Tls(std::sync::Arc<Followed<std::sync::Arc<rustls::ServerConfig>>>),
}

impl Acceptor {
    /// Accepts connections with TLS 1.2 or 1.3, using files that may be [replaced](crate::followed).
    ///
    /// # Errors
    /// [`TlsError`](crate::tls::TlsError).
    #[cfg(feature = "tls")]
    pub fn tls(files: &TlsFiles) -> Result<Self, crate::tls::TlsError> {
        let TlsFiles { certificate, private_key, client_authorities } = files.clone();
        Ok(Self::Tls(crate::tls::server(certificate, private_key, client_authorities)?))
    }

    /// Returns whether clients must use TLS.
    pub const fn is_tls(&self) -> bool {
        !matches!(self, Self::Plain)
    }

    /// Returns the followed TLS files.
    pub fn files(&self) -> Option<std::sync::Arc<dyn FollowedFiles>> {
        match self {
            Self::Plain => None,
            #[cfg(feature = "tls")]
            Self::Tls(server) => Some(std::sync::Arc::clone(server) as _),
        }
    }

    /// Wraps an accepted connection. A client that does not speak TLS where it must receives `refusal`.
    ///
    /// # Errors
    /// If the TLS configuration cannot be used.
    #[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "only TLS refuses"))]
    pub fn accept<S: Read + Write>(&self, stream: S, refusal: &'static [u8]) -> io::Result<Transport<S>> {
        match self {
            Self::Plain => Ok(Transport::Plain(stream)),
            #[cfg(feature = "tls")]
            Self::Tls(server) => {
                let session = rustls::ServerConnection::new(server.get());
                Ok(Encrypted::transport(stream, session.map_err(io::Error::other)?.into(), refusal))
            }
        }
    }
}

/// How to open connections.
#[derive(Clone, Debug, Default)]
pub enum Connector {
    /// Without encryption.
    #[default]
    Plain,
    /// With TLS, to a server whose certificate has this name.
    #[cfg(feature = "tls")]
    Tls(
        std::sync::Arc<Followed<std::sync::Arc<rustls::ClientConfig>>>,
        rustls::pki_types::ServerName<'static>,
    ),
}

impl Connector {
    /// Connects with TLS 1.2 or 1.3. `servers` is a PEM file of authorities, one of which must have signed the certificate of the
    /// server `name`. `identity` is the client's certificate and key, if any. The files may be [replaced](crate::followed).
    ///
    /// # Errors
    /// [`TlsError`](crate::tls::TlsError).
    #[cfg(feature = "tls")]
    pub fn tls(
        servers: &Path,
        identity: Option<(&Path, &Path)>,
        name: &str,
    ) -> Result<Self, crate::tls::TlsError> {
        let (config, server) = crate::tls::client(servers, identity, name)?;
        Ok(Self::Tls(config, server))
    }

    /// Returns the followed TLS files.
    pub fn files(&self) -> Option<std::sync::Arc<dyn FollowedFiles>> {
        match self {
            Self::Plain => None,
            #[cfg(feature = "tls")]
            Self::Tls(client, _) => Some(std::sync::Arc::clone(client) as _),
        }
    }

    /// Wraps a connection that is being established.
    ///
    /// # Errors
    /// If the TLS configuration cannot be used.
    pub fn connect<S: Read + Write>(&self, stream: S) -> io::Result<Transport<S>> {
        match self {
            Self::Plain => Ok(Transport::Plain(stream)),
            #[cfg(feature = "tls")]
            Self::Tls(config, name) => {
                let session = rustls::ClientConnection::new(config.get(), name.clone());
                Ok(Encrypted::transport(stream, session.map_err(io::Error::other)?.into(), &[]))
            }
        }
    }
}

impl Connector {
    /// Wraps a blocking connection. With TLS, the first flush returns after the handshake.
    ///
    /// # Errors
    /// If the TLS configuration cannot be used.
    pub fn over(&self, stream: TcpStream) -> io::Result<Blocking> {
        match self {
            Self::Plain => Ok(Blocking::Plain(stream)),
            #[cfg(feature = "tls")]
            Self::Tls(config, name) => {
                let session = rustls::ClientConnection::new(config.get(), name.clone());
                let session = session.map_err(io::Error::other)?;
                Ok(Blocking::Tls(Box::new(rustls::StreamOwned::new(session, stream))))
            }
        }
    }
}

/// A blocking connection of a client, limited by the socket's timeouts if it has any.
#[derive(Debug)]
pub enum Blocking {
    /// TCP.
    Plain(TcpStream),
    /// TLS over TCP.
    #[cfg(feature = "tls")]
    Tls(Box<rustls::StreamOwned<rustls::ClientConnection, TcpStream>>),
}

impl Read for Blocking {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(into),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Blocking {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// A connection that never blocks, or whose operations have a time limit.
#[derive(Debug)]
pub enum Transport<S> {
    /// TCP.
    Plain(S),
    /// TLS over TCP.
    #[cfg(feature = "tls")]
    Tls(Box<Encrypted<S>>),
}

impl<S: Read + Write> Transport<S> {
    /// Returns the socket.
    pub const fn stream(&mut self) -> &mut S {
        match self {
            Self::Plain(stream) => stream,
            #[cfg(feature = "tls")]
            Self::Tls(encrypted) => &mut encrypted.stream,
        }
    }

    /// Returns whether reads go to the socket directly. A read that leaves room in its buffer has then drained the socket.
    pub const fn reads_the_socket(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// Returns whether the TLS layer has nothing to write.
    pub fn is_settled(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            #[cfg(feature = "tls")]
            Self::Tls(encrypted) => !encrypted.session.wants_write(),
        }
    }

    /// Returns whether the TLS handshake is complete, or TLS is not used.
    pub fn is_agreed(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            #[cfg(feature = "tls")]
            Self::Tls(encrypted) => !encrypted.session.is_handshaking(),
        }
    }

    /// Writes pending bytes of the TLS layer: handshake messages and encrypted records.
    ///
    /// # Errors
    /// The socket's. A socket that cannot take bytes now is not an error.
    pub fn settle(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            #[cfg(feature = "tls")]
            Self::Tls(encrypted) => encrypted.settle(),
        }
    }
}

impl<S: Stream> Transport<S> {
    /// Shuts down the sending side.
    ///
    /// # Errors
    /// The socket's.
    pub fn finish(&mut self) -> io::Result<()> {
        #[cfg(feature = "tls")]
        if let Self::Tls(encrypted) = self {
            if encrypted.session.is_handshaking() {
                // A client without TLS may be waiting for a greeting.
                encrypted.refuse_plainly();
            } else {
                encrypted.session.send_close_notify();
                encrypted.settle()?;
            }
        }
        self.stream().shutdown(Shutdown::Write)
    }
}

impl<S> Transport<S> {
    /// Returns the SHA-256 of the peer's certificate (in DER), if the handshake is complete and the peer presented one.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<[u8; 32]> {
        match self {
            Self::Plain(_) => None,
            #[cfg(feature = "tls")]
            Self::Tls(encrypted) => {
                use sha2::Digest as _;
                let certificate = encrypted.session.peer_certificates()?.first()?;
                Some(sha2::Sha256::digest(certificate).into())
            }
        }
    }
}

impl<S: Read + Write> Read for Transport<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(into),
            #[cfg(feature = "tls")]
            Self::Tls(encrypted) => encrypted.read(into),
        }
    }
}

impl<S: Read + Write> Write for Transport<S> {
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

/// TLS over TCP.
#[cfg(feature = "tls")]
#[derive(Debug)]
pub struct Encrypted<S> {
    stream: S,
    session: rustls::Connection,
    /// The line for a client that does not speak TLS.
    refusal: &'static [u8],
}

#[cfg(feature = "tls")]
impl<S: Read + Write> Encrypted<S> {
    fn transport(stream: S, mut session: rustls::Connection, refusal: &'static [u8]) -> Transport<S> {
        session.set_buffer_limit(Some(1 << 18));
        Transport::Tls(Box::new(Self { stream, session, refusal }))
    }

    /// Sends an error line to a client that does not speak TLS.
    fn refuse_plainly(&mut self) {
        // If there is no room for the line, the client receives none.
        let _taken = self.stream.write(self.refusal);
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
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the other side does not speak TLS"));
            }
            // Sends the alert for the error.
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
