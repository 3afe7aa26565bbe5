package io.tapeworks.client.dbn;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.HashMap;
import java.util.Map;

/**
 * Decodes a stream of DBN, of a file or of a live session: the metadata, then records. After its construction it
 * allocates only the symbols of mappings.
 *
 * <p>Source: Databento's encoding, "Metadata" and "Record header".
 */
public final class DbnDecoder {
    /** A decision about each record before it is handed over. */
    @FunctionalInterface
    public interface Filter {
        /** Whether to hand it over. */
        boolean takes(Record record);
    }

    private static final int PRELUDE_LENGTH = 8;
    private static final int MAX_VERSION = 3;

    private final Mbo mbo = new Mbo();
    private final Trade trade = new Trade();
    private final Mbp1 mbp1 = new Mbp1();
    private final Mbp10 mbp10 = new Mbp10();
    private final Bbo bbo = new Bbo();
    private final Cmbp1 cmbp1 = new Cmbp1();
    private final Cbbo cbbo = new Cbbo();
    private final Ohlcv ohlcv = new Ohlcv();
    private final Status status = new Status();
    private final Definition definition = new Definition();
    private final Imbalance imbalance = new Imbalance();
    private final Statistics statistics = new Statistics();
    private final SymbolMapping symbolMapping = new SymbolMapping();
    private final SystemMessage systemMessage = new SystemMessage();
    private final ErrorMessage errorMessage = new ErrorMessage();
    private final UnknownRecord unknown = new UnknownRecord();

    /** The most instruments whose symbols are kept; {@code symbol()} of any other is null. */
    static final int MOST_SYMBOLS = 1 << 20;

    private final Map<Long, String> symbols = new HashMap<>();
    private final Filter filter;
    private int version;
    private long metadataLeft = -1;
    private long streamOffset;
    private long sequence;

    /** Hands every record over. */
    public DbnDecoder() {
        this(record -> true);
    }

    /** Hands those records over that the filter takes. */
    public DbnDecoder(Filter filter) {
        this.filter = filter;
        Record[] all = {
            mbo, trade, mbp1, mbp10, bbo, cmbp1, cbbo, ohlcv, status, definition, imbalance, statistics, symbolMapping, systemMessage,
            errorMessage, unknown
        };
        for (Record record : all) {
            record.symbols = symbols;
        }
    }

    /** Starts a new stream, with its own symbols. The sequence continues. */
    public void restart() {
        symbols.clear();
        version = 0;
        metadataLeft = -1;
        streamOffset = 0;
    }

    /** The version of the stream; 0: its metadata is not there yet. */
    public int version() {
        return version;
    }

    /** How many records have been handed over. */
    public long records() {
        return sequence;
    }

    /**
     * Decodes what is whole between a buffer's position and its limit, and moves the position behind it. What is left belongs before the
     * next bytes: {@link ByteBuffer#compact}.
     *
     * @return how many records were handed over
     * @throws DbnException the bytes are no DBN
     */
    public int decode(ByteBuffer buffer, RecordHandler handler) throws DbnException {
        buffer.order(ByteOrder.LITTLE_ENDIAN);
        if (metadataLeft != 0 && !takeMetadata(buffer)) {
            return 0;
        }
        int handed = 0;
        int position = buffer.position();
        int limit = buffer.limit();
        try {
            while (position < limit) {
                int length = Byte.toUnsignedInt(buffer.get(position)) * Dbn.LENGTH_UNIT;
                if (length < Record.HEADER_LENGTH) {
                    throw wrong(position - buffer.position(), "a record of " + length + " bytes");
                }
                if (length > limit - position) {
                    break;
                }
                int next = position + length;
                boolean endOfBatch = next == limit
                        || Byte.toUnsignedInt(buffer.get(next)) * Dbn.LENGTH_UNIT > limit - next;
                int at = position;
                // Before the handler, which may throw: it has had the record.
                position = next;
                handed += hand(buffer, at, length, endOfBatch, handler);
            }
        } finally {
            streamOffset += position - buffer.position();
            buffer.position(position);
        }
        return handed;
    }

    private DbnException wrong(int ahead, String what) {
        return new DbnException(streamOffset + ahead, what);
    }

    /** Whether the metadata is over. */
    private boolean takeMetadata(ByteBuffer buffer) throws DbnException {
        if (metadataLeft < 0) {
            if (buffer.remaining() < PRELUDE_LENGTH) {
                return false;
            }
            int at = buffer.position();
            if (buffer.get(at) != 'D' || buffer.get(at + 1) != 'B' || buffer.get(at + 2) != 'N') {
                throw wrong(0, "no metadata of DBN");
            }
            version = Byte.toUnsignedInt(buffer.get(at + 3));
            if (version == 0 || version > MAX_VERSION) {
                throw wrong(3, "version " + version + " of DBN, expected 1 to " + MAX_VERSION);
            }
            metadataLeft = Integer.toUnsignedLong(buffer.getInt(at + 4));
            skip(buffer, PRELUDE_LENGTH);
        }
        int there = (int) Math.min(metadataLeft, buffer.remaining());
        skip(buffer, there);
        metadataLeft -= there;
        return metadataLeft == 0;
    }

    private void skip(ByteBuffer buffer, int bytes) {
        buffer.position(buffer.position() + bytes);
        streamOffset += bytes;
    }

    /** Keeps the symbol of an instrument. A server that never stops mapping new instruments cannot use up the memory. */
    private void keepSymbol(long instrument, String symbol) {
        if (symbols.size() < MOST_SYMBOLS || symbols.containsKey(instrument)) {
            symbols.put(instrument, symbol);
        }
    }

    private int hand(ByteBuffer buffer, int at, int length, boolean endOfBatch, RecordHandler handler)
            throws DbnException {
        int type = Byte.toUnsignedInt(buffer.get(at + 1));
        Record record = flyweight(type);
        record.wrap(buffer, at);
        if (length < record.minimumLength()) {
            // Earlier versions have shorter definitions, mappings and messages.
            if (version == MAX_VERSION) {
                throw wrong(at - buffer.position(), "a record of type " + type + " with " + length + " bytes, expected "
                        + record.minimumLength());
            }
            record = unknown;
            record.wrap(buffer, at);
        }
        if (record == symbolMapping) {
            keepSymbol(record.instrumentId(), symbolMapping.stypeOutSymbol());
        }
        if (!filter.takes(record)) {
            return 0;
        }
        long number = sequence++;
        if (record == unknown) {
            handler.onUnknown(unknown, number, endOfBatch);
            return 1;
        }
        switch (type) {
            case Dbn.MBO -> handler.onMbo(mbo, number, endOfBatch);
            case Dbn.TRADE -> handler.onTrade(trade, number, endOfBatch);
            case Dbn.MBP_1 -> handler.onMbp1(mbp1, number, endOfBatch);
            case Dbn.MBP_10 -> handler.onMbp10(mbp10, number, endOfBatch);
            case Dbn.BBO_1S, Dbn.BBO_1M -> handler.onBbo(bbo, number, endOfBatch);
            case Dbn.CMBP_1, Dbn.TCBBO -> handler.onCmbp1(cmbp1, number, endOfBatch);
            case Dbn.CBBO_1S, Dbn.CBBO_1M -> handler.onCbbo(cbbo, number, endOfBatch);
            case Dbn.OHLCV_1S, Dbn.OHLCV_1M, Dbn.OHLCV_1H, Dbn.OHLCV_1D -> handler.onOhlcv(ohlcv, number, endOfBatch);
            case Dbn.STATUS -> handler.onStatus(status, number, endOfBatch);
            case Dbn.DEFINITION -> handler.onDefinition(definition, number, endOfBatch);
            case Dbn.IMBALANCE -> handler.onImbalance(imbalance, number, endOfBatch);
            case Dbn.STATISTICS -> handler.onStatistics(statistics, number, endOfBatch);
            case Dbn.SYMBOL_MAPPING -> handler.onSymbolMapping(symbolMapping, number, endOfBatch);
            case Dbn.SYSTEM -> handler.onSystemMessage(systemMessage, number, endOfBatch);
            case Dbn.ERROR -> handler.onErrorMessage(errorMessage, number, endOfBatch);
            default -> handler.onUnknown(unknown, number, endOfBatch);
        }
        return 1;
    }

    private Record flyweight(int type) {
        return switch (type) {
            case Dbn.MBO -> mbo;
            case Dbn.TRADE -> trade;
            case Dbn.MBP_1 -> mbp1;
            case Dbn.MBP_10 -> mbp10;
            case Dbn.BBO_1S, Dbn.BBO_1M -> bbo;
            case Dbn.CMBP_1, Dbn.TCBBO -> cmbp1;
            case Dbn.CBBO_1S, Dbn.CBBO_1M -> cbbo;
            case Dbn.OHLCV_1S, Dbn.OHLCV_1M, Dbn.OHLCV_1H, Dbn.OHLCV_1D -> ohlcv;
            case Dbn.STATUS -> status;
            case Dbn.DEFINITION -> definition;
            case Dbn.IMBALANCE -> imbalance;
            case Dbn.STATISTICS -> statistics;
            case Dbn.SYMBOL_MAPPING -> symbolMapping;
            case Dbn.SYSTEM -> systemMessage;
            case Dbn.ERROR -> errorMessage;
            default -> unknown;
        };
    }
}
