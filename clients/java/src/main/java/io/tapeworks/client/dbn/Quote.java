package io.tapeworks.client.dbn;

/** Levels of a book: the best bid and ask, and what stands behind them. */
public abstract class Quote extends Record {
    private static final int FIRST = 48;
    private static final int BYTES = 32;

    /** How many levels there are. */
    public abstract int levels();

    /** The bid price of a level, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long bidPrice(int level) {
        return buffer.getLong(at(level) + 0);
    }

    /** The ask price of a level, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long askPrice(int level) {
        return buffer.getLong(at(level) + 8);
    }

    /** The size at the bid price. */
    public long bidSize(int level) {
        return Integer.toUnsignedLong(buffer.getInt(at(level) + 16));
    }

    /** The size at the ask price. */
    public long askSize(int level) {
        return Integer.toUnsignedLong(buffer.getInt(at(level) + 20));
    }

    /** Orders at the bid price. */
    public long bidCount(int level) {
        return Integer.toUnsignedLong(buffer.getInt(at(level) + 24));
    }

    /** Orders at the ask price. */
    public long askCount(int level) {
        return Integer.toUnsignedLong(buffer.getInt(at(level) + 28));
    }

    private int at(int level) {
        return offset + FIRST + java.util.Objects.checkIndex(level, levels()) * BYTES;
    }
}
