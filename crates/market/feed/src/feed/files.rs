//! Files of messages without packets.

use tapeworks_market::Event;
use tapeworks_stage::{Sink, Stage};
use tapeworks_time::Nanos;

use crate::captured::{ChannelIdentity, Frame, Place};
use crate::recognise::Framing as FileFormat;

use super::reading::Messages;
use super::{AnySink, Feed};

impl Feed {
    /// Returns the stage that reads the messages of one file without packets. The publisher is that of the options, or else the
    /// feed's first; the midnight is that of the options, or else `midnight`; without either, times count from the epoch.
    pub fn file(&mut self, file: u16, format: FileFormat, midnight: Option<Nanos>) -> FileFeed<'_> {
        let midnight = self.shared.options.midnight.or(midnight).unwrap_or_default();
        let index =
            self.shared.admit_stream(self.walk.channels_mut(), ChannelIdentity::File { file }, midnight);
        FileFeed { feed: self, index, format }
    }

    /// Reads a frame of a file without packets to recognise its feed; discards its events.
    pub fn look_at_frame(
        &mut self,
        file: u16,
        format: FileFormat,
        midnight: Option<Nanos>,
        frame: Frame<'_>,
    ) {
        self.file(file, format, midnight).process(&[frame], &mut AnySink(&mut |_| {}));
    }
}

/// The feed of one file without packets: see [`Feed::file`].
#[derive(Debug)]
pub struct FileFeed<'f> {
    feed: &'f mut Feed,
    index: usize,
    format: FileFormat,
}

impl<'b, S: Sink<Event>> Stage<Frame<'b>, S> for FileFeed<'_> {
    #[inline]
    fn process(&mut self, batch: &[Frame<'b>], sink: &mut S) {
        let Feed { walk, shared } = &mut *self.feed;
        let channel = &mut walk.channels_mut()[self.index];
        let mut messages = Messages { shared, sink };
        for frame in batch {
            let number = channel.counters.messages + 1;
            let place = Place { file: frame.file, number, offset: frame.offset, time: None };
            match self.format {
                FileFormat::LengthPrefixed => messages.message(channel, frame.bytes, place),
                FileFormat::SoupBinTcp => messages.soup_packet(channel, frame.bytes, place),
            }
        }
    }
}
