package io.tapeworks.client.dbn;

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

    /** The highest price, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long high() {
        return buffer.getLong(offset + 24);
    }

    /** The lowest price, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long low() {
        return buffer.getLong(offset + 32);
    }

    /** The last price, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long close() {
        return buffer.getLong(offset + 40);
    }

    /** The volume, unsigned. */
    public long volume() {
        return buffer.getLong(offset + 48);
    }
}
