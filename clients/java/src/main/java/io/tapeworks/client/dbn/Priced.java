package io.tapeworks.client.dbn;

import java.math.BigDecimal;

/** What records of trades and quotes have in common. */
public abstract class Priced extends Record {
    Priced() {}

    /** The price, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public final long price() {
        return buffer.getLong(offset + 16);
    }

    /** The price; NaN: none. */
    public final double priceDouble() {
        return Dbn.toDouble(price());
    }

    /** The price, exact; null: none. */
    public final BigDecimal priceDecimal() {
        return Dbn.toDecimal(price());
    }

    /** The size. */
    public final long size() {
        return Integer.toUnsignedLong(buffer.getInt(offset + 24));
    }

    /** The side: {@code B} bid, {@code A} ask, {@code N} none. */
    public final char side() {
        return (char) Byte.toUnsignedInt(buffer.get(offset + 29));
    }

    /** The flags: see {@link Dbn}. */
    public final int flags() {
        return Byte.toUnsignedInt(buffer.get(offset + 30));
    }

    /** When it was received, in ns since the epoch, UTC. */
    public final long tsRecv() {
        return buffer.getLong(offset + 32);
    }

    @Override
    public final long indexTime() {
        return tsRecv();
    }

    @Override
    public final boolean isSnapshot() {
        return (flags() & Dbn.SNAPSHOT) != 0;
    }

    @Override
    void describe(StringBuilder line) {
        field(line, "side", side());
        price(line, "price", price());
        field(line, "size", size());
    }
}
