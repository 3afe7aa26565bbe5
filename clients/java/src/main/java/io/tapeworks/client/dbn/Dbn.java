package io.tapeworks.client.dbn;

import java.math.BigDecimal;
import java.time.Instant;

/** Numbers of DBN, Databento's encoding. */
public final class Dbn {
    /** A price that there is not. */
    public static final long UNDEF_PRICE = Long.MAX_VALUE;
    /** A time that there is not. */
    public static final long UNDEF_TIMESTAMP = -1L;

    /** Flag: the last record of its event. */
    public static final int LAST = 1 << 7;
    /** Flag: of a top of book. */
    public static final int TOB = 1 << 6;
    /** Flag: of a snapshot. */
    public static final int SNAPSHOT = 1 << 5;
    /** Flag: of an aggregated level. */
    public static final int MBP = 1 << 4;
    /** Flag: the time of receipt is wrong. */
    public static final int BAD_TS_RECV = 1 << 3;
    /** Flag: messages are missing, so the book may be wrong. */
    public static final int MAYBE_BAD_BOOK = 1 << 2;

    /** Record types. */
    public static final int TRADE = 0x00;
    public static final int MBP_1 = 0x01;
    public static final int MBP_10 = 0x0A;
    public static final int STATUS = 0x12;
    public static final int DEFINITION = 0x13;
    public static final int IMBALANCE = 0x14;
    public static final int ERROR = 0x15;
    public static final int SYMBOL_MAPPING = 0x16;
    public static final int SYSTEM = 0x17;
    public static final int STATISTICS = 0x18;
    public static final int OHLCV_1S = 0x20;
    public static final int OHLCV_1M = 0x21;
    public static final int OHLCV_1H = 0x22;
    public static final int OHLCV_1D = 0x23;
    public static final int MBO = 0xA0;
    public static final int CMBP_1 = 0xB1;
    public static final int CBBO_1S = 0xC0;
    public static final int CBBO_1M = 0xC1;
    public static final int TCBBO = 0xC2;
    public static final int BBO_1S = 0xC3;
    public static final int BBO_1M = 0xC4;

    /** A record's length is said in units of so many bytes. */
    static final int LENGTH_UNIT = 4;
    /** The longest record. */
    static final int MAX_RECORD_LENGTH = 255 * LENGTH_UNIT;

    /** Units of a price's last digit in one unit of the currency. */
    private static final double PRICE_SCALE = 1e9;
    private static final int PRICE_DIGITS = 9;

    private Dbn() {}

    /** Converts a price from 1e-9 of the currency to {@code double}; {@link #UNDEF_PRICE} becomes NaN. */
    public static double toDouble(long price) {
        return price == UNDEF_PRICE ? Double.NaN : price / PRICE_SCALE;
    }

    /** Converts a price from 1e-9 of the currency, exactly and with 9 decimal places; {@link #UNDEF_PRICE} becomes null. */
    public static BigDecimal toDecimal(long price) {
        return price == UNDEF_PRICE ? null : BigDecimal.valueOf(price, PRICE_DIGITS);
    }

    /** Formats a price for people, such as {@code 187.25}; {@code none} for {@link #UNDEF_PRICE}. */
    public static String formatPrice(long price) {
        return price == UNDEF_PRICE ? "none" : toDecimal(price).stripTrailingZeros().toPlainString();
    }

    /** Formats a time for people, such as {@code 2026-11-30T14:30:00.000000001Z}; {@code none} for {@link #UNDEF_TIMESTAMP}. */
    public static String formatTime(long nanos) {
        return nanos == UNDEF_TIMESTAMP ? "none" : Instant.ofEpochSecond(0, nanos).toString();
    }

    /** The record type of a schema; -1: no schema is called that. */
    public static int recordTypeOf(String schema) {
        return switch (schema) {
            case "mbo" -> MBO;
            case "mbp-1", "tbbo" -> MBP_1;
            case "mbp-10" -> MBP_10;
            case "trades" -> TRADE;
            case "bbo-1s" -> BBO_1S;
            case "bbo-1m" -> BBO_1M;
            case "cmbp-1" -> CMBP_1;
            case "tcbbo" -> TCBBO;
            case "cbbo-1s" -> CBBO_1S;
            case "cbbo-1m" -> CBBO_1M;
            case "ohlcv-1s" -> OHLCV_1S;
            case "ohlcv-1m" -> OHLCV_1M;
            case "ohlcv-1h" -> OHLCV_1H;
            case "ohlcv-1d" -> OHLCV_1D;
            case "status" -> STATUS;
            case "definition" -> DEFINITION;
            case "imbalance" -> IMBALANCE;
            case "statistics" -> STATISTICS;
            default -> -1;
        };
    }

    /** The interval of a schema's records, in ns; 0: it has none. */
    public static long intervalOf(String schema) {
        if (schema.endsWith("-1s")) {
            return 1_000_000_000L;
        }
        if (schema.endsWith("-1m")) {
            return 60 * 1_000_000_000L;
        }
        if (schema.endsWith("-1h")) {
            return 3_600 * 1_000_000_000L;
        }
        return schema.endsWith("-1d") ? 86_400 * 1_000_000_000L : 0;
    }
}
