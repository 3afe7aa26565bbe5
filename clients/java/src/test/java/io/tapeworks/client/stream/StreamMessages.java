package io.tapeworks.client.stream;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;

/** Messages of {@code tapeworks.proto}, written byte by byte. */
public final class StreamMessages {
    private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();

    private StreamMessages() {}

    private StreamMessages varint(long value) {
        while ((value & ~0x7FL) != 0) {
            bytes.write((int) (value & 0x7F | 0x80));
            value >>>= 7;
        }
        bytes.write((int) value);
        return this;
    }

    private StreamMessages number(int field, long value) {
        return varint(field << 3).varint(value);
    }

    private StreamMessages signed(int field, long value) {
        return number(field, value << 1 ^ value >> 63);
    }

    private StreamMessages bytes(int field, byte[] content) {
        varint(field << 3 | 2).varint(content.length);
        bytes.writeBytes(content);
        return this;
    }

    /** An NBBO with a bid alone. */
    public static byte[] nbbo(long event, String symbol, long bidPrice, long tsRecv) {
        StreamMessages nbbo = new StreamMessages().bytes(1, symbol.getBytes(StandardCharsets.UTF_8)).signed(3, tsRecv).signed(4, bidPrice)
                .number(6, 4_000_000_000L).number(11, 1).number(99, 5);
        return new StreamMessages().number(1, event).bytes(2, nbbo.bytes.toByteArray()).bytes.toByteArray();
    }

    /** A trade. */
    public static byte[] trade(long event, String symbol, long price) {
        StreamMessages trade = new StreamMessages().bytes(1, symbol.getBytes(StandardCharsets.UTF_8)).signed(4, price).number(7, 2);
        return new StreamMessages().number(1, event).bytes(3, trade.bytes.toByteArray()).bytes.toByteArray();
    }
}
