package io.tapeworks.client.dbn;

import java.math.BigDecimal;

/** The imbalance of an auction: schema {@code imbalance}. */
public final class Imbalance extends Record {
    /** Bytes of a record, without the time of sending. */
    public static final int LENGTH = 112;

    @Override
    public int minimumLength() {
        return LENGTH;
    }

    /** When it was received, in ns since the epoch, UTC. */
    public long tsRecv() {
        return buffer.getLong(offset + 16);
    }

    /** The reference price, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long refPrice() {
        return buffer.getLong(offset + 24);
    }

    /** The reference price; NaN: none. */
    public double refPriceDouble() {
        return Dbn.toDouble(refPrice());
    }

    /** The reference price, exact; null: none. */
    public BigDecimal refPriceDecimal() {
        return Dbn.toDecimal(refPrice());
    }

    /** When the auction is, in ns since the epoch, UTC. */
    public long auctionTime() {
        return buffer.getLong(offset + 32);
    }

    /** The price at which the continuous book clears too, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long contBookClrPrice() {
        return buffer.getLong(offset + 40);
    }

    /** The price at which the continuous book clears too; NaN: none. */
    public double contBookClrPriceDouble() {
        return Dbn.toDouble(contBookClrPrice());
    }

    /** The price at which the continuous book clears too, exact; null: none. */
    public BigDecimal contBookClrPriceDecimal() {
        return Dbn.toDecimal(contBookClrPrice());
    }

    /** The price at which the orders of the auction clear, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long auctInterestClrPrice() {
        return buffer.getLong(offset + 48);
    }

    /** The price at which the orders of the auction clear; NaN: none. */
    public double auctInterestClrPriceDouble() {
        return Dbn.toDouble(auctInterestClrPrice());
    }

    /** The price at which the orders of the auction clear, exact; null: none. */
    public BigDecimal auctInterestClrPriceDecimal() {
        return Dbn.toDecimal(auctInterestClrPrice());
    }

    /** The filling price under a short sale restriction, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long ssrFillingPrice() {
        return buffer.getLong(offset + 56);
    }

    /** The filling price under a short sale restriction; NaN: none. */
    public double ssrFillingPriceDouble() {
        return Dbn.toDouble(ssrFillingPrice());
    }

    /** The filling price under a short sale restriction, exact; null: none. */
    public BigDecimal ssrFillingPriceDecimal() {
        return Dbn.toDecimal(ssrFillingPrice());
    }

    /** The indicative price, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long indMatchPrice() {
        return buffer.getLong(offset + 64);
    }

    /** The indicative price; NaN: none. */
    public double indMatchPriceDouble() {
        return Dbn.toDouble(indMatchPrice());
    }

    /** The indicative price, exact; null: none. */
    public BigDecimal indMatchPriceDecimal() {
        return Dbn.toDecimal(indMatchPrice());
    }

    /** The upper collar, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long upperCollar() {
        return buffer.getLong(offset + 72);
    }

    /** The upper collar; NaN: none. */
    public double upperCollarDouble() {
        return Dbn.toDouble(upperCollar());
    }

    /** The upper collar, exact; null: none. */
    public BigDecimal upperCollarDecimal() {
        return Dbn.toDecimal(upperCollar());
    }

    /** The lower collar, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long lowerCollar() {
        return buffer.getLong(offset + 80);
    }

    /** The lower collar; NaN: none. */
    public double lowerCollarDouble() {
        return Dbn.toDouble(lowerCollar());
    }

    /** The lower collar, exact; null: none. */
    public BigDecimal lowerCollarDecimal() {
        return Dbn.toDecimal(lowerCollar());
    }

    /** The paired quantity. */
    public long pairedQty() {
        return Integer.toUnsignedLong(buffer.getInt(offset + 88));
    }

    /** The imbalance. */
    public long totalImbalanceQty() {
        return Integer.toUnsignedLong(buffer.getInt(offset + 92));
    }

    /** The imbalance of market orders. */
    public long marketImbalanceQty() {
        return Integer.toUnsignedLong(buffer.getInt(offset + 96));
    }

    /** The quantity that is not paired. */
    public long unpairedQty() {
        return Integer.toUnsignedLong(buffer.getInt(offset + 100));
    }

    /** The venue's kind of auction. */
    public char auctionType() {
        return (char) Byte.toUnsignedInt(buffer.get(offset + 104));
    }

    /** The side of the imbalance: {@code B}, {@code A}, {@code N}. */
    public char side() {
        return (char) Byte.toUnsignedInt(buffer.get(offset + 105));
    }

    /** The auction's status. */
    public int auctionStatus() {
        return Byte.toUnsignedInt(buffer.get(offset + 106));
    }

    /** The status of the freeze. */
    public int freezeStatus() {
        return Byte.toUnsignedInt(buffer.get(offset + 107));
    }

    /** How often the auction was extended. */
    public int numExtensions() {
        return Byte.toUnsignedInt(buffer.get(offset + 108));
    }

    /** The side that is not paired. */
    public char unpairedSide() {
        return (char) Byte.toUnsignedInt(buffer.get(offset + 109));
    }

    /** The venue's sign of a significant imbalance. */
    public char significantImbalance() {
        return (char) Byte.toUnsignedInt(buffer.get(offset + 110));
    }

    @Override
    public long indexTime() {
        return tsRecv();
    }

    @Override
    void describe(StringBuilder line) {
        field(line, "side", side());
        price(line, "refPrice", refPrice());
        field(line, "pairedQty", pairedQty());
        field(line, "totalImbalanceQty", totalImbalanceQty());
    }
}
