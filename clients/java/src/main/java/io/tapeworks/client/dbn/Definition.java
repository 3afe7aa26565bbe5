package io.tapeworks.client.dbn;

import java.math.BigDecimal;

/** What an instrument is: schema {@code definition}, of version 3 of DBN. */
public final class Definition extends Record {
    /** Bytes of a record, without the time of sending. */
    public static final int LENGTH = 520;

    @Override
    public int minimumLength() {
        return LENGTH;
    }

    /** When it was received, in ns since the epoch, UTC. */
    public long tsRecv() {
        return buffer.getLong(offset + 16);
    }

    /** The tick, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long minPriceIncrement() {
        return buffer.getLong(offset + 24);
    }

    /** The tick; NaN: none. */
    public double minPriceIncrementDouble() {
        return Dbn.toDouble(minPriceIncrement());
    }

    /** The tick, exact; null: none. */
    public BigDecimal minPriceIncrementDecimal() {
        return Dbn.toDecimal(minPriceIncrement());
    }

    /** What prices are multiplied by for display, in 1e-9. */
    public long displayFactor() {
        return buffer.getLong(offset + 32);
    }

    /** The last time of trading, in ns since the epoch, UTC. */
    public long expiration() {
        return buffer.getLong(offset + 40);
    }

    /** The first time of trading, in ns since the epoch, UTC. */
    public long activation() {
        return buffer.getLong(offset + 48);
    }

    /** The highest permitted price, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long highLimitPrice() {
        return buffer.getLong(offset + 56);
    }

    /** The highest permitted price; NaN: none. */
    public double highLimitPriceDouble() {
        return Dbn.toDouble(highLimitPrice());
    }

    /** The highest permitted price, exact; null: none. */
    public BigDecimal highLimitPriceDecimal() {
        return Dbn.toDecimal(highLimitPrice());
    }

    /** The lowest permitted price, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long lowLimitPrice() {
        return buffer.getLong(offset + 64);
    }

    /** The lowest permitted price; NaN: none. */
    public double lowLimitPriceDouble() {
        return Dbn.toDouble(lowLimitPrice());
    }

    /** The lowest permitted price, exact; null: none. */
    public BigDecimal lowLimitPriceDecimal() {
        return Dbn.toDecimal(lowLimitPrice());
    }

    /** The largest permitted change of price, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long maxPriceVariation() {
        return buffer.getLong(offset + 72);
    }

    /** The largest permitted change of price; NaN: none. */
    public double maxPriceVariationDouble() {
        return Dbn.toDouble(maxPriceVariation());
    }

    /** The largest permitted change of price, exact; null: none. */
    public BigDecimal maxPriceVariationDecimal() {
        return Dbn.toDecimal(maxPriceVariation());
    }

    /** The quantity of a contract, in 1e-9 of its unit. */
    public long unitOfMeasureQty() {
        return buffer.getLong(offset + 80);
    }

    /** The value of a tick, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long minPriceIncrementAmount() {
        return buffer.getLong(offset + 88);
    }

    /** The value of a tick; NaN: none. */
    public double minPriceIncrementAmountDouble() {
        return Dbn.toDouble(minPriceIncrementAmount());
    }

    /** The value of a tick, exact; null: none. */
    public BigDecimal minPriceIncrementAmountDecimal() {
        return Dbn.toDecimal(minPriceIncrementAmount());
    }

    /** The ratio of a spread's price, in 1e-9. */
    public long priceRatio() {
        return buffer.getLong(offset + 96);
    }

    /** The strike price, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long strikePrice() {
        return buffer.getLong(offset + 104);
    }

    /** The strike price; NaN: none. */
    public double strikePriceDouble() {
        return Dbn.toDouble(strikePrice());
    }

    /** The strike price, exact; null: none. */
    public BigDecimal strikePriceDecimal() {
        return Dbn.toDecimal(strikePrice());
    }

    /** The venue's number of the instrument, unsigned. */
    public long rawInstrumentId() {
        return buffer.getLong(offset + 112);
    }

    /** The tied price of a leg, in 1e-9 of the currency; {@link Dbn#UNDEF_PRICE}: none. */
    public long legPrice() {
        return buffer.getLong(offset + 120);
    }

    /** The tied price of a leg; NaN: none. */
    public double legPriceDouble() {
        return Dbn.toDouble(legPrice());
    }

    /** The tied price of a leg, exact; null: none. */
    public BigDecimal legPriceDecimal() {
        return Dbn.toDecimal(legPrice());
    }

    /** The delta of a leg, in 1e-9. */
    public long legDelta() {
        return buffer.getLong(offset + 128);
    }

    /** Attributes of the instrument, as bits. */
    public int instAttribValue() {
        return buffer.getInt(offset + 136);
    }

    /** The number of the underlying. */
    public long underlyingId() {
        return Integer.toUnsignedLong(buffer.getInt(offset + 140));
    }

    /** Levels of the implied book. */
    public int marketDepthImplied() {
        return buffer.getInt(offset + 144);
    }

    /** Levels of the book. */
    public int marketDepth() {
        return buffer.getInt(offset + 148);
    }

    /** The market segment. */
    public long marketSegmentId() {
        return Integer.toUnsignedLong(buffer.getInt(offset + 152));
    }

    /** The largest size of an order. */
    public long maxTradeVol() {
        return Integer.toUnsignedLong(buffer.getInt(offset + 156));
    }

    /** The smallest size of an order. */
    public int minLotSize() {
        return buffer.getInt(offset + 160);
    }

    /** The smallest size of a block trade. */
    public int minLotSizeBlock() {
        return buffer.getInt(offset + 164);
    }

    /** The round lot. */
    public int minLotSizeRoundLot() {
        return buffer.getInt(offset + 168);
    }

    /** The smallest trade. */
    public long minTradeVol() {
        return Integer.toUnsignedLong(buffer.getInt(offset + 172));
    }

    /** The number of deliveries. */
    public int contractMultiplier() {
        return buffer.getInt(offset + 176);
    }

    /** What a contract decays by a day. */
    public int decayQuantity() {
        return buffer.getInt(offset + 180);
    }

    /** The size of a contract before it decays. */
    public int originalContractSize() {
        return buffer.getInt(offset + 184);
    }

    /** The number of a leg. */
    public long legInstrumentId() {
        return Integer.toUnsignedLong(buffer.getInt(offset + 188));
    }

    /** Of a leg's price ratio. */
    public int legRatioPriceNumerator() {
        return buffer.getInt(offset + 192);
    }

    /** Of a leg's price ratio. */
    public int legRatioPriceDenominator() {
        return buffer.getInt(offset + 196);
    }

    /** Of a leg's quantity ratio. */
    public int legRatioQtyNumerator() {
        return buffer.getInt(offset + 200);
    }

    /** Of a leg's quantity ratio. */
    public int legRatioQtyDenominator() {
        return buffer.getInt(offset + 204);
    }

    /** The number of a leg's underlying. */
    public long legUnderlyingId() {
        return Integer.toUnsignedLong(buffer.getInt(offset + 208));
    }

    /** The feed's channel of the instrument. */
    public int applId() {
        return buffer.getShort(offset + 212);
    }

    /** The year of maturity. */
    public int maturityYear() {
        return Short.toUnsignedInt(buffer.getShort(offset + 214));
    }

    /** The day when the decay begins. */
    public int decayStartDate() {
        return Short.toUnsignedInt(buffer.getShort(offset + 216));
    }

    /** The feed's channel. */
    public int channelId() {
        return Short.toUnsignedInt(buffer.getShort(offset + 218));
    }

    /** Legs. */
    public int legCount() {
        return Short.toUnsignedInt(buffer.getShort(offset + 220));
    }

    /** The place of this leg. */
    public int legIndex() {
        return Short.toUnsignedInt(buffer.getShort(offset + 222));
    }

    /** The currency. */
    public String currency() {
        return text(224, 4);
    }

    /** The currency of settlement. */
    public String settlCurrency() {
        return text(228, 4);
    }

    /** The strategy of a spread. */
    public String secsubtype() {
        return text(232, 6);
    }

    /** The venue's name of the instrument. */
    public String rawSymbol() {
        return text(238, 71);
    }

    /** The group of the instrument. */
    public String group() {
        return text(309, 21);
    }

    /** The venue, as a market identifier code. */
    public String exchange() {
        return text(330, 5);
    }

    /** The product. */
    public String asset() {
        return text(335, 11);
    }

    /** The CFI code, ISO 10962. */
    public String cfi() {
        return text(346, 7);
    }

    /** The type of the instrument. */
    public String securityType() {
        return text(353, 7);
    }

    /** The unit of a contract. */
    public String unitOfMeasure() {
        return text(360, 31);
    }

    /** The name of the underlying. */
    public String underlying() {
        return text(391, 21);
    }

    /** The currency of the strike price. */
    public String strikePriceCurrency() {
        return text(412, 4);
    }

    /** The venue's name of a leg. */
    public String legRawSymbol() {
        return text(416, 71);
    }

    /** The class, such as {@code K} for a stock. */
    public char instrumentClass() {
        return (char) Byte.toUnsignedInt(buffer.get(offset + 487));
    }

    /** The matching algorithm, such as {@code F} for first in, first out. */
    public char matchAlgorithm() {
        return (char) Byte.toUnsignedInt(buffer.get(offset + 488));
    }

    /** The denominator of a fractional price. */
    public int mainFraction() {
        return Byte.toUnsignedInt(buffer.get(offset + 489));
    }

    /** Digits behind the point of a fractional price. */
    public int priceDisplayFormat() {
        return Byte.toUnsignedInt(buffer.get(offset + 490));
    }

    /** The denominator of a sub-fraction. */
    public int subFraction() {
        return Byte.toUnsignedInt(buffer.get(offset + 491));
    }

    /** The product complex. */
    public int underlyingProduct() {
        return Byte.toUnsignedInt(buffer.get(offset + 492));
    }

    /** {@code A} added, {@code M} modified, {@code D} deleted. */
    public char securityUpdateAction() {
        return (char) Byte.toUnsignedInt(buffer.get(offset + 493));
    }

    /** The month of maturity. */
    public int maturityMonth() {
        return Byte.toUnsignedInt(buffer.get(offset + 494));
    }

    /** The day of maturity. */
    public int maturityDay() {
        return Byte.toUnsignedInt(buffer.get(offset + 495));
    }

    /** The week of maturity. */
    public int maturityWeek() {
        return Byte.toUnsignedInt(buffer.get(offset + 496));
    }

    /** Whether a user has made it: {@code Y}, {@code N}. */
    public char userDefinedInstrument() {
        return (char) Byte.toUnsignedInt(buffer.get(offset + 497));
    }

    /** The unit of the number of deliveries. */
    public int contractMultiplierUnit() {
        return buffer.get(offset + 498);
    }

    /** The schedule of delivery. */
    public int flowScheduleType() {
        return buffer.get(offset + 499);
    }

    /** The tick rule. */
    public int tickRule() {
        return Byte.toUnsignedInt(buffer.get(offset + 500));
    }

    /** The class of a leg. */
    public char legInstrumentClass() {
        return (char) Byte.toUnsignedInt(buffer.get(offset + 501));
    }

    /** The side of a leg. */
    public char legSide() {
        return (char) Byte.toUnsignedInt(buffer.get(offset + 502));
    }

    @Override
    public long indexTime() {
        return tsRecv();
    }

    @Override
    void describe(StringBuilder line) {
        field(line, "rawSymbol", rawSymbol());
        field(line, "class", instrumentClass());
        price(line, "tick", minPriceIncrement());
    }
}
