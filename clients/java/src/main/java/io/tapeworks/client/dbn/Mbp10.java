package io.tapeworks.client.dbn;

/** A change of the ten best levels with the levels behind it: schema {@code mbp-10}. */
public final class Mbp10 extends BookChange {
    /** Bytes of a record, without the time of sending. */
    public static final int LENGTH = 368;

    @Override
    public int levels() {
        return 10;
    }

    @Override
    public int minimumLength() {
        return LENGTH;
    }
}
