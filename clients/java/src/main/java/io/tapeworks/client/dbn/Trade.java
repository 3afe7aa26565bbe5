package io.tapeworks.client.dbn;

/** A trade: schema {@code trades}. */
public final class Trade extends Priced {
    /** Bytes of a record, without the time of sending. */
    public static final int LENGTH = 48;

    @Override
    public int minimumLength() {
        return LENGTH;
    }

    /** The action: {@code A} add, {@code C} cancel, {@code M} modify, {@code R} clear, {@code T} trade. */
    public char action() {
        return (char) Byte.toUnsignedInt(buffer.get(offset + 28));
    }

    /** The level that changed. */
    public int depth() {
        return Byte.toUnsignedInt(buffer.get(offset + 31));
    }

    /** The time of receipt less the time of sending, in ns. */
    public int tsInDelta() {
        return buffer.getInt(offset + 40);
    }

    /** The venue's sequence number. */
    public long sequence() {
        return Integer.toUnsignedLong(buffer.getInt(offset + 44));
    }
}
