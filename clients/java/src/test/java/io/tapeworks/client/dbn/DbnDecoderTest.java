package io.tapeworks.client.dbn;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

final class DbnDecoderTest {
    private static List<String> decoded(byte[] stream, int piece) throws IOException {
        List<String> seen = new ArrayList<>();
        DbnDecoder decoder = new DbnDecoder();
        ByteBuffer buffer = ByteBuffer.allocate(4096);
        RecordHandler handler = new RecordHandler() {
            @Override
            public void onRecord(Record record, long sequence, boolean endOfBatch) {
                seen.add(sequence + " " + record.getClass().getSimpleName() + " " + record.indexTime());
            }
        };
        for (int at = 0; at < stream.length; ) {
            int length = Math.min(Math.min(piece, stream.length - at), buffer.remaining());
            buffer.put(stream, at, length);
            at += length;
            buffer.flip();
            decoder.decode(buffer, handler);
            buffer.compact();
        }
        assertEquals(0, buffer.position(), "nothing is left over");
        return seen;
    }

    @Test
    void everyFieldIsWhereTheDocumentationHasIt() throws IOException {
        byte[] stream = Records.joined(Records.metadata(3), Records.mbo(-3, 100), Records.mbp1(Dbn.MBP_1, 200, 0x20), Records.ohlcv(300),
                Records.system("hello"));
        List<String> seen = new ArrayList<>();
        new DbnDecoder().decode(ByteBuffer.wrap(stream), new RecordHandler() {
            @Override
            public void onMbo(Mbo mbo, long sequence, boolean endOfBatch) {
                seen.add("mbo");
                assertEquals(0, sequence);
                assertEquals(Mbo.LENGTH, mbo.length());
                assertEquals(2, mbo.publisherId());
                assertEquals(7, mbo.instrumentId());
                assertEquals(95, mbo.tsEvent());
                assertEquals("18446744073709551613", Long.toUnsignedString(mbo.orderId()));
                assertEquals(1_500_000_000L, mbo.price());
                assertEquals(4_294_967_294L, mbo.size());
                assertEquals(0x82, mbo.flags());
                assertEquals(3, mbo.channelId());
                assertEquals('A', mbo.action());
                assertEquals('B', mbo.side());
                assertEquals(100, mbo.tsRecv());
                assertEquals(-5, mbo.tsInDelta());
                assertEquals(4_294_967_295L, mbo.sequence());
            }

            @Override
            public void onMbp1(Mbp1 quote, long sequence, boolean endOfBatch) {
                seen.add("mbp-1");
                assertEquals(1, quote.levels());
                assertEquals(21, quote.bidPrice(0));
                assertEquals(22, quote.askPrice(0));
                assertEquals(23, quote.bidSize(0));
                assertEquals(24, quote.askSize(0));
                assertEquals(25, quote.bidCount(0));
                assertEquals(26, quote.askCount(0));
                assertTrue(quote.isSnapshot());
                assertThrows(IndexOutOfBoundsException.class, () -> quote.bidPrice(1));
            }

            @Override
            public void onOhlcv(Ohlcv bar, long sequence, boolean endOfBatch) {
                seen.add("ohlcv");
                assertEquals(5, bar.volume());
                assertEquals(300, bar.indexTime());
            }

            @Override
            public void onSystemMessage(SystemMessage message, long sequence, boolean endOfBatch) {
                seen.add(message.msg());
                assertEquals(1, message.code());
                assertTrue(endOfBatch);
            }
        });
        assertEquals(List.of("mbo", "mbp-1", "ohlcv", "hello"), seen);
    }

    @Test
    void recordsAreReadable() throws IOException {
        long time = 1_796_049_000_000_000_001L;
        byte[] stream = Records.joined(Records.metadata(3), Records.mbo(-3, time), Records.mapping(7, "AAPL"), Records.mbo(-3, time),
                Records.mbp1(Dbn.MBP_1, time, 0), Records.ohlcv(time), Records.system("hello"), Records.error("no", 8),
                Records.record(0xEE, 24, 0, 5, Dbn.UNDEF_TIMESTAMP).array());
        List<String> seen = new ArrayList<>();
        new DbnDecoder().decode(ByteBuffer.wrap(stream), new RecordHandler() {
            @Override
            public void onRecord(Record record, long sequence, boolean endOfBatch) {
                seen.add(record.toString().replace("time=2026-11-30T14:30:00.000000001Z", "time=T"));
            }
        });
        String order = "action=A, side=B, price=1.5, size=4294967294, orderId=18446744073709551613, time=T}";
        String message = "time=1970-01-01T00:00:00.000000009Z}";
        assertEquals(List.of(
                "Mbo{instrument=7, " + order,
                "SymbolMapping{symbol=AAPL, stypeInSymbol=, stypeOutSymbol=AAPL, " + message,
                "Mbo{symbol=AAPL, " + order,
                "Mbp1{symbol=AAPL, side=A, price=0.00000001, size=11, bid=0.000000021, bidSize=23, ask=0.000000022, askSize=24, time=T}",
                "Ohlcv{symbol=AAPL, open=0.000000001, high=0.000000002, low=0.000000003, close=0.000000004, volume=5, time=T}",
                "SystemMessage{instrument=0, code=1, msg=hello, " + message,
                "ErrorMessage{instrument=0, code=8, err=no, " + message,
                "UnknownRecord{instrument=5, type=238, time=none}"), seen);
        assertEquals("Mbo{}", new Mbo().toString());
    }

    @Test
    void symbolsOfEndlessInstrumentsDoNotUseUpTheMemory() throws IOException {
        DbnDecoder decoder = new DbnDecoder();
        List<String> seen = new ArrayList<>();
        RecordHandler handler = new RecordHandler() {
            @Override
            public void onMbo(Mbo mbo, long sequence, boolean endOfBatch) {
                seen.add(mbo.symbol());
            }
        };
        decoder.decode(ByteBuffer.wrap(Records.metadata(3)), handler);
        ByteBuffer mapping = ByteBuffer.wrap(Records.mapping(0, "MANY")).order(java.nio.ByteOrder.LITTLE_ENDIAN);
        for (int instrument = 8; instrument < 8 + DbnDecoder.MOST_SYMBOLS; instrument++) {
            decoder.decode(mapping.putInt(4, instrument).rewind(), handler);
        }
        // The bound is reached: instrument 7 of the order is not kept, and a kept instrument gets its new symbol.
        byte[] order = Records.mbo(1, 1);
        byte[] kept = Records.mbo(2, 2);
        ByteBuffer.wrap(kept).order(java.nio.ByteOrder.LITTLE_ENDIAN).putInt(4, 8);
        byte[] late = Records.joined(Records.mapping(7, "LATE"), order, Records.mapping(8, "AGAIN"), kept);
        decoder.decode(ByteBuffer.wrap(late), handler);
        assertEquals(java.util.Arrays.asList(null, "AGAIN"), seen);
    }

    @Test
    void pricesAreDoublesAndDecimals() throws IOException {
        byte[] priced = Records.mbo(1, 1);
        byte[] unpriced = Records.mbo(2, 2);
        ByteBuffer.wrap(unpriced).order(java.nio.ByteOrder.LITTLE_ENDIAN).putLong(24, Dbn.UNDEF_PRICE);
        List<Object> seen = new ArrayList<>();
        byte[] stream = Records.joined(Records.metadata(3), priced, unpriced, Records.mbp1(Dbn.MBP_1, 3, 0));
        new DbnDecoder().decode(ByteBuffer.wrap(stream), new RecordHandler() {
            @Override
            public void onMbo(Mbo mbo, long sequence, boolean endOfBatch) {
                seen.addAll(java.util.Arrays.asList(mbo.priceDouble(), mbo.priceDecimal()));
            }

            @Override
            public void onMbp1(Mbp1 quote, long sequence, boolean endOfBatch) {
                seen.addAll(List.of(quote.askPriceDouble(0), quote.askPriceDecimal(0)));
            }
        });
        assertEquals(java.util.Arrays.asList(1.5, new BigDecimal("1.500000000"), Double.NaN, null, 22e-9, new BigDecimal("0.000000022")), seen);
    }

    @Test
    void everyPriceHasBothConversions() throws NoSuchMethodException {
        Object[][] prices = {
            {Mbo.class, "price"}, {Trade.class, "price"}, {Statistics.class, "price"},
            {Ohlcv.class, "open", "high", "low", "close"},
            {Imbalance.class, "refPrice", "contBookClrPrice", "auctInterestClrPrice", "ssrFillingPrice", "indMatchPrice", "upperCollar",
                "lowerCollar"},
            {Definition.class, "minPriceIncrement", "highLimitPrice", "lowLimitPrice", "maxPriceVariation", "minPriceIncrementAmount",
                "strikePrice", "legPrice"},
        };
        for (Object[] typeAndNames : prices) {
            for (int at = 1; at < typeAndNames.length; at++) {
                Class<?> type = (Class<?>) typeAndNames[0];
                assertEquals(double.class, type.getMethod(typeAndNames[at] + "Double").getReturnType());
                assertEquals(BigDecimal.class, type.getMethod(typeAndNames[at] + "Decimal").getReturnType());
            }
        }
    }

    @Test
    void theRecordsAreTheSameHoweverTheBytesCome() throws IOException {
        byte[] stream = Records.metadata(3);
        for (int at = 0; at < 100; at++) {
            stream = Records.joined(stream, Records.mbo(at, at), Records.system("x"), Records.record(0xEE, 24, 0, 0, at).array());
        }
        List<String> whole = decoded(stream, stream.length);
        assertEquals(300, whole.size());
        assertTrue(whole.contains("2 UnknownRecord 0"));
        for (int piece : new int[] {1, 3, 55, 56, 57, 321}) {
            assertEquals(whole, decoded(stream, piece));
        }
    }

    @Test
    void aBatchEndsWithTheLastWholeRecord() throws IOException {
        byte[] stream = Records.joined(Records.metadata(3), Records.mbo(1, 1), Records.mbo(2, 2), Records.mbo(3, 3));
        List<Boolean> ends = new ArrayList<>();
        new DbnDecoder().decode(ByteBuffer.wrap(stream, 0, stream.length - 1), new RecordHandler() {
            @Override
            public void onMbo(Mbo mbo, long sequence, boolean endOfBatch) {
                ends.add(endOfBatch);
            }
        });
        assertEquals(List.of(false, true), ends);
    }

    @Test
    void wrongBytesAreNamedByTheirOffset() {
        for (Object[] wrong : new Object[][] {
            {Records.joined("nothing ".getBytes()), "byte 0 of the stream: no metadata of DBN"},
            {Records.metadata(9), "byte 3 of the stream: version 9 of DBN, expected 1 to 3"},
            {Records.joined(Records.metadata(3), Records.mbo(1, 1), new byte[16]), "byte 164 of the stream: a record of 0 bytes"},
            {Records.joined(Records.metadata(3), Records.record(Dbn.MBO, 52, 0, 0, 0).array()),
                "byte 108 of the stream: a record of type 160 with 52 bytes, expected 56"},
        }) {
            DbnException error = assertThrows(DbnException.class, () -> decoded((byte[]) wrong[0], 1000));
            assertEquals(wrong[1], error.getMessage());
        }
    }

    @Test
    void randomBytesAreRecordsOrOneError() {
        Random random = new Random(42);
        for (int round = 0; round < 20_000; round++) {
            byte[] noise = new byte[random.nextInt(400)];
            random.nextBytes(noise);
            byte[] stream = Records.joined(Records.metadata(1 + random.nextInt(3)), noise);
            ByteBuffer buffer = ByteBuffer.wrap(stream);
            try {
                new DbnDecoder().decode(buffer, new RecordHandler() {
                    @Override
                    public void onRecord(Record record, long sequence, boolean endOfBatch) {
                        assertTrue(record.length() >= record.minimumLength());
                        record.copyTo(new byte[record.length()], 0);
                        assertTrue(record.toString().endsWith("}"));
                    }
                });
                assertTrue(buffer.remaining() < Dbn.MAX_RECORD_LENGTH);
            } catch (DbnException wrong) {
                assertTrue(wrong.getMessage().startsWith("byte "));
            }
        }
    }

    @Test
    void aRecordWhoseHandlerThrowsIsNotHandedOverTwice() throws IOException {
        ByteBuffer buffer = ByteBuffer.wrap(Records.joined(Records.metadata(3), Records.mbo(1, 1), Records.mbo(2, 2)));
        DbnDecoder decoder = new DbnDecoder();
        List<Long> seen = new ArrayList<>();
        RecordHandler handler = new RecordHandler() {
            @Override
            public void onMbo(Mbo mbo, long sequence, boolean endOfBatch) {
                seen.add(mbo.orderId());
                if (mbo.orderId() == 1) {
                    throw new IllegalStateException("mine");
                }
            }
        };
        assertThrows(IllegalStateException.class, () -> decoder.decode(buffer, handler));
        assertEquals(1, decoder.decode(buffer, handler));
        assertEquals(List.of(1L, 2L), seen);
    }
}
