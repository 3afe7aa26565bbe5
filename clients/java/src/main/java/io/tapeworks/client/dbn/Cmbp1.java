package io.tapeworks.client.dbn;

/** The NBBO behind a change, schema {@code cmbp-1}, or before a trade, schema {@code tcbbo}. */
public final class Cmbp1 extends ConsolidatedQuote {
    /** Bytes of a record, without the time of sending. */
    public static final int LENGTH = 80;

    @Override
    public int minimumLength() {
        return LENGTH;
    }

    /** The action: {@code A} add, {@code C} cancel, {@code M} modify, {@code R} clear, {@code T} trade. */
    public char action() {
        return (char) Byte.toUnsignedInt(buffer.get(offset + 28));
    }

    /** The time of receipt less the time of sending, in ns. */
    public int tsInDelta() {
        return buffer.getInt(offset + 40);
    }
}
