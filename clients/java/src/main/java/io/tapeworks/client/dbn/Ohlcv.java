package io.tapeworks.client.dbn;

import java.math.BigDecimal;

/**
 * A bar; its {@link #tsEvent()} is its beginning: schemas {@code ohlcv-1s}, {@code ohlcv-1m}, {@code ohlcv-1h}, {@code ohlcv-1d}.
 */
public final class Ohlcv extends Record {
    /** Bytes of a record, without the time of sending. */
    public static final int LENGTH = 56;

    @Override
    public int minimumLength() {
        return LENGTH;
    }

    /** The first price, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long open() {
        return buffer.getLong(offset + 16);
    }

    /** The first price; NaN: none. */
    public double openDouble() {
        return Dbn.toDouble(open());
    }

    /** The first price, exact; null: none. */
    public BigDecimal openDecimal() {
        return Dbn.toDecimal(open());
    }

    /** The highest price, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long high() {
        return buffer.getLong(offset + 24);
    }

    /** The highest price; NaN: none. */
    public double highDouble() {
        return Dbn.toDouble(high());
    }

    /** The highest price, exact; null: none. */
    public BigDecimal highDecimal() {
        return Dbn.toDecimal(high());
    }

    /** The lowest price, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long low() {
        return buffer.getLong(offset + 32);
    }

    /** The lowest price; NaN: none. */
    public double lowDouble() {
        return Dbn.toDouble(low());
    }

    /** The lowest price, exact; null: none. */
    public BigDecimal lowDecimal() {
        return Dbn.toDecimal(low());
    }

    /** The last price, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long close() {
        return buffer.getLong(offset + 40);
    }

    /** The last price; NaN: none. */
    public double closeDouble() {
        return Dbn.toDouble(close());
    }

    /** The last price, exact; null: none. */
    public BigDecimal closeDecimal() {
        return Dbn.toDecimal(close());
    }

    /** The volume, unsigned. */
    public long volume() {
        return buffer.getLong(offset + 48);
    }

    @Override
    void describe(StringBuilder line) {
        price(line, "open", open());
        price(line, "high", high());
        price(line, "low", low());
        price(line, "close", close());
        field(line, "volume", Long.toUnsignedString(volume()));
    }
}
