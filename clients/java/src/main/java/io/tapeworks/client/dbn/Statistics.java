package io.tapeworks.client.dbn;

import java.math.BigDecimal;

/** A statistic of an instrument: schema {@code statistics}. */
public final class Statistics extends Record {
    /** Bytes of a record, without the time of sending. */
    public static final int LENGTH = 80;

    @Override
    public int minimumLength() {
        return LENGTH;
    }

    /** When it was received, in ns since the epoch, UTC. */
    public long tsRecv() {
        return buffer.getLong(offset + 16);
    }

    /** What time it is of, in ns since the epoch, UTC. */
    public long tsRef() {
        return buffer.getLong(offset + 24);
    }

    /** The price, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long price() {
        return buffer.getLong(offset + 32);
    }

    /** The price; NaN: none. */
    public double priceDouble() {
        return Dbn.toDouble(price());
    }

    /** The price, exact; null: none. */
    public BigDecimal priceDecimal() {
        return Dbn.toDecimal(price());
    }

    /** The quantity. */
    public long quantity() {
        return buffer.getLong(offset + 40);
    }

    /** The venue's sequence number. */
    public long sequence() {
        return Integer.toUnsignedLong(buffer.getInt(offset + 48));
    }

    /** The time of receipt less the time of sending, in ns. */
    public int tsInDelta() {
        return buffer.getInt(offset + 52);
    }

    /** Which statistic: DBN's {@code StatType}. */
    public int statType() {
        return Short.toUnsignedInt(buffer.getShort(offset + 56));
    }

    /** The feed's channel. */
    public int channelId() {
        return Short.toUnsignedInt(buffer.getShort(offset + 58));
    }

    /** 1: new, 2: deleted. */
    public int updateAction() {
        return Byte.toUnsignedInt(buffer.get(offset + 60));
    }

    /** Flags of the statistic. */
    public int statFlags() {
        return Byte.toUnsignedInt(buffer.get(offset + 61));
    }

    @Override
    public long indexTime() {
        return tsRecv();
    }

    @Override
    void describe(StringBuilder line) {
        field(line, "statType", statType());
        price(line, "price", price());
        field(line, "quantity", quantity());
    }
}
