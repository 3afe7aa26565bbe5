package io.tapeworks.client.stream;

import java.nio.ByteBuffer;

/** Decodes messages {@code Record} of {@code tapeworks.proto}. It allocates nothing after its construction. */
public final class StreamDecoder {
    private final ProtobufReader record = new ProtobufReader();
    private final ProtobufReader kind = new ProtobufReader();
    private final StreamNbbo nbbo = new StreamNbbo();
    private final StreamTrade trade = new StreamTrade();
    private final StreamGap gap = new StreamGap();
    private final StreamLagged lagged = new StreamLagged();
    private long unknown;

    /** Messages without a kind that this client knows. */
    public long unknown() {
        return unknown;
    }

    /**
     * Decodes one message and hands it over.
     *
     * @throws StreamException it is none
     */
    public void decode(ByteBuffer buffer, int from, int length, boolean endOfBatch, StreamHandler handler) throws StreamException {
        record.wrap(buffer, from, length);
        long event = 0;
        int field = 0;
        int kindFrom = 0;
        int kindLength = 0;
        while (record.next()) {
            if (record.field() == 1 && record.wireType() == ProtobufReader.VARINT) {
                event = record.number();
            } else if (record.wireType() == ProtobufReader.LENGTH_DELIMITED) {
                field = record.field();
                kindFrom = record.from();
                kindLength = record.length();
            }
        }
        kind.wrap(buffer, kindFrom, kindLength);
        switch (field) {
            case 2 -> {
                nbbo.read(kind, buffer);
                handler.onNbbo(nbbo, event, endOfBatch);
            }
            case 3 -> {
                trade.read(kind, buffer);
                handler.onTrade(trade, event, endOfBatch);
            }
            case 4 -> {
                gap.read(kind, buffer);
                handler.onGap(gap, event, endOfBatch);
            }
            case 5 -> {
                lagged.read(kind, buffer);
                handler.onLagged(lagged, event, endOfBatch);
            }
            default -> unknown += 1;
        }
    }
}
