package io.tapeworks.client.dbn;

/**
 * A change of the best bid or ask with the quote behind it, schema {@code mbp-1}; a trade with the quote before it, schema {@code tbbo}.
 */
public final class Mbp1 extends BookChange {
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
}
