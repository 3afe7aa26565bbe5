package io.tapeworks.client.dbn;

import java.math.BigDecimal;
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

    /** The bid price of a level; NaN: none. */
    public final double bidPriceDouble(int level) {
        return Dbn.toDouble(bidPrice(level));
    }

    /** The bid price of a level, exact; null: none. */
    public final BigDecimal bidPriceDecimal(int level) {
        return Dbn.toDecimal(bidPrice(level));
    }

    /** The ask price of a level, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public final long askPrice(int level) {
        return buffer.getLong(at(level) + 8);
    }

    /** The ask price of a level; NaN: none. */
    public final double askPriceDouble(int level) {
        return Dbn.toDouble(askPrice(level));
    }

    /** The ask price of a level, exact; null: none. */
    public final BigDecimal askPriceDecimal(int level) {
        return Dbn.toDecimal(askPrice(level));
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

    @Override
    void describe(StringBuilder line) {
        super.describe(line);
        price(line, "bid", bidPrice(0));
        field(line, "bidSize", bidSize(0));
        price(line, "ask", askPrice(0));
        field(line, "askSize", askSize(0));
    }
}
