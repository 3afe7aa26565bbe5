package io.tapeworks.client.dbn;

/** The NBBO behind a change, schema {@code cmbp-1}, or before a trade, schema {@code tcbbo}. */
public final class Cmbp1 extends ConsolidatedQuote {
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

    /** When it was received, in ns since the epoch, UTC. */
    public long tsRecv() {
        return buffer.getLong(offset + 32);
    }

    /** The time of receipt less the time of sending, in ns. */
    public int tsInDelta() {
        return buffer.getInt(offset + 40);
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
