package io.tapeworks.client.dbn;

/** The trading status of an instrument: schema {@code status}. */
public final class Status extends Record {
    /** Bytes of a record, without the time of sending. */
    public static final int LENGTH = 40;

    @Override
    public int minimumLength() {
        return LENGTH;
    }

    /** When it was received, in ns since the epoch, UTC. */
    public long tsRecv() {
        return buffer.getLong(offset + 16);
    }

    /** The status: DBN's {@code StatusAction}. */
    public int action() {
        return Short.toUnsignedInt(buffer.getShort(offset + 24));
    }

    /** Why: DBN's {@code StatusReason}. */
    public int reason() {
        return Short.toUnsignedInt(buffer.getShort(offset + 26));
    }

    /** DBN's {@code TradingEvent}. */
    public int tradingEvent() {
        return Short.toUnsignedInt(buffer.getShort(offset + 28));
    }

    /** Whether it trades: {@code Y}, {@code N}, {@code ~} not known. */
    public char isTrading() {
        return (char) Byte.toUnsignedInt(buffer.get(offset + 30));
    }

    /** Whether it is quoted: {@code Y}, {@code N}, {@code ~} not known. */
    public char isQuoting() {
        return (char) Byte.toUnsignedInt(buffer.get(offset + 31));
    }

    /** Whether short sales are restricted: {@code Y}, {@code N}, {@code ~} not known. */
    public char isShortSellRestricted() {
        return (char) Byte.toUnsignedInt(buffer.get(offset + 32));
    }

    @Override
    public long indexTime() {
        return tsRecv();
    }

    @Override
    void describe(StringBuilder line) {
        field(line, "action", action());
        field(line, "reason", reason());
        field(line, "isTrading", isTrading());
    }
}
