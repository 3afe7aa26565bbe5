package io.tapeworks.client.stream;

import io.tapeworks.client.dbn.Dbn;
import java.math.BigDecimal;

/** A trade. One object serves all records of its kind. */
public final class StreamTrade extends StreamInstrument {
    private long tsEvent;
    private long tsRecv;
    private long price;
    private long size;
    private int publisher;
    private int side;
    private int flags;

    StreamTrade() {}

    @Override
    void clear() {
        tsEvent = 0;
        tsRecv = 0;
        price = 0;
        size = 0;
        publisher = 0;
        side = 0;
        flags = 0;
    }

    @Override
    void take(ProtobufReader reader) {
        switch (reader.field()) {
            case 2 -> tsEvent = reader.zigzag();
            case 3 -> tsRecv = reader.zigzag();
            case 4 -> price = reader.zigzag();
            case 5 -> size = reader.number();
            case 6 -> publisher = (int) reader.number();
            case 7 -> side = (int) reader.number();
            case 8 -> flags = (int) reader.number();
            default -> { }
        }
    }

    /** The venue's time, in ns since the epoch, UTC. */
    public long tsEvent() {
        return tsEvent;
    }

    /** When it was received, in ns since the epoch, UTC. */
    public long tsRecv() {
        return tsRecv;
    }

    /** The price, in 1e-9 of the currency. */
    public long price() {
        return price;
    }

    /** The price. */
    public double priceDouble() {
        return Dbn.toDouble(price());
    }

    /** The price, exact. */
    public BigDecimal priceDecimal() {
        return Dbn.toDecimal(price());
    }

    /** Shares. */
    public long size() {
        return size;
    }

    /** The feed. */
    public int publisher() {
        return publisher;
    }

    /** The aggressor's side: 0 none, 1 bid, 2 ask. */
    public int side() {
        return side;
    }

    /** The flags of DBN. */
    public int flags() {
        return flags;
    }

    @Override
    public String toString() {
        return "StreamTrade{symbol=" + symbol() + ", price=" + Dbn.formatPrice(price) + ", size=" + size
                + ", time=" + Dbn.formatTime(tsRecv) + "}";
    }
}
