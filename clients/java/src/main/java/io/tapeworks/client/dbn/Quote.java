package io.tapeworks.client.dbn;

/** Levels of a venue's book: what stands behind the prices too. */
public abstract class Quote extends Levels {
    Quote() {}

    /** Orders at the bid price. */
    public final long bidCount(int level) {
        return Integer.toUnsignedLong(buffer.getInt(at(level) + 24));
    }

    /** Orders at the ask price. */
    public final long askCount(int level) {
        return Integer.toUnsignedLong(buffer.getInt(at(level) + 28));
    }
}
