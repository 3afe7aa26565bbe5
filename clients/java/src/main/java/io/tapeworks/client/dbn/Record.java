package io.tapeworks.client.dbn;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * A record of DBN where it lies in a buffer: a flyweight. Nothing is copied, and one object serves all records of its type, so what
 * is wanted later must be copied out before the handler returns.
 *
 * <p>Source: Databento's encoding, versions 1 to 3, "Record header". Numbers are little-endian.
 */
public abstract class Record {
    /** Bytes of the header that every record begins with. */
    public static final int HEADER_LENGTH = 16;

    ByteBuffer buffer;
    int offset;
    /** Symbols by instrument ID, kept by the decoder. */
    Map<Long, String> symbols = Map.of();

    Record() {}

    final void wrap(ByteBuffer buffer, int offset) {
        this.buffer = buffer;
        this.offset = offset;
    }

    /** The fewest bytes that have all fields. */
    public abstract int minimumLength();

    /** Bytes of the record. */
    public final int length() {
        return Byte.toUnsignedInt(buffer.get(offset)) * Dbn.LENGTH_UNIT;
    }

    /** The record type: see {@link Dbn}. */
    public final int recordType() {
        return Byte.toUnsignedInt(buffer.get(offset + 1));
    }

    /** The number of the feed that it comes from. */
    public final int publisherId() {
        return Short.toUnsignedInt(buffer.getShort(offset + 2));
    }

    /** The instrument's number. */
    public final long instrumentId() {
        return Integer.toUnsignedLong(buffer.getInt(offset + 4));
    }

    /** The instrument's symbol from the last {@link SymbolMapping} of this connection; null: there was none, as in a file. */
    public final String symbol() {
        return symbols.get(instrumentId());
    }

    /** The venue's time, in ns since the epoch, UTC. */
    public final long tsEvent() {
        return buffer.getLong(offset + 8);
    }

    /** The time by which records of this type are in order, in ns since the epoch, UTC: that of receipt, if the record has one. */
    public long indexTime() {
        return tsEvent();
    }

    /** When it was sent, in ns since the epoch, UTC. Only of a session that requested it. */
    public final long tsOut() {
        return buffer.getLong(offset + length() - Long.BYTES);
    }

    /** Whether it is of a snapshot: the state of now, not a change. */
    public boolean isSnapshot() {
        return false;
    }

    /** Copies the record's bytes. Returns how many; {@code target} must have room for them. */
    public final int copyTo(byte[] target, int at) {
        int length = length();
        buffer.get(offset, target, at, length);
        return length;
    }

    /** The symbol (or the instrument ID if unknown), the main fields and the time, in one line. Allocates; meant for people. */
    @Override
    public final String toString() {
        StringBuilder line = new StringBuilder(getClass().getSimpleName());
        if (buffer == null) {
            return line.append("{}").toString();
        }
        String symbol = symbol();
        line.append('{').append(symbol == null ? "instrument=" + instrumentId() : "symbol=" + symbol);
        describe(line);
        return field(line, "time", Dbn.formatTime(indexTime())).append('}').toString();
    }

    /** Appends the main fields to the line of {@link #toString}. */
    void describe(StringBuilder line) {}

    static StringBuilder field(StringBuilder line, String name, Object value) {
        return line.append(", ").append(name).append('=').append(value);
    }

    static StringBuilder price(StringBuilder line, String name, long price) {
        return field(line, name, Dbn.formatPrice(price));
    }

    /** The text of a field, to its first zero byte. */
    final String text(int from, int room) {
        int length = 0;
        while (length < room && buffer.get(offset + from + length) != 0) {
            length += 1;
        }
        byte[] bytes = new byte[length];
        buffer.get(offset + from, bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
