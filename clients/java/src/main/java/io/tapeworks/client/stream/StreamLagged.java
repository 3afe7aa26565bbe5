package io.tapeworks.client.stream;

import java.nio.ByteBuffer;

/** What this client missed since the last such record, because it took too little. One object serves all records of its kind. */
public final class StreamLagged {
    private long conflated;
    private long droppedTrades;
    private long droppedGaps;

    StreamLagged() {}

    void read(ProtobufReader reader, ByteBuffer buffer) throws StreamException {
        conflated = 0;
        droppedTrades = 0;
        droppedGaps = 0;
        while (reader.next()) {
            if (reader.wireType() != ProtobufReader.VARINT) {
                continue;
            }
            switch (reader.field()) {
                case 1 -> conflated = reader.number();
                case 2 -> droppedTrades = reader.number();
                case 3 -> droppedGaps = reader.number();
                default -> { }
            }
        }
    }

    /** Changes of an NBBO that gave way to later ones of the same instrument. */
    public long conflated() {
        return conflated;
    }

    /** Trades that were dropped. */
    public long droppedTrades() {
        return droppedTrades;
    }

    /** Gaps that were dropped. */
    public long droppedGaps() {
        return droppedGaps;
    }

    @Override
    public String toString() {
        return "StreamLagged{conflated=" + conflated + ", droppedTrades=" + droppedTrades + ", droppedGaps=" + droppedGaps + "}";
    }
}
