package io.tapeworks.client.stream;

import io.tapeworks.client.dbn.Dbn;
import java.nio.ByteBuffer;

/** Messages of a feed's channel that never came: what they said is not known. One object serves all records of its kind. */
public final class StreamGap {
    private int publisher;
    private int channel;
    private long first;
    private long count;
    private long tsEvent;
    private long tsRecv;

    StreamGap() {}

    void read(ProtobufReader reader, ByteBuffer buffer) throws StreamException {
        publisher = 0;
        channel = 0;
        first = 0;
        count = 0;
        tsEvent = 0;
        tsRecv = 0;
        while (reader.next()) {
            if (reader.wireType() != ProtobufReader.VARINT) {
                continue;
            }
            switch (reader.field()) {
                case 1 -> publisher = (int) reader.number();
                case 2 -> channel = (int) reader.number();
                case 3 -> first = reader.number();
                case 4 -> count = reader.number();
                case 5 -> tsEvent = reader.zigzag();
                case 6 -> tsRecv = reader.zigzag();
                default -> { }
            }
        }
    }

    /** The feed. */
    public int publisher() {
        return publisher;
    }

    /** Its channel. */
    public int channel() {
        return channel;
    }

    /** The sequence number of the first. */
    public long first() {
        return first;
    }

    /** How many. */
    public long count() {
        return count;
    }

    /** The venue's time, in ns since the epoch, UTC. */
    public long tsEvent() {
        return tsEvent;
    }

    /** When it was noticed, in ns since the epoch, UTC. */
    public long tsRecv() {
        return tsRecv;
    }

    @Override
    public String toString() {
        return "StreamGap{publisher=" + publisher + ", channel=" + channel + ", first=" + first + ", count=" + count
                + ", time=" + Dbn.formatTime(tsRecv) + "}";
    }
}
