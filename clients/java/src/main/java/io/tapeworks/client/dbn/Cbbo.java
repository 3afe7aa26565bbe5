package io.tapeworks.client.dbn;

/** The NBBO at the end of an interval, with the last trade: schemas {@code cbbo-1s} and {@code cbbo-1m}. */
public final class Cbbo extends ConsolidatedQuote {
    /** Bytes of a record, without the time of sending. */
    public static final int LENGTH = 80;

    @Override
    public int minimumLength() {
        return LENGTH;
    }
}
