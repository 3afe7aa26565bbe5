package io.tapeworks.client.stream;

import io.tapeworks.client.dbn.Dbn;
import java.math.BigDecimal;

/** The synthetic NBBO of an instrument after it changed, or as it is (flag 0x20) when the stream begins. One object serves all records of its kind. */
public final class StreamNbbo extends StreamInstrument {
    private long tsEvent;
    private long tsRecv;
    private long bidPrice;
    private boolean hasBidPrice;
    private long askPrice;
    private boolean hasAskPrice;
    private long bidSize;
    private long askSize;
    private int bidPublisher;
    private int askPublisher;
    private int flags;
    private int state;

    StreamNbbo() {}

    @Override
    void clear() {
        tsEvent = 0;
        tsRecv = 0;
        bidPrice = 0;
        hasBidPrice = false;
        askPrice = 0;
        hasAskPrice = false;
        bidSize = 0;
        askSize = 0;
        bidPublisher = 0;
        askPublisher = 0;
        flags = 0;
        state = 0;
    }

    @Override
    void take(ProtobufReader reader) {
        switch (reader.field()) {
            case 2 -> tsEvent = reader.zigzag();
            case 3 -> tsRecv = reader.zigzag();
            case 4 -> {
                bidPrice = reader.zigzag();
                hasBidPrice = true;
            }
            case 5 -> {
                askPrice = reader.zigzag();
                hasAskPrice = true;
            }
            case 6 -> bidSize = reader.number();
            case 7 -> askSize = reader.number();
            case 8 -> bidPublisher = (int) reader.number();
            case 9 -> askPublisher = (int) reader.number();
            case 10 -> flags = (int) reader.number();
            case 11 -> state = (int) reader.number();
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

    /** The bid price, in 1e-9 of the currency; only if {@link #hasBidPrice}. */
    public long bidPrice() {
        return bidPrice;
    }

    /** The bid price; NaN: none. */
    public double bidPriceDouble() {
        return Dbn.toDouble(hasBidPrice ? bidPrice : Dbn.UNDEF_PRICE);
    }

    /** The bid price, exact; null: none. */
    public BigDecimal bidPriceDecimal() {
        return Dbn.toDecimal(hasBidPrice ? bidPrice : Dbn.UNDEF_PRICE);
    }

    /** Whether there is one. */
    public boolean hasBidPrice() {
        return hasBidPrice;
    }

    /** The ask price, in 1e-9 of the currency; only if {@link #hasAskPrice}. */
    public long askPrice() {
        return askPrice;
    }

    /** The ask price; NaN: none. */
    public double askPriceDouble() {
        return Dbn.toDouble(hasAskPrice ? askPrice : Dbn.UNDEF_PRICE);
    }

    /** The ask price, exact; null: none. */
    public BigDecimal askPriceDecimal() {
        return Dbn.toDecimal(hasAskPrice ? askPrice : Dbn.UNDEF_PRICE);
    }

    /** Whether there is one. */
    public boolean hasAskPrice() {
        return hasAskPrice;
    }

    /** Shares at the bid price, over all venues. */
    public long bidSize() {
        return bidSize;
    }

    /** Shares at the ask price, over all venues. */
    public long askSize() {
        return askSize;
    }

    /** The feed of the first venue at the bid price. */
    public int bidPublisher() {
        return bidPublisher;
    }

    /** The feed of the first venue at the ask price. */
    public int askPublisher() {
        return askPublisher;
    }

    /** 0x04: a venue among the best has a book that may be wrong; 0x20: the state when the stream begins. */
    public int flags() {
        return flags;
    }

    /** How bid and offer stand to each other: 0 one-sided, 1 normal, 2 locked, 3 crossed. */
    public int state() {
        return state;
    }

    @Override
    public String toString() {
        return "StreamNbbo{symbol=" + symbol() + ", bid=" + Dbn.formatPrice(hasBidPrice ? bidPrice : Dbn.UNDEF_PRICE) + ", bidSize=" + bidSize
                + ", ask=" + Dbn.formatPrice(hasAskPrice ? askPrice : Dbn.UNDEF_PRICE) + ", askSize=" + askSize
                + ", time=" + Dbn.formatTime(tsRecv) + "}";
    }
}
