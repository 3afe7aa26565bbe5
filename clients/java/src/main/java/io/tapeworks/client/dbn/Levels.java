package io.tapeworks.client.dbn;

import java.util.Objects;

/** Levels of a book: prices and sizes of both sides. */
public abstract class Levels extends Priced {
    private static final int FIRST = 48;
    private static final int BYTES = 32;

    Levels() {}

    /** How many levels there are. */
    public abstract int levels();

    /** The bid price of a level, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public final long bidPrice(int level) {
        return buffer.getLong(at(level) + 0);
    }

    /** The ask price of a level, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public final long askPrice(int level) {
        return buffer.getLong(at(level) + 8);
    }

    /** The size at the bid price. */
    public final long bidSize(int level) {
        return Integer.toUnsignedLong(buffer.getInt(at(level) + 16));
    }

    /** The size at the ask price. */
    public final long askSize(int level) {
        return Integer.toUnsignedLong(buffer.getInt(at(level) + 20));
    }

    /** Where a level is in the buffer. */
    final int at(int level) {
        return offset + FIRST + Objects.checkIndex(level, levels()) * BYTES;
    }
}
