package io.tapeworks.client.dbn;

/** The NBBO, and the venues that make it. */
public abstract class ConsolidatedQuote extends Record {
    private static final int FIRST = 48;
    private static final int BYTES = 32;

    /** How many levels there are. */
    public abstract int levels();

    /** The bid price, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long bidPrice(int level) {
        return buffer.getLong(at(level) + 0);
    }

    /** The ask price, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long askPrice(int level) {
        return buffer.getLong(at(level) + 8);
    }

    /** The size at the bid price, over all venues. */
    public long bidSize(int level) {
        return Integer.toUnsignedLong(buffer.getInt(at(level) + 16));
    }

    /** The size at the ask price, over all venues. */
    public long askSize(int level) {
        return Integer.toUnsignedLong(buffer.getInt(at(level) + 20));
    }

    /** The feed of the first venue at the bid price. */
    public int bidPublisher(int level) {
        return Short.toUnsignedInt(buffer.getShort(at(level) + 24));
    }

    /** The feed of the first venue at the ask price. */
    public int askPublisher(int level) {
        return Short.toUnsignedInt(buffer.getShort(at(level) + 28));
    }

    private int at(int level) {
        return offset + FIRST + java.util.Objects.checkIndex(level, levels()) * BYTES;
    }
}
