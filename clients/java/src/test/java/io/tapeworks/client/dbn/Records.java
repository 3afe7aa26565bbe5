package io.tapeworks.client.dbn;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Records and streams of DBN, written byte by byte as Databento's documentation has them. */
public final class Records {
    private Records() {}

    /** A stream's metadata, of which nothing but its length is read. */
    public static byte[] metadata(int version) {
        ByteBuffer bytes = ByteBuffer.allocate(8 + 100).order(ByteOrder.LITTLE_ENDIAN);
        bytes.put((byte) 'D').put((byte) 'B').put((byte) 'N').put((byte) version).putInt(100);
        return bytes.array();
    }

    /** A record's header, and zeros to its end. */
    public static ByteBuffer record(int type, int length, int publisher, int instrument, long tsEvent) {
        ByteBuffer bytes = ByteBuffer.allocate(length).order(ByteOrder.LITTLE_ENDIAN);
        return bytes.put((byte) (length / 4)).put((byte) type).putShort((short) publisher).putInt(instrument).putLong(tsEvent);
    }

    /** An order that is added. */
    public static byte[] mbo(long orderId, long tsRecv) {
        return record(Dbn.MBO, Mbo.LENGTH, 2, 7, tsRecv - 5).putLong(orderId).putLong(1_500_000_000L).putInt(-2)
                .put((byte) 0x82).put((byte) 3).put((byte) 'A').put((byte) 'B').putLong(tsRecv).putInt(-5).putInt(-1).array();
    }

    /** A change of the best bid and ask. */
    public static byte[] mbp1(int type, long tsRecv, int flags) {
        return record(type, Mbp1.LENGTH, 2, 7, tsRecv - 5).putLong(10).putInt(11).put((byte) 'T').put((byte) 'A').put((byte) flags)
                .put((byte) 0).putLong(tsRecv).putInt(12).putInt(13)
                .putLong(21).putLong(22).putInt(23).putInt(24).putInt(25).putInt(26).array();
    }

    /** A bar. */
    public static byte[] ohlcv(long begin) {
        return record(Dbn.OHLCV_1S, Ohlcv.LENGTH, 2, 7, begin).putLong(1).putLong(2).putLong(3).putLong(4).putLong(5).array();
    }

    /** What the server says. */
    public static byte[] system(String text) {
        ByteBuffer bytes = record(Dbn.SYSTEM, 320, 0, 0, 9);
        bytes.put(text.getBytes(java.nio.charset.StandardCharsets.UTF_8));
        bytes.put(319, (byte) 1);
        return bytes.array();
    }

    /** The symbol of an instrument. */
    public static byte[] mapping(int instrument, String symbol) {
        ByteBuffer bytes = record(Dbn.SYMBOL_MAPPING, SymbolMapping.LENGTH, 2, instrument, 9);
        bytes.position(89);
        return bytes.put(symbol.getBytes(java.nio.charset.StandardCharsets.UTF_8)).array();
    }

    public static byte[] error(String text, int code) {
        ByteBuffer bytes = record(Dbn.ERROR, ErrorMessage.LENGTH, 0, 0, 9);
        bytes.put(text.getBytes(java.nio.charset.StandardCharsets.UTF_8));
        bytes.put(ErrorMessage.LENGTH - 2, (byte) code);
        return bytes.array();
    }

    /** One after the other. */
    public static byte[] joined(byte[]... parts) {
        java.io.ByteArrayOutputStream bytes = new java.io.ByteArrayOutputStream();
        for (byte[] part : parts) {
            bytes.writeBytes(part);
        }
        return bytes.toByteArray();
    }
}
