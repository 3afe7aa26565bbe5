package io.tapeworks.client.dbn;

/** The NBBO at the end of an interval, with the last trade: schemas {@code cbbo-1s} and {@code cbbo-1m}. */
public final class Cbbo extends ConsolidatedQuote {
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

    @Override
    public long indexTime() {
        return tsRecv();
    }

    @Override
    public boolean isSnapshot() {
        return (flags() & Dbn.SNAPSHOT) != 0;
    }
}
