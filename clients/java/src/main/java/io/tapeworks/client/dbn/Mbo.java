package io.tapeworks.client.dbn;

import java.math.BigDecimal;

/** An order of the book that is added, changed, cancelled or filled: market by order, schema {@code mbo}. */
public final class Mbo extends Record {
    /** Bytes of a record, without the time of sending. */
    public static final int LENGTH = 56;

    @Override
    public int minimumLength() {
        return LENGTH;
    }

    /** The venue's number of the order, unsigned. */
    public long orderId() {
        return buffer.getLong(offset + 16);
    }

    /** The price, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long price() {
        return buffer.getLong(offset + 24);
    }

    /** The price; NaN: none. */
    public double priceDouble() {
        return Dbn.toDouble(price());
    }

    /** The price, exact; null: none. */
    public BigDecimal priceDecimal() {
        return Dbn.toDecimal(price());
    }

    /** The size. */
    public long size() {
        return Integer.toUnsignedLong(buffer.getInt(offset + 32));
    }

    /** The flags: see {@link Dbn}. */
    public int flags() {
        return Byte.toUnsignedInt(buffer.get(offset + 36));
    }

    /** The feed's channel. */
    public int channelId() {
        return Byte.toUnsignedInt(buffer.get(offset + 37));
    }

    /** The action: {@code A} add, {@code C} cancel, {@code M} modify, {@code R} clear, {@code T} trade, {@code F} fill. */
    public char action() {
        return (char) Byte.toUnsignedInt(buffer.get(offset + 38));
    }

    /** The side: {@code B} bid, {@code A} ask, {@code N} none. */
    public char side() {
        return (char) Byte.toUnsignedInt(buffer.get(offset + 39));
    }

    /** When it was received, in ns since the epoch, UTC. */
    public long tsRecv() {
        return buffer.getLong(offset + 40);
    }

    /** The time of receipt less the time of sending, in ns. */
    public int tsInDelta() {
        return buffer.getInt(offset + 48);
    }

    /** The venue's sequence number. */
    public long sequence() {
        return Integer.toUnsignedLong(buffer.getInt(offset + 52));
    }

    @Override
    public long indexTime() {
        return tsRecv();
    }

    @Override
    public boolean isSnapshot() {
        return (flags() & Dbn.SNAPSHOT) != 0;
    }

    @Override
    void describe(StringBuilder line) {
        field(line, "action", action());
        field(line, "side", side());
        price(line, "price", price());
        field(line, "size", size());
        field(line, "orderId", Long.toUnsignedString(orderId()));
    }
}
