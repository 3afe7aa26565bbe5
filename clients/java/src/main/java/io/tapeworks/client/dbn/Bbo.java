package io.tapeworks.client.dbn;

/**
 * The best bid and ask at the end of an interval, with the last trade: schemas {@code bbo-1s} and {@code bbo-1m}.
 */
public final class Bbo extends Quote {
    /** Bytes of a record, without the time of sending. */
    public static final int LENGTH = 80;

    @Override
    public int levels() {
        return 1;
    }

    @Override
    public int minimumLength() {
        return LENGTH;
    }

    /** The venue's sequence number. */
    public long sequence() {
        return Integer.toUnsignedLong(buffer.getInt(offset + 44));
    }
}
