package io.tapeworks.client.stream;

import java.nio.ByteBuffer;

/**
 * Reads the fields of a message of Protocol Buffers where it lies in a buffer, in their order.
 *
 * <p>Source: Protocol Buffers, "Encoding".
 */
final class ProtobufReader {
    static final int VARINT = 0;
    static final int FIXED_64 = 1;
    static final int LENGTH_DELIMITED = 2;
    static final int FIXED_32 = 5;

    private ByteBuffer buffer;
    private int position;
    private int end;

    private int field;
    private int wireType;
    private long number;
    private int from;
    private int length;

    void wrap(ByteBuffer buffer, int from, int length) {
        this.buffer = buffer;
        this.position = from;
        this.end = from + length;
    }

    /** Reads the next field. False: the message is over. */
    boolean next() throws StreamException {
        if (position >= end) {
            return false;
        }
        long tag = varint();
        field = (int) (tag >>> 3);
        wireType = (int) (tag & 7);
        switch (wireType) {
            case VARINT -> number = varint();
            case FIXED_64 -> skip(Long.BYTES);
            case FIXED_32 -> skip(Integer.BYTES);
            case LENGTH_DELIMITED -> {
                long bytes = varint();
                if (bytes < 0 || bytes > end - position) {
                    throw new StreamException("a field of " + bytes + " bytes where " + (end - position) + " are left");
                }
                from = position;
                length = (int) bytes;
                position += length;
            }
            default -> throw new StreamException("wire type " + wireType);
        }
        return true;
    }

    private void skip(int bytes) throws StreamException {
        if (bytes > end - position) {
            throw new StreamException("a field of " + bytes + " bytes where " + (end - position) + " are left");
        }
        position += bytes;
    }

    private long varint() throws StreamException {
        long value = 0;
        for (int shift = 0; shift < Long.SIZE; shift += 7) {
            if (position >= end) {
                throw new StreamException("a number that is cut off");
            }
            byte next = buffer.get(position);
            position += 1;
            value |= (long) (next & 0x7F) << shift;
            if (next >= 0) {
                return value;
            }
        }
        throw new StreamException("a number of more than 64 bits");
    }

    int field() {
        return field;
    }

    int wireType() {
        return wireType;
    }

    /** The number of a field with wire type {@link #VARINT}. */
    long number() {
        return number;
    }

    /** The same, of type {@code sint64}. */
    long zigzag() {
        return number >>> 1 ^ -(number & 1);
    }

    /** Where a field of wire type {@link #LENGTH_DELIMITED} begins. */
    int from() {
        return from;
    }

    int length() {
        return length;
    }
}
