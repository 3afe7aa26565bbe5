//! The settings of the output to Aeron.

use std::net::SocketAddr;
use std::time::Duration;

use tapeworks_runtime::secrets::Secret;
use tapeworks_runtime::transport::{ClientTlsFiles, Connector, NoTls, TlsFiles};

/// The streams, and the media driver that takes them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AeronSetting {
    /// The folder of the media driver; the default of Aeron's libraries if none.
    pub directory: Option<String>,
    /// The channel, as Aeron writes it: `aeron:ipc`, or `aeron:udp?endpoint=host:port`.
    pub channel: String,
    /// The number of the status stream. Those of the NBBO follow, and behind them one for each channel of the plant.
    pub stream: i32,
    /// Whether events are published.
    pub events: bool,
    /// The streams over which the symbols of the NBBO are spread; 0: the NBBO is not published.
    pub nbbo_streams: u16,
    /// Bytes of messages that may wait for the driver.
    pub queue_bytes: usize,
    /// How long a message may wait for readers that do not keep up. Then it is dropped, and so are those behind it until there is room.
    pub back_pressure: Duration,
    /// How long the driver may be silent until it is given up.
    pub driver_timeout: Duration,
    /// Every symbol of the NBBO is sent again in this time.
    pub symbols_every: Duration,
    /// Where the past is sent again (TCP).
    pub replay: Option<SocketAddr>,
    /// What a reader must show there.
    pub token: Option<Secret>,
    /// TLS of the replays.
    pub tls: Option<TlsFiles>,
    /// Replays at once.
    pub max_replays: usize,
    /// The longest pause between two tries to find the driver.
    pub longest_pause: Duration,
    /// How long waiting messages may be sent when the plant ends.
    pub linger: Duration,
}

impl AeronSetting {
    /// Events and one stream of the NBBO on `channel`, without replays.
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

    /// The stream of the NBBO of a shard.
    pub fn nbbo_stream(&self, shard: u16) -> i32 {
        self.stream.saturating_add(1).saturating_add(i32::from(shard))
    }

    /// The stream of the events of a channel.
    pub fn event_stream(&self, channel: u16) -> i32 {
        self.nbbo_stream(self.nbbo_streams).saturating_add(i32::from(channel))
    }
}

/// The streams of another plant, and where its past is sent again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AeronSourceSetting {
    /// The folder of the media driver; the default of Aeron's libraries if none.
    pub directory: Option<String>,
    /// The channel.
    pub channel: String,
    /// The number of the status stream.
    pub stream: i32,
    /// The other plant's replay server.
    pub from: SocketAddr,
    /// What it wants to see.
    pub token: Option<Secret>,
    /// TLS to it.
    pub tls: Option<ClientTlsFiles>,
    /// How long the driver may be silent until it is given up.
    pub driver_timeout: Duration,
}

impl AeronSourceSetting {
    /// How to connect to the replay server: with TLS its certificate must be for the address in `from`.
    ///
    /// # Errors
    /// The files of TLS cannot be used.
    pub fn connector(&self) -> Result<Connector, NoTls> {
        let name = self.from.ip().to_string();
        self.tls.as_ref().map_or(Ok(Connector::Plain), |files| files.connector(&name))
    }
}
