package io.tapeworks.client.dbn;

/** A trade: schema {@code trades}. */
public final class Trade extends Record {
    /** Bytes of a record, without the time of sending. */
    public static final int LENGTH = 48;

    @Override
    public int minimumLength() {
        return LENGTH;
    }

    /** The price, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long price() {
        return buffer.getLong(offset + 16);
    }

    /** The size. */
    public long size() {
        return Integer.toUnsignedLong(buffer.getInt(offset + 24));
    }

    /** The action: {@code A} add, {@code C} cancel, {@code M} modify, {@code R} clear, {@code T} trade. */
    public char action() {
        return (char) Byte.toUnsignedInt(buffer.get(offset + 28));
    }

    /** The side: {@code B} bid, {@code A} ask, {@code N} none. */
    public char side() {
        return (char) Byte.toUnsignedInt(buffer.get(offset + 29));
    }

    /** The flags: see {@link Dbn}. */
    public int flags() {
        return Byte.toUnsignedInt(buffer.get(offset + 30));
    }

    /** The level that changed. */
    public int depth() {
        return Byte.toUnsignedInt(buffer.get(offset + 31));
    }

    /** When it was received, in ns since the epoch, UTC. */
    public long tsRecv() {
        return buffer.getLong(offset + 32);
    }

    /** The time of receipt less the time of sending, in ns. */
    public int tsInDelta() {
        return buffer.getInt(offset + 40);
    }

    /** The venue's sequence number. */
    public long sequence() {
        return Integer.toUnsignedLong(buffer.getInt(offset + 44));
    }

    @Override
    public long indexTime() {
        return tsRecv();
    }

    @Override
    public boolean isSnapshot() {
        return (flags() & Dbn.SNAPSHOT) != 0;
    }
}
