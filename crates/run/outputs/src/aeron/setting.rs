//! The settings of the output to Aeron.

use std::net::SocketAddr;
use std::time::Duration;

use tapeworks_runtime::secrets::Secret;
use tapeworks_runtime::transport::{ClientTlsFiles, Connector, NoTls, TlsFiles};

/// The streams, and their media driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AeronSetting {
    /// The media driver's folder; `None` for the default of Aeron's libraries.
    pub directory: Option<String>,
    /// The channel in Aeron's notation: `aeron:ipc`, or `aeron:udp?endpoint=host:port`.
    pub channel: String,
    /// The number of the status stream. The NBBO streams follow it, and then one stream for each channel of the plant.
    pub stream: i32,
    /// Whether to publish events.
    pub events: bool,
    /// Number of streams over which the NBBO's symbols are spread; 0 does not publish the NBBO.
    pub nbbo_streams: u16,
    /// Maximum bytes of messages queued for the driver.
    pub queue_bytes: usize,
    /// How long a message may wait for slow readers. Then it is dropped, as are later ones until there is room.
    pub back_pressure: Duration,
    /// How long the driver may be silent before the connection is given up.
    pub driver_timeout: Duration,
    /// The interval in which every symbol of the NBBO is sent again.
    pub symbols_every: Duration,
    /// The TCP address that serves replays.
    pub replay: Option<SocketAddr>,
    /// The token that readers must present there.
    pub token: Option<Secret>,
    /// The TLS files for replays.
    pub tls: Option<TlsFiles>,
    /// Maximum number of concurrent replays.
    pub max_replays: usize,
    /// The longest pause between two attempts to find the driver.
    pub longest_pause: Duration,
    /// How long queued messages may be sent when the plant ends.
    pub linger: Duration,
}

impl AeronSetting {
    /// Creates settings that publish events and one NBBO stream on `channel`, without replays.
    pub fn new(channel: String) -> Self {
        Self {
            directory: None,
            channel,
            stream: 1_000,
            events: true,
            nbbo_streams: 1,
            queue_bytes: 64 << 20,
            back_pressure: Duration::from_millis(20),
            driver_timeout: Duration::from_secs(5),
            symbols_every: Duration::from_secs(10),
            replay: None,
            token: None,
            tls: None,
            max_replays: 4,
            longest_pause: Duration::from_secs(2),
            linger: Duration::from_secs(1),
        }
    }

    /// Returns the NBBO stream of a shard.
    pub fn nbbo_stream(&self, shard: u16) -> i32 {
        self.stream.saturating_add(1).saturating_add(i32::from(shard))
    }

    /// Returns the event stream of a channel.
    pub fn event_stream(&self, channel: u16) -> i32 {
        self.nbbo_stream(self.nbbo_streams).saturating_add(i32::from(channel))
    }
}

/// The streams of another plant, and its replay server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AeronSourceSetting {
    /// The media driver's folder; `None` for the default of Aeron's libraries.
    pub directory: Option<String>,
    /// The channel.
    pub channel: String,
    /// The number of the status stream.
    pub stream: i32,
    /// The other plant's replay server.
    pub from: SocketAddr,
    /// The token that it requires.
    pub token: Option<Secret>,
    /// The TLS files for the connection to it.
    pub tls: Option<ClientTlsFiles>,
    /// How long the driver may be silent before the connection is given up.
    pub driver_timeout: Duration,
}

impl AeronSourceSetting {
    /// Returns how to connect to the replay server. With TLS, its certificate must be valid for the address in `from`.
    ///
    /// # Errors
    /// The TLS files cannot be used.
    pub fn connector(&self) -> Result<Connector, NoTls> {
        let name = self.from.ip().to_string();
        self.tls.as_ref().map_or(Ok(Connector::Plain), |files| files.connector(&name))
    }
}
